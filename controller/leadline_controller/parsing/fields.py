"""Reads the fields of untrusted JSON-like data; errors name the field and what was found."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T", bound=str)

_LARGEST = sys.float_info.max
# JSON and YAML can express a lone surrogate; no encoding, database or protobuf accepts it.
_SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of each lone surrogate."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class FieldError(ValueError):
    """Invalid data; str() is "field: what was expected, what was found"."""


class Fields:
    """A JSON object and its path. A missing field and null read as empty or None."""

    __slots__ = ("_name", "_parent", "data")

    def __init__(self, data: object, path: str, parent: "Fields | None" = None) -> None:
        """parent: the object that has this one at `path`. Full paths are only built for errors,
        because this is called for every object of every pod."""
        self._name, self._parent = path, parent
        if type(data) is not dict and not isinstance(data, Mapping):
            raise FieldError(f"{self.path or 'file'}: expected an object, got {shown(data)}")
        if data and not _are_valid(data):
            name = next(each for each in data if not isinstance(each, str) or not _is_valid(each))
            expected = _UNICODE if isinstance(name, str) else "names in text"
            raise FieldError(f"{self.path or 'file'}: expected {expected}, got {shown(name)}")
        self.data: Mapping[str, Any] = data

    @property
    def path(self) -> str:
        """The full path, for error messages."""
        return self._name if self._parent is None else self._parent.at(self._name)

    def at(self, name: str) -> str:
        """The full path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self.data.get(name) is not None

    def raw(self, name: str) -> Any:
        """The field without any check."""
        return self.data.get(name)

    def error(self, name: str, expected: str) -> FieldError:
        """The error to raise for a field with an unexpected value."""
        return FieldError(f"{self.at(name)}: expected {expected}, got {shown(self.raw(name))}")

    def only(self, *names: str) -> None:
        """Raise FieldError if the object has any other field."""
        for name in self.data:
            if name not in names:
                where = self.at(name[:_MAX_SHOWN_CHARS])
                raise FieldError(f"{where}: unknown field; known: {', '.join(names)}")

    def text(self, name: str, default: str | None = None) -> str:
        """A string; required if there is no default."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not _is_valid(value):
            raise self.error(name, _UNICODE if isinstance(value, str) else "text")
        return value

    def name(self, name: str, default: str | None = None) -> str:
        """A Kubernetes name or uid: as `text`, without control characters."""
        value = self.text(name, default)
        if not value.isprintable():
            raise self.error(name, "a name without control characters")
        return value

    def choice(self, name: str, *allowed: T, default: T | None = None) -> T:
        """One of these words; required if there is no default."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        for word in allowed:
            if value == word:
                return word
        words = " or ".join(allowed) if len(allowed) < 3 else f"one of {', '.join(allowed)}"
        raise self.error(name, words)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def number(self, name: str, highest: float = _LARGEST) -> float | None:
        """A finite number of 0 or more; None when it is missing."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, "a number")
        if not 0 <= value <= highest:
            limit = "0 or more" if highest == _LARGEST else f"0 to {highest:g}"
            raise self.error(name, f"a finite number of {limit}")
        return float(value)

    def integer(self, name: str, lowest: int, highest: int) -> int | None:
        """An integer in this range; None when it is missing."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self.error(name, f"a whole number from {lowest} to {highest}")
        return value

    def object(self, name: str) -> "Fields":
        """A nested object, empty when it is missing."""
        value = self.data.get(name)
        return Fields({} if value is None else value, name, self)

    def objects(self, name: str) -> Iterator["Fields"]:
        """The objects in a list; none when it is missing."""
        if self.data.get(name) is None:
            return iter(())
        return (Fields(each, f"{name}[{i}]", self) for i, each in enumerate(self._list(name)))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._list(name)
        for i, value in enumerate(values):
            if not isinstance(value, str) or not _is_valid(value):
                expected = _UNICODE if isinstance(value, str) else "text"
                raise FieldError(f"{self.at(name)}[{i}]: expected {expected}, got {shown(value)}")
        return tuple(values)

    def text_map(self, name: str) -> dict[str, str]:
        """An object whose values are strings."""
        inner = self.object(name)
        return {key: inner.text(key) for key in inner.data}

    def _list(self, name: str) -> list[Any]:
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(name, "a list")
        return value


_MAX_SHOWN_CHARS = 60
_UNICODE = "valid Unicode text"


def _is_valid(text: str) -> bool:
    return text.isascii() or _SURROGATE.search(text) is None


def _are_valid(names: Iterable[object]) -> bool:
    """Whether all are valid texts. One look at all of them together is enough but for Unicode."""
    try:
        return _is_valid("\0".join(names))  # type: ignore[arg-type]  # tells by its TypeError
    except TypeError:
        return False


def quoted(value: object) -> str:
    """As `shown`, but a string without the word 'text'."""
    return repr(value[:_MAX_SHOWN_CHARS]) if isinstance(value, str) else shown(value)


def shown(value: object) -> str:
    """Any value for an error message: short and on one line."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return f"text {value[:_MAX_SHOWN_CHARS]!r}"
        case int() if abs(value) >= 10**_MAX_SHOWN_CHARS:
            return "a huge number"  # Python can't print some of them
        case int() | float():
            return str(value)
        case list():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"{type(value).__name__} {str(value)[:_MAX_SHOWN_CHARS]!r}"
