"""Candidates for one Lease in memory, on a manual clock."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from leadline_controller.framework.ports import InvalidError, LeaseRecord, UnavailableError
from leadline_controller.leaderelection.elector import LeaderElector

from tests.controller.leaderelection.electing import running
from tests.support.manual_clock import ManualClock
from tests.support.memory_lease import MemoryLease

CRASH_TO_TAKEOVER_S = 12.5  # a pause of 2.4 s at most, then the Lease's 10 s


class SlowLease(MemoryLease):
    """Delays the answers, but not the writes, while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        written = await super().write(holder, duration_s, over)
        await self.gate.wait()
        return written


class LeaseWithoutWatch(MemoryLease):
    """Its watch reports no write."""

    async def follow(self) -> AsyncGenerator[str, None]:
        raise UnavailableError("503: no")
        yield ""


class UnreadableLease(MemoryLease):
    """Can't be read while `away` is set."""

    away = False

    async def read(self) -> LeaseRecord | None:
        if self.away:
            raise UnavailableError("503: no")
        return await super().read()


class SuspendedClock(ManualClock):
    """The clock of a machine that was suspended: time went on while nothing ran."""

    slept_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.slept_s


def two(lease: MemoryLease, clock: ManualClock) -> tuple[LeaderElector, LeaderElector]:
    return LeaderElector(lease, "a", clock), LeaderElector(lease, "b", clock)


def leading(*electors: LeaderElector) -> list[bool]:
    return [elector.leads() for elector in electors]


async def test_the_first_candidate_leads_for_as_long_as_it_runs() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a, b):
        for _ in range(100):
            await clock.advance(1)
            assert leading(a, b) == [True, False]
            assert a.left_s() >= 7
        assert a.holder() == b.holder() == "a"
    assert lease.record is not None


async def test_a_follower_takes_over_within_fifteen_seconds_of_a_crash() -> None:
    lease, clock = MemoryLease(), ManualClock()
    lease.overwrite("a", 10)
    b = LeaderElector(lease, "b", clock)
    async with running(clock, b):
        await clock.advance(0.1)
        lease.overwrite("a", 10)  # its last renewal, as long before the next attempt as possible
        await clock.advance(9.9)
        assert not b.leads()
        await clock.advance(CRASH_TO_TAKEOVER_S - 9.9)
        assert b.leads()
    assert lease.record is not None
    assert (lease.record.holder, lease.record.transitions) == ("", 1)


async def test_a_stopped_leader_releases_the_lease_and_a_follower_acquires_it_at_once() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a) as (task,), running(clock, b):
        await clock.advance(5.2)
        assert leading(a, b) == [True, False]
        task.cancel()
        await clock.advance(0.1)
        assert leading(a, b) == [False, True]
    assert lease.record is not None
    assert (lease.record.holder, lease.record.duration_s) == ("", 1)


async def test_a_stopped_follower_does_not_release_the_lease() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a):
        async with running(clock, b):
            await clock.advance(5)
        assert a.leads()
        assert lease.record is not None
        assert lease.record.holder == "a"


async def test_a_leader_that_cannot_renew_stops_before_another_starts() -> None:
    lease, clock = SlowLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        await clock.advance(4)
        lease.gate.clear()
        await clock.advance(8.9)
        assert not a.leads()
        assert a.left_s() > 0  # its earlier requests may still be under way
        await clock.advance(0.2)
        assert a.left_s() <= 0
        lease.gate.set()
        await clock.advance(4.9)
        assert a.leads()  # nobody acquired the Lease meanwhile


async def test_a_leader_whose_lease_expired_during_sleep_no_longer_leads() -> None:
    lease, clock, sleeper = MemoryLease(), ManualClock(), SuspendedClock()
    a, b = LeaderElector(lease, "a", sleeper), LeaderElector(lease, "b", clock)
    async with running(sleeper, a), running(clock, b):
        await clock.advance(13)
        sleeper.slept_s = 13
        assert leading(a, b) == [False, True]
        assert a.left_s() <= 0
        await sleeper.advance(2)
        assert leading(a, b) == [False, True]
        assert a.holder() == "b"


