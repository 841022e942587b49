"""The daemon's log: one line a record, without tracebacks, and at a limited rate.

Agents and clients decide what fails and how often, so they must not be able to flood the log.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_FORMAT = "%(levelname)s %(name)s: %(message)s"
_LONGEST = 2000
_MOST_KEYS = 256
_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")


class RateLimitFilter(logging.Filter):
    """Passes at most `at_most` records of one template, and six times as many of one logger, in
    `per_s` seconds. The first record of the next period has the number of those left out."""

    def __init__(
        self, at_most: int = 10, per_s: float = 60.0, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._at_most = at_most
        self._per_s = per_s
        self._now_s = now_s
        # (logger, template) -> start of its period, and its number of records
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record, which becomes one line."""
        own = self._count((record.name, _template(record)), self._at_most)
        if own is None:
            return False
        loggers = self._count((record.name, ""), 6 * self._at_most)
        if loggers is None:
            return False
        record.msg, record.args = _one_line(record) + (own or loggers), None
        record.exc_info = record.exc_text = record.stack_info = None
        return True

    def _count(self, key: tuple[str, str], at_most: int) -> str | None:
        """The text to add to the line. None if the record must not be written."""
        now_s = self._now_s()
        start_s, count = self._counts.pop(key, (now_s, 0))
        left_out = 0
        if now_s - start_s >= self._per_s:
            start_s, count, left_out = now_s, 0, max(0, count - at_most)
        if len(self._counts) >= _MOST_KEYS:
            del self._counts[next(iter(self._counts))]  # the least recently used
        self._counts[key] = (start_s, count + 1)
        if count >= at_most:
            return None
        if left_out:
            return f" ({left_out} like it were left out)"
        if count + 1 == at_most:
            return f" (more like it are left out for {self._per_s - (now_s - start_s):.0f} s)"
        return ""


class ErrorLog:
    """The errors of work that is tried again and again: each is logged once, until another one
    comes or the work succeeds."""

    def __init__(self, log: logging.Logger, level: int = logging.ERROR) -> None:
        self._log = log
        self._level = level
        self.last = ""  # the error that was logged last; "" after a success

    def failed(self, error: Exception | str, message: str, *args: object) -> None:
        """Log `message` % (*args, error), unless the same error was logged last."""
        text = error if isinstance(error, str) else repr(error)
        if text != self.last:
            self.last = text
            self._log.log(self._level, message, *args, text)

    def succeeded(self) -> None:
        """Log the next error, also if it is the same."""
        self.last = ""

    @contextmanager
    def logged(self, message: str, *args: object) -> Iterator[None]:
        """Runs a turn of the work, whose error ends neither the work nor goes beyond the log."""
        try:
            yield
            self.succeeded()
        except Exception as error:  # noqa: BLE001  # the next turn may succeed
            self.failed(error, message, *args)


def set_up(level: int = logging.INFO) -> None:
    """Log to standard error from this level on. The rate is not limited at DEBUG."""
    handler = logging.StreamHandler()
    if level > logging.DEBUG:
        handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=level, format=_FORMAT, handlers=[handler])


def _template(record: logging.LogRecord) -> str:
    """What repeated records have in common, also if their message is already formatted."""
    return _NUMBER.sub("#", str(record.msg)[:_LONGEST].partition("\n")[0])


def _one_line(record: logging.LogRecord) -> str:
    """The message with its exception, if there is one, without the traceback."""
    try:
        message = record.getMessage()
    except (TypeError, ValueError):
        message = str(record.msg)
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    if error is not None and repr(error) not in message:
        message += f": {error!r}"
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
