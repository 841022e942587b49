"""Reads one's own certificate, to tell when it ends, or why the other side may have refused it.

Python's ssl module shows the peer's certificate but not our own. So this parses the DER encoding
(RFC 5280, section 4.1) as far as the subject. It verifies nothing; the other side does.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_COMMON_NAME = bytes.fromhex("0603550403")  # OBJECT IDENTIFIER 2.5.4.3
_VERSION, _UTC_TIME = 0xA0, 0x17


@dataclass(frozen=True, slots=True)
class Certificate:
    """The subject's common name ("" if there is none) and the period of validity."""

    common_name: str
    not_before: datetime
    not_after: datetime


def read(cert_file: Path) -> Certificate:
    """Read the first certificate of a PEM file. Raises OSError, ValueError."""
    text = cert_file.read_text(encoding="ascii", errors="replace")
    begin, end = (text.find(f"-----{word} CERTIFICATE-----") for word in ("BEGIN", "END"))
    if begin < 0 or end < begin:
        raise ValueError(f"{cert_file}: expected a certificate in PEM")
    der = ssl.PEM_cert_to_DER_cert(text[begin:end] + "-----END CERTIFICATE-----\n")
    try:
        (_, outer), *_ = _elements(der)
        (_, signed), *_ = _elements(outer)
        fields = _elements(signed)
        if fields[0][0] == _VERSION:
            fields = fields[1:]
        _serial, _algorithm, _issuer, (_, validity), (_, subject) = fields[:5]
        not_before, not_after = (_time(kind, value) for kind, value in _elements(validity)[:2])
        at = subject.find(_COMMON_NAME)
        name = _elements(subject[at + len(_COMMON_NAME) :])[0][1] if at >= 0 else b""
    except IndexError:
        raise ValueError(f"{cert_file}: expected a whole certificate") from None
    return Certificate(name.decode(errors="replace"), not_before, not_after)


def _time(kind: int, value: bytes) -> datetime:
    text = value.decode("ascii")
    if kind == _UTC_TIME:  # two digits for the year: 50 and above are of the last century
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """(tag, contents) of each element. Raises IndexError where a length is not there."""
    found, at = [], 0
    while at < len(der):
        tag, length, start = der[at], der[at + 1], at + 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[at + 2 : start], "big")
        found.append((tag, der[start : start + length]))
        at = start + length
    return found
