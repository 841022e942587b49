"""Reads a YAML or JSON file that nobody vouches for into plain data, in time and memory in
proportion to its length.

YAML is read as JSON's data: aliases (a few lines of them make gigabytes), tags and deep nesting
are refused, duplicate names too. Dates, times and numbers to the base of 60 are text, and `<<` is
an ordinary name.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from leadline_controller.parsing.fields import FieldError, shown

MAX_BYTES = 16 * 1024 * 1024
_MAX_DEPTH = 64
# Digits of a YAML number: int() takes quadratic time, and refuses more than 4,300 of them.
_MAX_DIGITS = 1000
_TOO_LONG = re.compile(r"[0-9]{4301}")
# libyaml compares each such line with all before it, before it reports the first of them.
_TAG_DIRECTIVE = re.compile(r"(?:^|[\n\r\x85\u2028\u2029])%TAG")

# The words and numbers of YAML 1.1, as kubectl reads them.
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}
_MAY_BE_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(
    r"([-+]?)(?:0b([01_]+)|0x([0-9a-fA-F_]+)|(0[0-7_]+)|(0|[1-9][0-9_]*))", re.ASCII
)
_BASES = (2, 16, 8, 10)
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?", re.ASCII
)
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(?:nan|NaN|NAN)")

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]  # the same interface


def read_document(path: Path) -> object:
    """The data in the file. Raises FieldError when it is unreadable, over MAX_BYTES, or
    neither YAML nor JSON."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FieldError(error.strerror or "cannot be read") from None
    if len(content) > MAX_BYTES:
        raise FieldError(f"expected at most {MAX_BYTES} bytes")
    try:
        return parse_document(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FieldError(f"expected UTF-8 text, byte {error.start} is none") from None


def parse_document(text: str) -> object:
    """The data in the text, JSON if it reads as JSON, else YAML. Raises FieldError."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
        except json.JSONDecodeError:
            pass  # YAML has braces too
        except RecursionError:
            raise FieldError("nested too deep") from None
        except FieldError:
            raise
        except ValueError:
            raise FieldError(f"{_place_of_number(text)}a number in this file is too long") from None
    if directive := _TAG_DIRECTIVE.search(text):
        line = len(text[: directive.end()].splitlines())
        raise FieldError(f"line {line}: tags (%TAG) are not supported")
    try:
        return _build(yaml.parse(text, Loader=_SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise FieldError(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise FieldError(f"expected YAML or JSON: {' '.join(str(error).split())}") from None


class _Builder:
    """Puts values where they belong, in the containers that are open."""

    def __init__(self) -> None:
        self._document: list[Any] = []
        self._open: list[list[Any] | dict[Any, Any]] = [self._document]
        # The name that awaits its value, one for each open container; empty where none does.
        self._names: list[tuple[()] | tuple[Any]] = [()]

    @property
    def document(self) -> object:
        return self._document[0] if self._document else None

    def put(self, value: Any, line: int) -> None:
        container, name = self._open[-1], self._names[-1]
        if isinstance(container, list):
            container.append(value)
        elif name:
            container[name[0]] = value
            self._names[-1] = ()
        elif isinstance(value, list | dict):
            raise FieldError(f"line {line}: expected a name, got {shown(value)}")
        elif value in container:
            raise FieldError(f"line {line}: {str(value)[:60]!r} comes twice")
        else:
            self._names[-1] = (value,)

    def begin(self, container: list[Any] | dict[Any, Any], line: int) -> None:
        if len(self._open) > _MAX_DEPTH:
            raise FieldError(f"line {line}: nested too deep")
        self.put(container, line)
        self._open.append(container)
        self._names.append(())

    def end(self) -> None:
        del self._open[-1], self._names[-1]


def _build(events: Iterable[Any]) -> object:
    """What the events of one document make. Raises FieldError, and what the parser raises."""
    builder, documents = _Builder(), 0
    for event in events:
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise FieldError(f"line {line}: tags (!) are not supported")
        match event:
            case yaml.ScalarEvent():
                builder.put(_plain(event.value, line) if event.implicit[0] else event.value, line)
            case yaml.MappingStartEvent():
                builder.begin({}, line)
            case yaml.SequenceStartEvent():
                builder.begin([], line)
            case yaml.CollectionEndEvent():
                builder.end()
            case yaml.AliasEvent():
                raise FieldError(f"line {line}: aliases (*) are not supported")
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise FieldError(f"line {line}: but found another document")
    return builder.document


def _plain(text: str, line: int) -> object:
    """What a scalar without quotes stands for."""
    if text[:1] not in _MAY_BE_NUMBER:
        return _WORDS.get(text, text)
    if match := _INTEGER.fullmatch(text):
        return _integer(match, line)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    if match := _SPECIAL.fullmatch(text):
        return float(f"{match[1] or ''}{'inf' if match[2] else 'nan'}")
    return _WORDS.get(text, text)


def _integer(match: re.Match[str], line: int) -> int:
    sign, *groups = match.groups()
    base, digits = next(
        (base, digits.replace("_", ""))
        for base, digits in zip(_BASES, groups, strict=True)
        if digits is not None
    )
    if not digits:
        raise FieldError(f"line {line}: {match[0][:60]!r} is no number")
    if len(digits) > _MAX_DIGITS:
        raise FieldError(f"line {line}: a number of {len(digits)} digits is too long")
    return int(sign + digits, base)


def _place_of_number(text: str) -> str:
    """Where a JSON number that is too long most likely stands."""
    found = _TOO_LONG.search(text)
    return f"line {text.count(chr(10), 0, found.start()) + 1}: " if found else ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise FieldError(f"{name[:60]!r} comes twice in one object")
            seen.add(name)
    return found


def _refuse_constant(name: str) -> None:
    raise FieldError(f"{name} is no number; leave out what is unknown")
