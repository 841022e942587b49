"""Reads untrusted, JSON-like data with errors that name the place."""

import math
from collections.abc import Iterator, Mapping
from typing import Any


class FieldError(ValueError):
    """Data that is not as expected; str() is "place: what was expected, what was there"."""


class Fields:
    """A JSON object and the path to it. Missing and null read as empty or None."""

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, Mapping):
            raise FieldError(f"{path or 'file'}: expected an object, got {_shown(data)}")
        self._data: Mapping[str, Any] = data
        self.path = path

    def at(self, name: str) -> str:
        """The path of one field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._data.get(name) is not None

    def raw(self, name: str) -> Any:
        """The field as it is."""
        return self._data.get(name)

    def only(self, *names: str) -> None:
        """Raise FieldError when there is a field that is none of these."""
        for name in self._data:
            if name not in names:
                raise FieldError(f"{self.at(str(name))}: unknown field; known: {', '.join(names)}")

    def text(self, name: str, default: str | None = None) -> str:
        """A string; required when there is no default."""
        value = self._data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise FieldError(f"{self.at(name)}: expected text, got {_shown(value)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise FieldError(f"{self.at(name)}: expected true or false, got {_shown(value)}")
        return value

    def number(self, name: str) -> float | None:
        """A finite number of 0 or more, or None when it is missing."""
        value = self._data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FieldError(f"{self.at(name)}: expected a number, got {_shown(value)}")
        if not math.isfinite(value) or value < 0:
            raise FieldError(f"{self.at(name)}: expected a finite number of 0 or more, got {value}")
        return float(value)

    def object(self, name: str) -> "Fields":
        """A nested object, empty when it is missing."""
        value = self._data.get(name)
        return Fields({} if value is None else value, self.at(name))

    def objects(self, name: str) -> Iterator["Fields"]:
        """The objects of a list, none when it is missing."""
        for i, value in enumerate(self._list(name)):
            yield Fields(value, f"{self.at(name)}[{i}]")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._list(name)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise FieldError(f"{self.at(name)}[{i}]: expected text, got {_shown(value)}")
        return tuple(values)

    def text_map(self, name: str) -> dict[str, str]:
        """An object whose values are strings."""
        inner = self.object(name)
        return {key: inner.text(key) for key in inner._data}

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values."""
        return iter(self._data.items())

    def _list(self, name: str) -> list[Any]:
        value = self._data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise FieldError(f"{self.at(name)}: expected a list, got {_shown(value)}")
        return value


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
