"""What a collector is, and the registry of all of them (node_exporter's registerCollector)."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from leadline_wire.v1 import telemetry_pb2 as pb


class AbsentError(Exception):
    """The board has no such hardware; reading again will not change that."""


class TransientError(Exception):
    """The value could not be read this time; the next reading may succeed."""


class Collector(Protocol):
    """Reads one aspect of the board.

    Rates are since the previous call; the first call has none.
    """

    def collect(self) -> pb.Report:
        """A report with this collector's field, in which what is unknown is unset, never zero.

        Raises AbsentError; any other exception is a failure of this run.
        """


CollectorFactory = Callable[[Path], Collector]
CollectorClass = TypeVar("CollectorClass", bound=CollectorFactory)
COLLECTORS: dict[str, CollectorFactory] = {}


def register(name: str) -> Callable[[CollectorClass], CollectorClass]:
    """Class decorator: add a collector to COLLECTORS. Its constructor takes the root of sysfs."""

    def add(collector: CollectorClass) -> CollectorClass:
        COLLECTORS[name] = collector
        return collector

    return add


def per_second(before: int, after: int, elapsed_ms: int) -> float | None:
    """The rate of a counter; None (unknown) after a reset and where no time has passed."""
    if elapsed_ms <= 0 or after < before:
        return None
    return (after - before) * 1000 / elapsed_ms
