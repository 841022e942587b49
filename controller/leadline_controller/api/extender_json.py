"""Parses JSON in windows of bounded length, so that parsing can be stopped.

Python's own decoder parses a whole value at once, and no other thread runs meanwhile. Here it gets
windows of bounded length: a longer value is parsed member by member. The text is not copied as a
whole, and the caller knows from which bytes each value came.
"""

import json
import re
from codecs import iterdecode
from collections.abc import Callable, Iterator
from typing import Any

# Takes 3 ms at 100 MB/s.
WINDOW_BYTES = 256 * 1024
# The API server accepts no longer object.
MAX_OBJECT_BYTES = 3 * 1024 * 1024
# The nesting depth of values that are longer than a window.
_MAX_DEPTH = 24
_NAME_BYTES = 64 * 1024
_SPACE = re.compile(r"[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
# Half of a UTF-16 surrogate pair; Go writes none.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class StoppedError(Exception):
    """The caller stopped the parsing."""


class Cursor:
    """A position in JSON text. Raises UnicodeDecodeError, JSONDecodeError with the position in
    bytes, ValueError or RecursionError for malformed text, also in skipped values, and
    StoppedError once `stopped()` is true."""

    def __init__(self, body: bytes | bytearray, stopped: Callable[[], bool]) -> None:
        self._body = body
        self._stopped = stopped
        _check_utf8(body)
        decoder = json.JSONDecoder(parse_constant=_no_number)
        self._decode = decoder.raw_decode
        # What raw_decode calls itself, without what it adds to errors.
        self._scan: Callable[[str, int], tuple[Any, int]]
        self._scan = decoder.scan_once  # type: ignore[attr-defined]  # typeshed leaves it out
        self._start = 0
        self._window = ""
        self._place = 0  # in the window
        self._plain = True
        self._open(0, WINDOW_BYTES)

    @property
    def at(self) -> int:
        """The position, in bytes from the beginning."""
        return self._start + self._place

    def value(self, max_bytes: int = MAX_OBJECT_BYTES) -> Any:
        """Parse the value here. Raises ValueError if it is longer than `max_bytes`."""
        self._skip_space()
        return self._value(self.at + max_bytes, _MAX_DEPTH)

    def members(self) -> Iterator[str]:
        """Iterate over the keys of the object here; the caller must parse each value."""
        for _ in self._parts("{", "}"):
            self._skip_space()
            key = self._value(self.at + _NAME_BYTES, depth=0)
            if not isinstance(key, str):
                raise self.error("expected a key")
            self._take(":")
            yield key

    def elements(self) -> Iterator[int]:
        """Iterate over the positions of the list's elements; the caller must parse each one."""
        for _ in self._parts("[", "]"):
            self._skip_space()
            yield self.at

    def skipped_null(self) -> bool:
        """Skip a null, if there is one here. Returns whether there was."""
        self._skip_space()
        self._need(len("null"))
        if not self._window.startswith("null", self._place):
            return False
        self._place += len("null")
        return True

    def skipped(self, value: bytes) -> bool:
        """Skip this text of an object, if it is here. Returns whether it was."""
        self._skip_space()
        found = bool(value) and self._body.startswith(value, self.at)
        if found:
            self._open(self.at + len(value), WINDOW_BYTES)
        return found

    def end(self) -> None:
        """Raise JSONDecodeError unless this is the end of the text."""
        self._skip_space()
        if self.at < len(self._body):
            raise self.error("expected the end")

    def error(self, what: str) -> json.JSONDecodeError:
        """The error to raise when the text is not as expected here."""
        error = json.JSONDecodeError(what, "", 0)
        error.pos = self.at
        return error

    def _value(self, limit: int, depth: int) -> Any:
        """Parse the value here, which must end before the byte `limit`."""
        if self._stopped():
            raise StoppedError
        self._need(1)
        try:
            value = self._decoded(WINDOW_BYTES)
        except _TooLongError:
            value = self._long_value(limit, depth)
        if self.at > limit:
            raise _too_long(self.at)
        return value

    def _long_value(self, limit: int, depth: int) -> Any:
        """Parse a value that is longer than a window."""
        first = self._window[self._place]
        if first not in "[{":
            try:
                value = self._decoded(limit + 1 - self.at)
            except _TooLongError:
                raise _too_long(limit) from None
            self._open(self.at, WINDOW_BYTES)
            return value
        if not depth:
            raise RecursionError
        values: list[Any] = []
        if first == "[":
            for _ in self.elements():
                values.append(self._value(limit, depth - 1))
                self._take_plain(values)
            return values
        keys: list[str] = []
        for key in self.members():
            self._skip_space()
            keys.append(key)
            values.append(self._value(limit, depth - 1))
            self._take_plain(values, keys)
        return dict(zip(keys, values, strict=True))

    def _take_plain(self, values: list[Any], keys: list[str] | None = None) -> None:
        """Parse the next elements, or with `keys` members, that end in the window, as far as they
        are plain. This takes a tenth of the time for many small ones."""
        if not self._plain:
            return
        window, place, scan = self._window, self._place, self._scan
        key: Any = None
        try:
            while comma := _COMMA.match(window, place):
                end = comma.end()
                if keys is not None:
                    if not window.startswith('"', end):
                        break
                    key, end = scan(window, end)
                    if not (colon := _COLON.match(window, end)):
                        break
                    end = colon.end()
                value, end = scan(window, end)
                if end + 2 >= len(window):
                    break
                values.append(value)
                if keys is not None:
                    keys.append(key)
                place = end
        except (StopIteration, json.JSONDecodeError):
            pass  # it ends in the next window, or not at all
        self._place = place

    def _decoded(self, max_bytes: int) -> Any:
        """Parse the value here with Python's decoder. Raises _TooLongError if it may be longer
        than `max_bytes`."""
        while True:
            whole = self._start + len(self._window) >= len(self._body)
            try:
                value, end = self._decode(self._window, self._place)
            except json.JSONDecodeError as error:
                if whole:
                    error.pos += self._start
                    raise
            else:
                # A number may continue after the window, as a 1 that is cut off before .5 or e+5.
                if whole or end + 2 < len(self._window):
                    value = self._checked(value, end)
                    self._place = end
                    return value
            if self._place == 0 and len(self._window) >= max_bytes:
                raise _TooLongError
            self._open(self.at, max_bytes)

    def _checked(self, value: Any, end: int) -> Any:
        """The value with its texts decoded; the characters of the window are bytes."""
        if self._plain:
            return value
        start, window = self._place, self._window
        if not window.isascii() and not (text := window[start:end]).isascii():
            value, _ = self._decode(text.encode("latin-1").decode())
        if _SURROGATE.search(window, start, end):
            text = json.dumps(value, ensure_ascii=False)
            value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return value

    def _open(self, at: int, size: int) -> None:
        """Move the window. Each byte becomes one character, so that positions stay the same."""
        self._window = self._body[at : at + size].decode("latin-1")
        self._start, self._place = at, 0
        # Whether Python's decoder needs no help with this window.
        self._plain = self._window.isascii() and not _SURROGATE.search(self._window)

    def _need(self, count: int) -> None:
        """Have so many characters in the window, unless the text ends before."""
        if self._place + count > len(self._window) and self._start + len(self._window) < len(
            self._body
        ):
            self._open(self.at, WINDOW_BYTES)

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self._took(closing):
            return
        while True:
            yield
            if self._took(closing):
                return
            self._take(",")

    def _take(self, char: str) -> None:
        if not self._took(char):
            raise self.error(f"expected {char!r}")

    def _took(self, char: str) -> bool:
        self._skip_space()
        found = self._window.startswith(char, self._place)
        self._place += found
        return found

    def _skip_space(self) -> None:
        while True:
            self._need(1)
            space = _SPACE.match(self._window, self._place)
            assert space is not None  # noqa: S101  # it also matches nothing
            self._place = space.end()
            if self._place < len(self._window) or self.at >= len(self._body):
                return
            if self._stopped():
                raise StoppedError


def _check_utf8(body: bytes | bytearray) -> None:
    """Raises UnicodeDecodeError. Decodes in windows, to need no copy of the whole."""
    if body.isascii():
        return
    windows = (bytes(body[at : at + WINDOW_BYTES]) for at in range(0, len(body), WINDOW_BYTES))
    try:
        for _ in iterdecode(windows, "utf-8"):
            pass
    except UnicodeDecodeError:
        body.decode()  # its error has the position in the whole


class _TooLongError(Exception):
    """A value that does not end within the window."""


def _too_long(at: int) -> ValueError:
    return ValueError(f"at byte {at} a value is longer than any object in Kubernetes")


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")
