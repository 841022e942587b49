"""The manual clock moves only by `advance`, and sleepers wake at their time."""

import asyncio

from tests.support.manual_clock import ManualClock


async def test_time_stands_still_until_advance() -> None:
    clock = ManualClock(now_s=100)
    sleeping = asyncio.create_task(clock.sleep(10))

    await clock.advance(9)
    assert (clock.now_s(), sleeping.done()) == (109, False)
    await clock.advance(1)

    assert (clock.now_s(), sleeping.done()) == (110, True)


async def test_sleepers_wake_in_order_of_time_and_at_their_time() -> None:
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, duration_s: float) -> None:
        await clock.sleep(duration_s)
        woken.append((name, clock.now_s()))

    async with asyncio.TaskGroup() as group:
        for name, duration_s in (("late", 3.0), ("early", 1.0), ("also late", 3.0)):
            group.create_task(sleep(name, duration_s))
        await clock.advance(10)

    assert woken == [("early", 1), ("late", 3), ("also late", 3)]


async def test_a_sleeper_that_sleeps_again_is_woken_again() -> None:
    clock = ManualClock()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(2)
            ticks.append(clock.now_s())

    ticking = asyncio.create_task(tick())
    await clock.advance(7)
    ticking.cancel()

    assert ticks == [2, 4, 6]
    assert clock.now_s() == 7


async def test_a_cancelled_sleeper_does_not_block_others() -> None:
    clock = ManualClock()
    cancelled = asyncio.create_task(clock.sleep(1))
    other = asyncio.create_task(clock.sleep(2))
    await clock.advance(0)
    cancelled.cancel()

    await clock.advance(2)

    assert other.done()
    assert cancelled.cancelled()
