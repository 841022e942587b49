"""Parses untrusted YAML and JSON into plain data, in time and memory proportional to its length.

YAML is limited to JSON's data model. Aliases (a few lines of them can expand to gigabytes), tags,
deep nesting and duplicate names are errors. Dates, times and base-60 numbers are strings, and
`<<` is an ordinary name.
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
# Of a YAML number: int() takes quadratic time, and rejects more than 4,300 digits.
_MAX_DIGITS = 1000
_TOO_LONG = re.compile(r"[0-9]{4301}")
# libyaml compares each such line with all earlier ones before it reports the first.
_TAG_DIRECTIVE = re.compile(r"(?:^|[\n\r\x85\u2028\u2029])%TAG")

# The words and numbers of YAML 1.1, as kubectl parses them.
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
    """The data in the file. Raises FieldError when the file can't be read, is larger than
    MAX_BYTES, or is neither YAML nor JSON."""
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
        raise FieldError(f"expected UTF-8 text, byte {error.start} is not") from None


def parse_document(text: str) -> object:
    """The data in the text: JSON if it parses as JSON, else YAML. Raises FieldError."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(
                text, object_pairs_hook=_build_object, parse_constant=_reject_constant
            )
        except json.JSONDecodeError:
            pass  # it may be YAML's flow style
        except RecursionError:
            raise FieldError("nested too deep") from None
        except FieldError:
            raise
        except ValueError:
            raise FieldError(
                f"{_line_of_long_number(text)}a number in this file is too long"
            ) from None
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
    """Adds values to the innermost open container."""

    def __init__(self) -> None:
        self._document: list[Any] = []
        self._open: list[list[Any] | dict[Any, Any]] = [self._document]
        # For each open container: the name whose value comes next, or () when a name does.
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
            raise FieldError(f"line {line}: duplicate name {str(value)[:60]!r}")
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
    """Build the data of one document. Raises FieldError and the parser's own errors."""
    builder, documents = _Builder(), 0
    for event in events:
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise FieldError(f"line {line}: tags (!) are not supported")
        match event:
            case yaml.ScalarEvent():
                builder.put(
                    _parse_plain(event.value, line) if event.implicit[0] else event.value, line
                )
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
                    raise FieldError(f"line {line}: expected one document, found another")
    return builder.document


def _parse_plain(text: str, line: int) -> object:
    """The value of a scalar without quotes."""
    if text[:1] not in _MAY_BE_NUMBER:
        return _WORDS.get(text, text)
    if match := _INTEGER.fullmatch(text):
        return _parse_integer(match, line)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    if match := _SPECIAL.fullmatch(text):
        return float(f"{match[1] or ''}{'inf' if match[2] else 'nan'}")
    return _WORDS.get(text, text)


def _parse_integer(match: re.Match[str], line: int) -> int:
    sign, *groups = match.groups()
    base, digits = next(
        (base, digits.replace("_", ""))
        for base, digits in zip(_BASES, groups, strict=True)
        if digits is not None
    )
    if not digits:
        raise FieldError(f"line {line}: {match[0][:60]!r} is not a number")
    if len(digits) > _MAX_DIGITS:
        raise FieldError(f"line {line}: a number of {len(digits)} digits is too long")
    return int(sign + digits, base)


def _line_of_long_number(text: str) -> str:
    """The likely line of the JSON number that is too long."""
    found = _TOO_LONG.search(text)
    return f"line {text.count(chr(10), 0, found.start()) + 1}: " if found else ""


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise FieldError(f"duplicate name {name[:60]!r}")
            seen.add(name)
    return found


def _reject_constant(name: str) -> None:
    raise FieldError(f"{name} is not a number; leave out unknown values")
