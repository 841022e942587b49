"""Detects duplicate, late and lost messages of an agent by their sequence numbers.

(boot id, session, sequence) identifies a message; see the wire's Origin. Messages that the broker
retained, or that the agent buffered over a restart, may arrive after newer ones.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_SESSIONS_KEPT = 4
_BOOTS_KEPT = 8
_MOST_LOST = 2**63  # sequences are the sender's to choose


@dataclass(frozen=True, slots=True)
class Stamp:
    """The identity of a message and its time of measurement."""

    boot_id: bytes
    session: int
    sequence: int
    measured_boot_ms: int  # on the board's clock since boot
    # On the controller's clock; minus infinity when unknown, as the board has booted since.
    measured_s: float = 0.0
    retained: bool = False  # a copy that the broker retained

    @property
    def is_dated(self) -> bool:
        """Whether the time of measurement is known."""
        return self.measured_s > float("-inf")


class SequenceStatus(StrEnum):
    """The result of the sequence check of a message."""

    CURRENT = "current"
    LATE = "late"  # of an earlier session or boot, from the agent's buffer; it is not current
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out_of_order"


@dataclass(slots=True)
class _Session:
    last: int
    is_live: bool


@dataclass(slots=True)
class SequenceTracker:
    """The sessions of one agent."""

    lost: int = 0  # messages missing in the sequences
    _current: tuple[bytes, int] | None = None
    _newest_boot_ms: int = 0
    _sessions: dict[tuple[bytes, int], _Session] = field(default_factory=dict)
    _past_boots: dict[bytes, None] = field(default_factory=dict)

    def accept(self, stamp: Stamp, *, birth: bool = False) -> SequenceStatus:
        """Check a message and record its number."""
        key = (stamp.boot_id, stamp.session)
        known = self._sessions.get(key)
        if self._starts_session(key, stamp, birth):
            self._start_session(key, stamp)
            return SequenceStatus.CURRENT
        if known is None:
            self._remember(key, _Session(stamp.sequence, is_live=not stamp.retained))
        elif stamp.sequence == known.last:
            return SequenceStatus.DUPLICATE
        elif stamp.sequence < known.last:
            return SequenceStatus.OUT_OF_ORDER
        else:
            # The messages before a retained copy may have passed before this controller subscribed.
            if known.is_live:
                self._count_lost(stamp.sequence - known.last - 1)
            known.last, known.is_live = stamp.sequence, not stamp.retained
        if key != self._current or not stamp.is_dated:
            return SequenceStatus.LATE
        self._newest_boot_ms = max(self._newest_boot_ms, stamp.measured_boot_ms)
        return SequenceStatus.CURRENT

    def is_current(self, boot_id: bytes, session: int) -> bool:
        """Whether this is the agent's current session; true when none is known."""
        return self._current is None or self._current == (boot_id, session)

    def _starts_session(self, key: tuple[bytes, int], stamp: Stamp, birth: bool) -> bool:
        """Whether the message begins a session that replaces the current one."""
        if not stamp.is_dated or self._current is None:
            return stamp.is_dated
        boot_id, session = self._current
        if stamp.boot_id != boot_id:
            # Only messages of the board's current boot are dated, and boots do not come back.
            # A retained copy may be older than messages that came from the board itself.
            newer = stamp.session > session or not stamp.retained
            return newer and stamp.boot_id not in self._past_boots
        if stamp.session > session:
            return True
        # The file with the session counter was lost, but not the clock since boot.
        starts_over = key != self._current or stamp.sequence <= self._sessions[key].last
        return birth and starts_over and stamp.measured_boot_ms > self._newest_boot_ms

    def _start_session(self, key: tuple[bytes, int], stamp: Stamp) -> None:
        if self._current is not None:
            if not stamp.retained:
                self._count_lost(stamp.sequence - 1)
            if self._current[0] != stamp.boot_id:
                self._past_boots[self._current[0]] = None
                _drop_oldest(self._past_boots, _BOOTS_KEPT)
        self._current = key
        self._newest_boot_ms = stamp.measured_boot_ms
        self._sessions.pop(key, None)
        self._remember(key, _Session(stamp.sequence, is_live=not stamp.retained))

    def _remember(self, key: tuple[bytes, int], session: _Session) -> None:
        if self._current in self._sessions:  # buffered messages of old sessions must not evict it
            self._sessions[self._current] = self._sessions.pop(self._current)
        self._sessions[key] = session
        _drop_oldest(self._sessions, _SESSIONS_KEPT)

    def _count_lost(self, count: int) -> None:
        self.lost = min(self.lost + count, _MOST_LOST)


def _drop_oldest(kept: dict[Any, Any], limit: int) -> None:
    while len(kept) > limit:
        del kept[next(iter(kept))]
