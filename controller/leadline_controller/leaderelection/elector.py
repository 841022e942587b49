"""Leader election: which of several controllers leads, by its own clock alone.

As in client-go's leaderelection, the times in the Lease come from another machine's clock and are
never compared with this one's. A follower counts from when it saw the Lease change, a leader from
when it sent its last renewal, which was earlier. So the leader is always the first to know that
its Lease has expired, however far apart the clocks are.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import SystemRandom

from leadline_controller.framework.ports import (
    Clock,
    ClusterError,
    LeaseChangedError,
    LeaseRecord,
    LeaseStore,
)
from leadline_controller.waiting import within

log = logging.getLogger(__name__)

_RANDOM = SystemRandom()
_MIN_PAUSE_S = 0.1
_NEVER_S = float("-inf")
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of leader election, in seconds."""

    duration_s: int = 10  # a follower that sees no renewal for this long acquires the Lease
    renew_deadline_s: float = 7.0  # a leader without a renewal for this long starts no action
    retry_s: float = 2.0  # between two attempts
    # The leader's requests must take effect this long before the duration is over; it allows for
    # clocks whose speeds differ by up to a tenth.
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


def _renewal(record: LeaseRecord | None) -> tuple[str, str, str, int] | None:
    """The fields that a renewal changes; a new label on the Lease, say, changes none of them."""
    if record is None:
        return None
    return record.holder, record.acquired, record.renewed, record.transitions


class LeaderElector:
    """One candidate. It leads only while `run` runs.

    identity: unique, also among earlier processes of this machine. clock: one that goes on while
    the machine sleeps. heartbeat: called after each attempt to acquire or renew the Lease.
    """

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        clock: Clock,
        timing: LeaseTiming | None = None,
        heartbeat: Callable[[], None] = lambda: None,
    ) -> None:
        self._heartbeat = heartbeat
        self._store = store
        self._identity = identity
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._observed = ObservedLease(identity, self._timing)
        self._renewed = asyncio.Event()
        self._changed = asyncio.Event()
        self._logged: str | None = None

    def leads(self) -> bool:
        """Whether this controller may start an action now."""
        return self._observed.leads(self._clock.now_s())

    def left_s(self) -> float:
        """Seconds within which the leader's requests must take effect."""
        return self._observed.left_s(self._clock.now_s())

    def holder(self) -> str:
        """The holder of the Lease, as last seen; empty when there is none."""
        return self._observed.record.holder if self._observed.record else ""

    async def wait(self) -> None:
        """Wait until this controller leads."""
        while not self.leads():
            self._renewed.clear()
            await self._renewed.wait()

    async def run(self) -> None:
        """Compete for the Lease until cancelled, then release it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew_loop())
                group.create_task(self._follow())
        finally:
            await self._release()

    async def _renew_loop(self) -> None:
        while True:
            try:
                await self._try_acquire_or_renew()
            except ClusterError as error:
                log.debug("the Lease: %s", error)  # the store logs it for the operator
            self._log_leader()
            self._heartbeat()
            await self._pause(self._observed.pause_s(self._clock.now_s(), _RANDOM.random()))

    async def _follow(self) -> None:
        """End the pause as soon as another controller wrote the Lease. The news may be old, so it
        only triggers the next attempt: a renewal, which fails if the leader lost the Lease."""
        while True:
            try:
                async with aclosing(self._store.follow()) as holders:
                    async for holder in holders:
                        if holder != self._identity:
                            self._changed.set()
            except ClusterError as error:
                log.debug("the Lease: %s", error)
            await self._clock.sleep(self._timing.retry_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait `pause_s`, or until another controller wrote the Lease, but not less than 0.1 s."""
        least_s = min(pause_s, _MIN_PAUSE_S)
        await self._clock.sleep(least_s)
        await within(self._clock, self._changed.wait(), pause_s - least_s)
        self._changed.clear()

    async def _try_acquire_or_renew(self) -> None:
        """Renew an own Lease without reading it; otherwise read it, and acquire it if it is free.
        After a conflict the controller no longer leads, and tries once more."""
        observed = self._observed
        for _ in range(2):
            try:
                if self.holder() != self._identity:
                    observed.observe(await self._store.read(), self._clock.now_s())
                sent_s = self._clock.now_s()
                if observed.may_acquire(sent_s):
                    duration_s = self._timing.duration_s
                    record = await self._store.write(self._identity, duration_s, observed.record)
                    observed.renewed(record, sent_s)
                    self._renewed.set()
            except LeaseChangedError:
                observed.observe(None, self._clock.now_s())
            else:
                return

    async def _release(self) -> None:
        """Free the Lease, so that others need not wait until it expires; a failure is harmless."""
        record = self._observed.record
        self._observed.observe(None, self._clock.now_s())
        if record is None or record.holder != self._identity:
            return
        try:
            await self._store.write("", 1, record)
        except ClusterError as error:
            log.debug("the Lease: %s", error)

    def _log_leader(self) -> None:
        """Log who leads, once for each change."""
        leads, holder = self.leads(), self.holder()
        if leads:
            line = f"leading as {self._identity}"
        elif holder in ("", self._identity):
            line = "standing by: the Lease could not be renewed"
        else:
            line = f"standing by: {holder} leads"
        if line != self._logged:
            self._logged = line
            log.info("%s", line)


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
