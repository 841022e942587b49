"""Tells new messages of an agent from repeats, and counts those that never came.

A message is numbered by (boot id, session, sequence); see the wire's Origin.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum

_SESSIONS_KEPT = 4


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a message stands among its sender's. measured_boot_ms is on the board's clock
    since boot; retained: it is the broker's copy of an earlier one."""

    boot_id: bytes
    session: int
    sequence: int
    measured_boot_ms: int
    retained: bool = False


class Standing(StrEnum):
    """What a message is worth."""

    CURRENT = "current"
    LATE = "late"  # of an earlier session, from the agent's buffer: history only
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out_of_order"


@dataclass(slots=True)
class _Session:
    last: int
    live: bool


@dataclass(slots=True)
class SequenceTracker:
    """The sessions of one agent. `lost` counts messages that a gap shows to be missing."""

    lost: int = 0
    _current: tuple[bytes, int] | None = None
    _newest_boot_ms: int = 0
    _sessions: "OrderedDict[tuple[bytes, int], _Session]" = field(default_factory=OrderedDict)

    def accept(self, stamp: Stamp, *, birth: bool = False) -> Standing:
        """Take note of a message and say what it is worth."""
        key = (stamp.boot_id, stamp.session)
        if self._current is None or (key != self._current and self._supersedes(stamp, birth)):
            self._current = key
        known = self._sessions.get(key)
        if known is None:
            self._remember(key, _Session(stamp.sequence, live=not stamp.retained))
        else:
            if stamp.sequence == known.last:
                return Standing.DUPLICATE
            if stamp.sequence < known.last:
                return Standing.OUT_OF_ORDER
            # A retained copy says nothing of what went by before this controller listened.
            if known.live:
                self.lost += stamp.sequence - known.last - 1
            known.last, known.live = stamp.sequence, not stamp.retained
        if key != self._current:
            return Standing.LATE
        self._newest_boot_ms = stamp.measured_boot_ms
        return Standing.CURRENT

    def is_current(self, boot_id: bytes, session: int) -> bool:
        """Whether this is the session that the agent is in now; true when none is known."""
        return self._current is None or self._current == (boot_id, session)

    def _supersedes(self, stamp: Stamp, birth: bool) -> bool:
        assert self._current is not None  # noqa: S101  # accept() has looked
        boot_id, session = self._current
        if stamp.boot_id != boot_id:
            # A boot seen before and left behind does not come back.
            return all(stamp.boot_id != known for known, _ in self._sessions)
        if stamp.session > session:
            return True
        # The session counter was lost with its file; the clock since boot was not.
        return birth and stamp.measured_boot_ms > self._newest_boot_ms

    def _remember(self, key: tuple[bytes, int], session: _Session) -> None:
        self._sessions[key] = session
        while len(self._sessions) > _SESSIONS_KEPT:
            self._sessions.popitem(last=False)
