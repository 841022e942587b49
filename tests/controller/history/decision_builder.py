"""A machine whose clocks a test sets, and the decisions that it records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from leadline_controller.framework.cycle import Decision
from leadline_controller.framework.model import Pod
from leadline_controller.history.explanation import Explanation, encode
from leadline_controller.history.record import DecisionRecord
from leadline_controller.history.store import HistorySettings, Slices, Store
from leadline_controller.history.times import Moment

Result = TypeVar("Result")
UNIX_S = 1_800_000_000.0


@dataclass
class Machine:
    """now() is what its clocks say. unix_s None: the wall clock was never set."""

    boot: str = "boot-1"
    up_s: float = 1000.0
    unix_s: float | None = UNIX_S

    def now(self) -> Moment:
        """The clocks, and so the moment of what happens now."""
        started_unix_s = None if self.unix_s is None else self.unix_s - self.up_s
        return Moment(self.boot, self.up_s, started_unix_s)

    def store(self, path: Path | None = None, max_mb: int = 1, max_age_days: float = 90) -> Store:
        """A store with this machine's clocks."""
        return Store(HistorySettings(path, max_mb, max_age_days), self.now)

    def wait(self, seconds: float) -> None:
        self.up_s += seconds
        if self.unix_s is not None:
            self.unix_s += seconds

    def reboot(self, boot: str, off_s: float = 60.0) -> None:
        """Switched off for a while; the clock goes on."""
        self.boot, self.up_s = boot, 10.0
        if self.unix_s is not None:
            self.unix_s += off_s

    def record(self, name: str, node: str | None = "n1", **changed: Any) -> DecisionRecord:
        """A decision made just now."""
        record = DecisionRecord(
            pod=f"default/{name}",
            uid=f"uid-{name}",
            node=node,
            why="because",
            strategy="netsched",
            better="higher",
            options={"cpu": 3.0},
            outcome="pending",
            first=self.now(),
            last=self.now(),
            explanation=encode(Explanation()),
        )
        return record._replace(**changed)


def ended(slices: Slices[Result]) -> Result:
    """The result of a query, without anything between its slices."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: Result = end.value
            return result


def decision(name: str, node: str | None = "n1") -> Decision:
    return Decision(Pod("default", name, uid=f"uid-{name}"), node, "because", "netsched", "higher")


def name_of(record: DecisionRecord) -> str:
    return record.pod.removeprefix("default/")


def names(store: Store) -> list[str]:
    """The pods of all decisions, the oldest first."""
    rows = [record for records in store.newest_first() for record in records]
    return [record.pod.removeprefix("default/") for record in reversed(rows)]
