"""Decodes untrusted data into types, by msgspec: Structs that name just the fields that are needed,
so that nothing is made of the others.

Nulls read as missing, and half of a surrogate pair as U+FFFD, as Go reads them. msgspec refuses
both, and its errors name neither the keys of maps nor values. So what it refuses is looked at once
more, slowly, to read it or to say where which value is and what was expected.
"""

import json
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from leadline_controller.parsing.fields import FieldError, replace_surrogates, shown

T = TypeVar("T")
_UNIONS = (Union, UnionType)
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}  # by type
_PEOPLE_SAY: dict[Any, str] = {
    **{str: "text", bool: "true or false", int: "a whole number", float: "a number"},
    **{type(None): "", list: "a list", tuple: "a list", frozenset: "a list"},
}


def decode(data: Any, kind: type[T], path: str) -> T:
    """The data as this type. data: JSON as bytes, or what was read from JSON, YAML or TOML. path:
    of the data, for errors. Raises FieldError."""
    is_json = isinstance(data, bytes | msgspec.Raw)
    decoder = _DECODERS.get(kind) or _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        return cast(T, decoder.decode(data)) if is_json else msgspec.convert(data, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        again = plain(data, path)
    try:
        if is_json:
            return cast(T, decoder.decode(json.dumps(again)))
        return msgspec.convert(again, kind)
    except msgspec.MsgspecError as error:
        raise FieldError(_problem(again, kind, path) or f"{path or 'file'}: {error}") from None


def plain(data: object, path: str) -> Any:
    """The data as dictionaries and lists, without nulls in dictionaries. Raises FieldError."""
    try:
        if isinstance(data, bytes | msgspec.Raw):
            data = json.loads(bytes(data).decode(), parse_constant=_no_number)
        return _as_go_reads(data)
    except RecursionError:
        raise FieldError(f"{path or 'file'}: nested too deep") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number that is too long
        raise FieldError(f"{path or 'file'}: expected JSON: {str(error)[:200]}") from None


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _as_go_reads(data: object) -> object:
    if isinstance(data, str):
        return replace_surrogates(data)
    if isinstance(data, Mapping):
        return {_as_go_reads(k): _as_go_reads(v) for k, v in data.items() if v is not None}
    return [_as_go_reads(each) for each in data] if isinstance(data, list | tuple) else data


def _problem(data: Any, kind: Any, path: str) -> str | None:
    """What is wrong with the first part of the data that is not of this type."""
    if kind is msgspec.Raw:
        return None
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError:
        for name in data if isinstance(data, dict) else ():
            if not isinstance(name, str):
                return f"{path or 'file'}: expected names in text, got {shown(name)}"
        kinds = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
        problems = (_problem(*part) for each in kinds for part in _parts(data, each, path))
        expected = f"{path or 'file'}: expected {_described(kind)}, got {shown(data)}"
        return next(filter(None, problems), expected)
    return None


def _parts(data: Any, kind: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """The parts of an object or a list, each with its type and path."""
    origin = get_origin(kind) or kind
    if isinstance(data, dict) and origin is dict:
        yield from ((data[name], get_args(kind)[1], _at(path, name)) for name in data)
    elif isinstance(data, dict) and hasattr(origin, "__struct_fields__"):
        for field in msgspec.structs.fields(kind):
            if field.required or field.encode_name in data:
                name = field.encode_name
                yield data.get(name), field.type, _at(path, name)
    elif isinstance(data, list) and origin in (list, tuple, frozenset):
        yield from ((each, get_args(kind)[0], f"{path}[{i}]") for i, each in enumerate(data))


def _described(kind: Any) -> str:
    """The type as people say it: by its description, if it has one."""
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        bare, meta = arguments
        if meta.description is None and bare is int:
            return f"a whole number from {meta.ge} to {meta.le}"
        return str(meta.description or _described(bare))
    if origin in _UNIONS:
        return " or ".join(filter(None, dict.fromkeys(map(_described, arguments))))
    if origin is Literal:
        words = [word for word in arguments if word]
        return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"
    return _PEOPLE_SAY.get(origin, "an object")


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
