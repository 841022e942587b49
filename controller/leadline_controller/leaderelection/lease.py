"""Which of several controllers leads: the rules of a lease, by one's own clock alone.

As in client-go's leaderelection: what the Lease says of time was written by another machine's
clock and is never compared with ours. A follower counts from when it saw the Lease change, a
leader from when it began to ask for its last renewal, which was earlier. So the leader is always
the first to believe that its time is over, however far the clocks are apart.
"""

from dataclasses import dataclass

from leadline_controller.framework.ports import LeaseRecord

_NEVER_S = float("-inf")
_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of a lease, in seconds.

    duration_s: a follower that saw no renewal for so long takes the Lease. renew_deadline_s: a
    leader that was not renewed for so long begins nothing more. retry_s: between two renewals or
    looks. margin_s: so much before the duration is over all that the leader began must have taken
    effect; it covers clocks that run at different speeds, up to a tenth.
    """

    duration_s: int = 10
    renew_deadline_s: float = 7.0
    retry_s: float = 2.0
    margin_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s - self.margin_s:
            raise ValueError("expected 0 < retry < renew deadline < duration - margin")


class ObservedLease:
    """What one candidate knows of the Lease. All times are seconds on one clock that never
    jumps and goes on while the machine sleeps."""

    def __init__(self, identity: str, timing: LeaseTiming) -> None:
        self._identity = identity
        self._timing = timing
        self._changed_s = _NEVER_S
        self._asked_s = _NEVER_S
        self.record: LeaseRecord | None = None

    def observe(self, record: LeaseRecord | None, now_s: float) -> None:
        """The Lease was read: None when there is none."""
        if _renewal(record) != _renewal(self.record):
            self._changed_s = now_s
        self.record = record
        if record is None or record.holder != self._identity:
            self._asked_s = _NEVER_S

    def renewed(self, record: LeaseRecord, asked_s: float) -> None:
        """The Lease was written by us; the request for it was begun at `asked_s`."""
        self.record = record
        self._changed_s = asked_s
        self._asked_s = asked_s if record.holder == self._identity else _NEVER_S

    def leads(self, now_s: float) -> bool:
        """Whether something may be begun."""
        return now_s < self._asked_s + self._timing.renew_deadline_s

    def left_s(self, now_s: float) -> float:
        """Seconds until all that was begun must have taken effect."""
        return self._asked_s + self._timing.duration_s - self._timing.margin_s - now_s

    def may_write(self, now_s: float) -> bool:
        """Whether the Lease is ours, free, or not renewed for as long as it holds."""
        record = self.record
        return (
            record is None
            or record.holder in ("", self._identity)
            or now_s >= self._changed_s + record.duration_s
        )

    def pause_s(self, now_s: float, chance: float) -> float:
        """How long to wait before the next look. chance: 0 to 1, spreads the followers."""
        timing = self._timing
        if self.leads(now_s):
            return timing.retry_s
        pause_s = timing.retry_s * (1 + _SPREAD * chance)
        if self.record is not None and not self.may_write(now_s):
            return min(pause_s, self._changed_s + self.record.duration_s - now_s)
        return pause_s


class SoleLeader:
    """Leadership where there is nobody to share it with."""

    def leads(self) -> bool:
        """Always."""
        return True

    def left_s(self) -> float:
        """For ever."""
        return float("inf")

    def holder(self) -> str:
        """Nobody has to hold anything."""
        return ""

    async def wait(self) -> None:
        """At once."""


SOLE_LEADER = SoleLeader()


def _renewal(record: LeaseRecord | None) -> tuple[str, str, str, int] | None:
    """What a renewal changes, and what somebody who labels the Lease does not."""
    if record is None:
        return None
    return record.holder, record.acquired, record.renewed, record.transitions
