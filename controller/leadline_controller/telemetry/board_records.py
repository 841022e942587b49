"""Whose messages are kept: each node of the cluster has a record. Other names, which anybody could
invent, share a bounded number of records: when these are used up, new names get none; a name that
is silent for ten minutes loses its record."""

from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from leadline_controller.telemetry.absences import Heard
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.board_columns import BoardColumns
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.sequence import SequenceTracker, Stamp

# Limit while the nodes of the cluster are not known.
_MAX_NODES = 20_000
# Limit on agents outside the cluster. Without an ACL at the broker, names can be invented.
_MAX_NON_MEMBERS = 256
_MAX_SILENCE_S = 600.0
_CLEAN_EVERY_S = 10.0


@dataclass(slots=True)
class BoardRecord:
    """What one board's agent said last."""

    slot: int  # its row of the columns
    agent: Agent
    board: BoardReading | None = None
    board_at_s: float = -np.inf
    gap_s: float = np.inf  # from the report before the newest one
    clock_ahead_s: float | None = None
    birth_session: tuple[bytes, int] | None = None
    last_seen_s: float = -np.inf
    heard: Heard = field(default_factory=Heard)  # its last message that was no copy
    sequence: SequenceTracker = field(default_factory=SequenceTracker)


class BoardRecords:
    """The records by name. columns: where each has a slot. now_s: of the last `set_members`, on the
    clock of the state. population: grows whenever a record is added or removed."""

    def __init__(self, columns: BoardColumns) -> None:
        self.by_name: dict[str, BoardRecord] = {}
        self.population = 0
        self.now_s = self._cleaned_s = -np.inf
        self._columns = columns
        self._members: frozenset[str] | None = None
        self._non_members = 0  # records of names that are not members

    def set_members(self, members: Set[str] | None, now_s: float) -> tuple[list[str], list[str]]:
        """Set the nodes of the cluster (None while unknown) and the time. Returns the new nodes
        without a birth message, sorted, and the names whose records were removed."""
        if self.now_s == -np.inf:
            for record in self.by_name.values():
                record.last_seen_s = now_s
        self.now_s = now_s
        if members is not None and members != self._members:
            new = members - (self._members or frozenset())
            self._members = frozenset(members)
            unborn = (n for n in new if n not in self.by_name or not self.by_name[n].birth_session)
            return sorted(unborn), self._remove_non_members()
        is_due = now_s - self._cleaned_s >= _CLEAN_EVERY_S
        return [], self._remove_non_members() if is_due else []

    def of(self, node: str) -> BoardRecord | None:
        """The record of a node that sends a message, created if necessary; None when there are too
        many."""
        record = self.by_name.get(node)
        if record is None:
            if self._members is None or node not in self._members:
                if self._non_members >= self._most_non_members():
                    return None
                self._non_members += 1
            record = self.by_name[node] = BoardRecord(self._columns.take(), Agent(node))
            self.population += 1
        record.last_seen_s = self.now_s
        return record

    def awaiting_birth(self, node: str, stamp: Stamp) -> BoardRecord | None:
        """The record of a node whose retained birth arrives after later messages of its session."""
        record, session = self.by_name.get(node), (stamp.boot_id, stamp.session)
        if record is None or record.birth_session == session or not stamp.retained:
            return None
        return record if record.sequence.is_current(*session) else None

    def _most_non_members(self) -> int:
        return _MAX_NODES if self._members is None else _MAX_NON_MEMBERS

    def _remove_non_members(self) -> list[str]:
        """Remove the records of non-members that are silent or too many."""
        self._cleaned_s = self.now_s
        members = self._members or frozenset()
        non_members = sorted(
            (record.last_seen_s, name)
            for name, record in self.by_name.items()
            if name not in members
        )
        too_many = len(non_members) - self._most_non_members()
        gone = [
            name
            for at, (last_seen_s, name) in enumerate(non_members)
            if at < too_many or self.now_s - last_seen_s > _MAX_SILENCE_S
        ]
        for name in gone:
            self._columns.free(self.by_name.pop(name).slot)
        self._non_members = len(non_members) - len(gone)
        self.population += bool(gone)
        return gone
