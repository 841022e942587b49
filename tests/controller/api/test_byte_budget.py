"""A byte budget is never exceeded, is given out in turn, and gets every byte back."""

import asyncio

from leadline_controller.api.extender import ByteBudget


async def test_a_request_waits_its_turn_for_free_bytes() -> None:
    budget, order = ByteBudget(10), list[str]()

    async def take(name: str, size: int, until: asyncio.Event) -> None:
        async with budget.reserved(size):
            order.append(name)
            await until.wait()

    first, rest = asyncio.Event(), asyncio.Event()
    rest.set()
    tasks = [asyncio.create_task(take("first", 6, first))]
    tasks += [asyncio.create_task(take(f"large {i}", 6, rest)) for i in range(2)]
    tasks.append(asyncio.create_task(take("small", 2, rest)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["first"]  # nobody overtakes, else a long one might wait for ever
    first.set()
    await asyncio.gather(*tasks)
    assert order == ["first", "large 0", "large 1", "small"]


async def test_a_cancelled_wait_reserves_nothing() -> None:
    budget = ByteBudget(10)
    async with budget.reserved(8):
        waiting = [asyncio.create_task(budget.reserved(5).__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(90), budget.reserved(2):
            pass
    async with asyncio.timeout(90), budget.reserved(10):
        pass


async def test_a_wait_cancelled_at_its_turn_reserves_nothing() -> None:
    budget = ByteBudget(10)
    first = budget.reserved(10)
    await first.__aenter__()
    waiting = asyncio.create_task(budget.reserved(10).__aenter__())
    await asyncio.sleep(0)
    await first.__aexit__(None, None, None)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(90), budget.reserved(10):
        pass
