"""Candidates on one Lease in memory, on a clock that moves only when told to."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from leadline_controller.framework.ports import InvalidError, LeaseRecord, UnavailableError
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.snapshot.manual_clock import ManualClock
from leadline_controller.snapshot.memory_lease import MemoryLease

DEAD_TO_TAKEN_S = 12.5  # a look each 2.4 s at most, then the Lease's 10 s


class SlowLease(MemoryLease):
    """Holds the answers back while the gate is closed; what was asked is done all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        written = await super().write(holder, duration_s, over)
        await self.gate.wait()
        return written


class UnheardLease(MemoryLease):
    """Tells nobody of what is written."""

    async def follow(self) -> AsyncGenerator[str, None]:
        raise UnavailableError("503: no")
        yield ""


class UnreadableLease(MemoryLease):
    """Can't be read for a while."""

    away = False

    async def read(self) -> LeaseRecord | None:
        if self.away:
            raise UnavailableError("503: no")
        return await super().read()


class SleepersClock(ManualClock):
    """Of a machine that slept: the time went on, and nothing was done in it."""

    slept_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.slept_s


@asynccontextmanager
async def running(
    clock: ManualClock, *electors: LeaderElector
) -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks = [asyncio.create_task(elector.run()) for elector in electors]
    try:
        await clock.advance(0)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def two(lease: MemoryLease, clock: ManualClock) -> tuple[LeaderElector, LeaderElector]:
    return LeaderElector(lease, "a", clock), LeaderElector(lease, "b", clock)


def leading(*electors: LeaderElector) -> list[bool]:
    return [elector.leads() for elector in electors]


async def test_the_first_leads_for_as_long_as_it_lives() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a, b):
        for _ in range(100):
            await clock.advance(1)
            assert leading(a, b) == [True, False]
            assert a.left_s() >= 7
        assert a.holder() == b.holder() == "a"
    assert lease.record is not None


async def test_when_the_leader_dies_the_other_takes_over_within_fifteen_seconds() -> None:
    lease, clock = MemoryLease(), ManualClock()
    lease.steal("a", 10)
    b = LeaderElector(lease, "b", clock)
    async with running(clock, b):
        await clock.advance(0.1)
        lease.steal("a", 10)  # its last renewal, as long before the next look as can be
        await clock.advance(9.9)
        assert not b.leads()
        await clock.advance(DEAD_TO_TAKEN_S - 9.9)
        assert b.leads()
    assert lease.record is not None
    assert (lease.record.holder, lease.record.transitions) == ("", 1)


async def test_a_clean_end_gives_the_lease_back_and_another_takes_it_at_once() -> None:
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


async def test_one_that_stands_by_gives_nothing_back_at_its_end() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a):
        async with running(clock, b):
            await clock.advance(5)
        assert a.leads()
        assert lease.record is not None
        assert lease.record.holder == "a"


async def test_a_leader_that_can_not_renew_stops_before_another_starts() -> None:
    lease, clock = SlowLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        await clock.advance(4)
        lease.gate.clear()
        await clock.advance(8.9)
        assert not a.leads()
        assert a.left_s() > 0  # what it began before may still be under way
        await clock.advance(0.2)
        assert a.left_s() <= 0
        lease.gate.set()
        await clock.advance(4.9)
        assert a.leads()  # nobody took the Lease meanwhile


async def test_one_that_slept_past_its_lease_does_not_lead_when_it_wakes() -> None:
    lease, clock, sleeper = MemoryLease(), ManualClock(), SleepersClock()
    a, b = LeaderElector(lease, "a", sleeper), LeaderElector(lease, "b", clock)
    async with running(sleeper, a), running(clock, b):
        await clock.advance(13)
        sleeper.slept_s = 13
        assert leading(a, b) == [False, True]
        assert a.left_s() <= 0
        await sleeper.advance(2)
        assert leading(a, b) == [False, True]
        assert a.holder() == "b"


@pytest.mark.parametrize(("kind", "noticed_s"), [(MemoryLease, 0.1), (UnheardLease, 2)])
async def test_a_stolen_lease_is_noticed_and_waited_for(
    kind: type[MemoryLease], noticed_s: float
) -> None:
    """At once where it is heard of, else at the next renewal."""
    lease, clock = kind(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        lease.steal("thief", 10)
        await clock.advance(noticed_s)
        assert (a.leads(), a.holder()) == (False, "thief")
        await clock.advance(9.8)
        assert not a.leads()
        await clock.advance(0.3)
        assert a.leads()


async def test_however_often_the_lease_is_written_over_it_is_looked_at_now_and_then() -> None:
    class Counting(MemoryLease):
        reads = 0

        async def read(self) -> LeaseRecord | None:
            self.reads += 1
            return await super().read()

    lease, clock = Counting(), ManualClock()
    async with running(clock, LeaderElector(lease, "a", clock)):
        for number in range(100):
            lease.steal(f"thief-{number}", 10)
            await clock.advance(0.01)
        assert lease.reads < 15


async def test_a_stolen_lease_that_can_not_be_read_is_not_taken_for_ones_own() -> None:
    lease, clock = UnreadableLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        lease.steal("thief", 10)
        lease.away = True
        await clock.advance(2)
        assert (a.leads(), a.holder()) == (False, "")
        lease.away = False
        await clock.advance(2.4)
        assert (a.leads(), a.holder()) == (False, "thief")


async def test_from_the_conflict_on_nothing_is_begun_before_the_lease_is_read_anew() -> None:
    class Watched(MemoryLease):
        async def read(self) -> LeaseRecord | None:
            led.append(a.leads())
            return await super().read()

    led: list[bool] = []
    lease, clock = Watched(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        assert a.leads()
        lease.steal("thief", 10)
        await clock.advance(2)
    assert led == [False, False]  # at the start, and after the conflict


async def test_a_lease_that_was_deleted_is_made_again() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a = LeaderElector(lease, "a", clock)
    async with running(clock, a):
        lease.remove()
        await clock.advance(2)
        assert a.leads()
        assert lease.record is not None
        assert lease.record.holder == "a"


@pytest.mark.parametrize("error", [UnavailableError("500: no"), InvalidError("403: no right")])
async def test_trouble_is_borne_while_the_lease_lasts(
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


async def test_who_waits_for_its_turn_is_woken_when_it_leads() -> None:
    lease, clock = MemoryLease(), ManualClock()
    a, b = two(lease, clock)
    async with running(clock, a) as (task,), running(clock, b):
        turn = asyncio.create_task(b.wait())
        await clock.advance(5)
        assert not turn.done()
        task.cancel()
        await clock.advance(3)
        assert turn.done()


async def test_of_many_that_find_it_free_one_leads() -> None:
    lease, clock = MemoryLease(), ManualClock()
    many = [LeaderElector(lease, f"c{i}", clock) for i in range(20)]
    async with running(clock, *many):
        assert sum(leading(*many)) == 1
        lease.steal("dead", 10)
        await clock.advance(DEAD_TO_TAKEN_S + 3)
        assert sum(leading(*many)) == 1
