"""What a collector is, and the registry of all of them (node_exporter's registerCollector)."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb


class AbsentError(Exception):
    """The board has no such hardware; reading again will not change that."""


class TransientError(Exception):
    """What matters could not be read this time; the next reading may succeed.

    report: what could be read all the same.
    """

    def __init__(self, why: str, report: pb.Report | None = None) -> None:
        super().__init__(why)
        self.report = report or pb.Report()


class Collector(Protocol):
    """Reads one aspect of the board.

    Rates are since the previous call; the first call has none.
    """

    def collect(self) -> pb.Report:
        """A report with this collector's field, in which what is unknown is unset, never zero.

        One value that cannot be read is unset; `leadline_agent.files` reads them so. Raises
        AbsentError; TransientError or any other exception is a failure of this run.
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
    """The rate of a counter; None (unknown) after a reset, where no time has passed, and where no
    hardware is so fast."""
    if elapsed_ms <= 0 or after < before:
        return None
    rate = (after - before) * 1000 / elapsed_ms
    return rate if rate <= codec.MOST_PER_S else None
