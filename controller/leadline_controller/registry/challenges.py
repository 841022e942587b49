"""Reads the header WWW-Authenticate: which logins a registry offers. RFC 9110, 11.6.1. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_MAX_CHARS = 2**13  # of one header
_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]"
# A parameter, or a word alone, or a text that belongs to nothing.
_PART = re.compile(
    rf'(?<!{_WORD})(?:({_WORD}++)\s*+=\s*+(?:{_QUOTED}|([^\s,"]++))|({_WORD}++)(?![^\s,]))|{_QUOTED}'
)
# containerd answers no other schemes, and prefers them in this order.
_SCHEMES = ("bearer", "basic")


class Challenge(NamedTuple):
    """scheme and the names of its parameters are in lower case."""

    scheme: str
    parameters: Mapping[str, str]


def challenges(headers: Iterable[str]) -> list[Challenge]:
    """The challenges that can be answered, the preferred one first.

    headers: the values of all headers of this name. Each may have several challenges, with commas
    between them and between their parameters, so a word alone begins a challenge. (It may be the
    token68 of the one before, such as Negotiate has; no scheme that is known here has one.) A value
    without quotes may have any character but space and comma, because a realm has "/". What cannot
    be read is left out.
    """
    found: list[Challenge] = []
    for header in headers:
        parameters: dict[str, str] = {}
        for name, quoted, plain, scheme, _ in _PART.findall(header[:_MAX_CHARS]):
            if scheme:
                parameters = {}
                found.append(Challenge(scheme.lower(), parameters))
            elif name:
                parameters.setdefault(name.lower(), plain or re.sub(r"\\(.)", r"\1", quoted))
    known = [each for each in found if each.scheme in _SCHEMES]
    return sorted(known, key=lambda each: _SCHEMES.index(each.scheme))
