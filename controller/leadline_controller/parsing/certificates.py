"""When our own certificates end. Python's ssl module shows a peer's certificate only, so this reads
the DER encoding (RFC 5280, section 4.1) as far as the validity, and verifies nothing."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

_VERSION, _UTC_TIME = 0xA0, 0x17


def not_after_s(cert_file: Path) -> float:
    """The end of the first certificate of a PEM file, seconds since 1970. Raises OSError,
    ValueError."""
    text = cert_file.read_text(encoding="ascii", errors="replace")
    begin, end = (text.find(f"-----{word} CERTIFICATE-----") for word in ("BEGIN", "END"))
    if begin < 0 or end < begin:
        raise ValueError(f"{cert_file}: expected a certificate in PEM")
    der = ssl.PEM_cert_to_DER_cert(text[begin:end] + "-----END CERTIFICATE-----\n")
    try:
        signed = _elements(_elements(_elements(der)[0][1])[0][1])
        # serial, algorithm, issuer, validity; the version before them may be missing
        _, validity = signed[4 if signed[0][0] == _VERSION else 3]
        kind, value = _elements(validity)[1]
        at = value.decode("ascii")
        if kind == _UTC_TIME:  # two digits for the year: 50 and above are of the last century
            at = ("19" if at[:2] >= "50" else "20") + at
    except IndexError:
        raise ValueError(f"{cert_file}: expected a whole certificate") from None
    return datetime.strptime(at, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


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