@pytest.mark.parametrize(("kind", "noticed_s"), [(MemoryLease, 0.1), (LeaseWithoutWatch, 2)])
async def test_a_leader_notices_a_stolen_lease_and_waits_for_it(
    kind: type[MemoryLease], noticed_s: float
) -> None:
    """At once if the watch reports it, else at the next renewal."""
    lease, clock = kind(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        lease.overwrite("thief", 10)
        await clock.advance(noticed_s)
        assert (a.leads(), a.holder()) == (False, "thief")
        await clock.advance(9.8)
        assert not a.leads()
        await clock.advance(0.3)
        assert a.leads()


async def test_frequent_writes_by_others_do_not_cause_more_frequent_reads() -> None:
    class Counting(MemoryLease):
        reads = 0

        async def read(self) -> LeaseRecord | None:
            self.reads += 1
            return await super().read()

    lease, clock = Counting(), ManualClock()
    async with running(clock, LeaderElector(lease, "a", clock)):
        for number in range(100):
            lease.overwrite(f"thief-{number}", 10)
            await clock.advance(0.01)
        assert lease.reads < 15


async def test_a_stolen_lease_that_cannot_be_read_is_not_an_own_lease() -> None:
    lease, clock = UnreadableLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        lease.overwrite("thief", 10)
        lease.away = True
        await clock.advance(2)
        assert (a.leads(), a.holder()) == (False, "")
        lease.away = False
        await clock.advance(2.4)
        assert (a.leads(), a.holder()) == (False, "thief")


async def test_after_a_conflict_a_leader_stops_until_it_has_read_the_lease() -> None:
    class Watched(MemoryLease):
        async def read(self) -> LeaseRecord | None:
            led.append(a.leads())
            return await super().read()

    led: list[bool] = []
    lease, clock = Watched(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        assert a.leads()
        lease.overwrite("thief", 10)
        await clock.advance(2)
    assert led == [False, False]  # at the start, and after the conflict


async def test_a_deleted_lease_is_created_again() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        lease.remove()
        await clock.advance(2)
        assert a.leads()
        assert lease.record is not None
        assert lease.record.holder == "a"


@pytest.mark.parametrize("error", [UnavailableError("500: no"), InvalidError("403: no right")])
async def test_a_leader_survives_errors_until_its_renew_deadline(
    error: UnavailableError | InvalidError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lease, clock = MemoryLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        for _ in range(3):
            lease.fail_next(error)
        await clock.advance(6.5)
        assert a.leads()
        await clock.advance(2)
        assert a.leads()
        assert [each.message for each in caplog.records] == ["leading as a"]
        for _ in range(5):
            lease.fail_next(error)
        await clock.advance(9)
        assert not a.leads()
        await clock.advance(4)
        assert a.leads()
    assert [each.message for each in caplog.records] == [
        "leading as a",
        "standing by: the Lease could not be renewed",
        "leading as a",
    ]


async def test_wait_returns_when_the_candidate_leads() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a) as (task,), running(clock, b):
        turn = asyncio.create_task(b.wait())
        await clock.advance(5)
        assert not turn.done()
        task.cancel()
        await clock.advance(3)
        assert turn.done()


async def test_only_one_of_many_candidates_acquires_a_free_lease() -> None:
    lease, clock = MemoryLease(), ManualClock()
    many = [LeaderElector(lease, f"c{i}", clock) for i in range(20)]
    async with running(clock, *many):
        assert sum(leading(*many)) == 1
        lease.overwrite("dead", 10)
        await clock.advance(CRASH_TO_TAKEOVER_S + 3)
        assert sum(leading(*many)) == 1
