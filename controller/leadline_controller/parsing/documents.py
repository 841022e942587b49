"""Parses untrusted YAML, JSON and TOML into plain data, in time and memory proportional to its
length. Every error is one line.

YAML is limited to JSON's data model. Aliases (a few lines of them can expand to gigabytes), tags,
deep nesting and duplicate names are errors. Dates, times and base-60 numbers are strings, and
`<<` is an ordinary name.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from leadline_controller.parsing.fields import FieldError

MAX_BYTES = 16 * 1024 * 1024
_BYTE_ORDER_MARK = "\ufeff"  # with which editors of Windows begin a file
_MAX_DEPTH = 64
# Of a YAML number: int() takes quadratic time, and rejects more than 4,300 digits.
_MAX_DIGITS = 1000
# A number with more digits than int() accepts; Python's own message advises to change Python.
_TOO_LONG = re.compile(r"[0-9][0-9_]{4300}")
_MAX_TOML_ERROR = 200  # the parser's message may quote the file
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
_BASES = {2: 2, 3: 16, 4: 8, 5: 10}  # by the group of _INTEGER that has the digits
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?", re.ASCII
)
_TAGS = {f"tag:yaml.org,2002:{each}" for each in ("str", "int", "float", "bool", "map", "seq")}
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(?:nan|NaN|NAN)")

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]  # the same interface


def read_document(path: Path | None, most: int = MAX_BYTES) -> object:
    """The data in the file, of standard input without one. Raises FieldError when it can't be read,
    has more than `most` bytes, or is neither YAML nor JSON."""
    return parse_document(read_text(path, most))


def read_text(path: Path | None, most: int = MAX_BYTES) -> str:
    """The file, or standard input without one, without a byte order mark. Raises FieldError when it
    can't be read, has more than `most` bytes, or is not UTF-8."""
    try:
        # Not /dev/stdin, which can't be opened where it is a socket.
        with path.open("rb") if path else open(0, "rb", closefd=False) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise FieldError(error.strerror or "cannot be read") from None
    if len(content) > most:
        raise FieldError(f"expected at most {most} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FieldError(f"expected UTF-8 text, byte {error.start} is not") from None


def parse_document(text: str) -> object:
    """The data in the text: JSON if it parses as JSON, else YAML. Raises FieldError."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
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
            where = _place_of_long_number(text, "line {}: ")
            raise FieldError(f"{where}a number in this file is too long") from None
    return _parse_yaml(text, None)


def parse_texts(text: str) -> object:
    """The data in YAML of which every scalar is a text, or nothing: what Go reads into fields of
    text, where a password of 0123 stays 0123. As there, the first document counts, tags of YAML's
    own types change nothing, and aliases and << mean what they stand for, so this is for files of
    those who run the controller. Raises FieldError, which quotes no value."""
    return _parse_yaml(text, {})


def _parse_yaml(text: str, anchors: dict[str, Any] | None) -> object:
    if directive := _TAG_DIRECTIVE.search(text):
        line = len(text[: directive.end()].splitlines())
        raise FieldError(f"line {line}: tags (%TAG) are not supported")
    try:
        return _build(yaml.parse(text, Loader=_SafeLoader), anchors)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise FieldError(f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise FieldError(f"expected YAML or JSON: {' '.join(str(error).split())}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables in the text. Raises FieldError."""
    try:
        return tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
    except tomllib.TOMLDecodeError as error:
        raise FieldError(str(error)[:_MAX_TOML_ERROR]) from None
    except RecursionError:
        raise FieldError("nested too deep") from None
    except ValueError:
        where = _place_of_long_number(text, " (at line {})")
        raise FieldError(f"a number is too long{where}") from None


def _build(events: Iterator[Any], anchors: dict[str, Any] | None) -> object:
    """The data of one document; anchors: see _value. Raises FieldError and the parser's errors."""
    documents: list[object] = []
    for event in events:
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent() if documents and anchors is not None:
                break  # as Go does, which reads the first
            case yaml.DocumentStartEvent() if documents:
                raise FieldError(f"line {line}: expected one document, found another")
            case yaml.NodeEvent():
                documents.append(_value(event, events, 0, anchors))
    return documents[0] if documents else None


def _value(event: Any, events: Iterator[Any], depth: int, anchors: dict[str, Any] | None) -> Any:
    """The value that begins with this event; takes its other events. anchors: what aliases stand
    for, where these are allowed and scalars are texts."""
    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent):
        if anchors is None or event.anchor not in anchors:
            what = "are not supported" if anchors is None else "must stand for an earlier value"
            raise FieldError(f"line {line}: aliases (*) {what}")
        return anchors[event.anchor]
    if event.tag is not None and (anchors is None or event.tag not in _TAGS):
        raise FieldError(f"line {line}: tags (!) are not supported")
    value: Any
    if isinstance(event, yaml.ScalarEvent):
        value = _scalar(event, line, is_text=anchors is not None)
    elif depth >= _MAX_DEPTH:
        raise FieldError(f"line {line}: nested too deep")
    elif isinstance(event, yaml.SequenceStartEvent):
        value = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            each = _value(item, events, depth + 1, anchors)
            value.append("" if each is None and anchors is not None else each)
    else:
        value = _object(events, depth, anchors)
    if anchors is not None and event.anchor is not None:
        anchors[event.anchor] = value
    return value


def _object(events: Iterator[Any], depth: int, anchors: dict[str, Any] | None) -> dict[Any, Any]:
    """The object whose names and values come next; takes its end as well."""
    found: dict[Any, Any] = {}
    merged: list[Any] = []
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            kind = "a list" if isinstance(event, yaml.SequenceStartEvent) else "an object"
            raise FieldError(f"line {line}: expected a name, got {kind}")
        name = _value(event, events, depth + 1, anchors)
        if name in found:
            raise FieldError(f"line {line}: duplicate name {str(name)[:60]!r}")
        value = _value(next(events), events, depth + 1, anchors)
        if anchors is None or name != "<<":
            found[name] = value
            continue
        merged += value if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in merged):
            raise FieldError(f"line {line}: << expects an object")
    for other in merged:  # an object's own fields count more, then the first's
        found = {**other, **found}
    return found


def _scalar(event: Any, line: int, is_text: bool) -> object:
    if not event.implicit[0]:
        return event.value
    if is_text:
        return None if _WORDS.get(event.value, "") is None else event.value
    return _parse_plain(event.value, line)


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
    group = match.lastindex or 1
    digits = match[group].replace("_", "")
    if not digits:
        raise FieldError(f"line {line}: {match[0][:60]!r} is not a number")
    if len(digits) > _MAX_DIGITS:
        raise FieldError(f"line {line}: a number of {len(digits)} digits is too long")
    return int(match[1] + digits, _BASES[group])


def _place_of_long_number(text: str, place: str) -> str:
    """The likely line of the number that is too long, in `place`; empty if it is not found."""
    found = _TOO_LONG.search(text)
    return place.format(text.count("\n", 0, found.start()) + 1) if found else ""


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        times = Counter(name for name, _ in pairs)
        repeated = next(name for name in times if times[name] > 1)
        raise FieldError(f"duplicate name {repeated[:60]!r}")
    return found


def _reject_constant(name: str) -> None:
    raise FieldError(f"{name} is not a number; leave out unknown values")
