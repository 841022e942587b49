"""The rules of leader election: which of several controllers leads, by its own clock alone.

As in client-go's leaderelection, the times in the Lease come from another machine's clock and are
never compared with this one's. A follower counts from when it saw the Lease change, a leader from
when it sent its last renewal, which was earlier. So the leader is always the first to know that
its Lease has expired, however far apart the clocks are.
"""

from dataclasses import dataclass

from leadline_controller.framework.ports import LeaseRecord

_NEVER_S = float("-inf")
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of leader election, in seconds.

    duration_s: a follower that sees no renewal for this long acquires the Lease.
    renew_deadline_s: a leader without a renewal for this long starts no action. retry_s: between
    two attempts. margin_s: the leader's requests must take effect this long before the duration
    is over; it allows for clocks whose speeds differ by up to a tenth.
    """

    duration_s: int = 10
    renew_deadline_s: float = 7.0
    retry_s: float = 2.0
    margin_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s - self.margin_s:
            raise ValueError("expected 0 < retry < renew deadline < duration - margin")


class ObservedLease:
    """The Lease as one candidate last saw it. All times are seconds on a monotonic clock that goes
    on while the machine sleeps."""

    def __init__(self, identity: str, timing: LeaseTiming) -> None:
        self._identity = identity
        self._timing = timing
        self._changed_s = _NEVER_S
        self._sent_s = _NEVER_S
        self.record: LeaseRecord | None = None

    def observe(self, record: LeaseRecord | None, now_s: float) -> None:
        """The Lease was read; None when there is none."""
        if _renewal(record) != _renewal(self.record):
            self._changed_s = now_s
        self.record = record
        if record is None or record.holder != self._identity:
            self._sent_s = _NEVER_S

    def renewed(self, record: LeaseRecord, sent_s: float) -> None:
        """This candidate wrote the Lease, by a request sent at `sent_s`."""
        self.record = record
        self._changed_s = sent_s
        self._sent_s = sent_s if record.holder == self._identity else _NEVER_S

    def leads(self, now_s: float) -> bool:
        """Whether the candidate may start an action."""
        return now_s < self._sent_s + self._timing.renew_deadline_s

    def left_s(self, now_s: float) -> float:
        """Seconds within which the leader's requests must take effect."""
        return self._sent_s + self._timing.duration_s - self._timing.margin_s - now_s

    def may_acquire(self, now_s: float) -> bool:
        """Whether the Lease is this candidate's, free or expired."""
        record = self.record
        return (
            record is None
            or record.holder in ("", self._identity)
            or now_s >= self._changed_s + record.duration_s
        )

    def pause_s(self, now_s: float, jitter: float) -> float:
        """Seconds until the next attempt. jitter: 0 to 1, so that followers do not coincide."""
        timing = self._timing
        if self.leads(now_s):
            return timing.retry_s
        pause_s = timing.retry_s * (1 + _JITTER * jitter)
        if self.record is not None and not self.may_acquire(now_s):
            return min(pause_s, self._changed_s + self.record.duration_s - now_s)
        return pause_s


class SoleLeader:
    """The Leadership of a controller that runs alone, without a Lease."""

    def leads(self) -> bool:
        """Always."""
        return True

    def left_s(self) -> float:
        """Infinite: the leadership never ends."""
        return float("inf")

    def holder(self) -> str:
        """Empty: there is no Lease."""
        return ""

    async def wait(self) -> None:
        """Return at once."""


SOLE_LEADER = SoleLeader()


def _renewal(record: LeaseRecord | None) -> tuple[str, str, str, int] | None:
    """The fields that a renewal changes; a new label on the Lease, say, changes none of them."""
    if record is None:
        return None
    return record.holder, record.acquired, record.renewed, record.transitions
