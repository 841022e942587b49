"""Room for bytes: no more than there is, in turn, and given back whatever happens."""

import asyncio

from leadline_controller.api.extender_room import ByteBudget


async def test_who_finds_no_room_waits_its_turn() -> None:
    room, order = ByteBudget(10), list[str]()

    async def take(name: str, size: int, until: asyncio.Event) -> None:
        async with room.taken(size):
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


async def test_who_gives_up_leaves_nothing_taken() -> None:
    room = ByteBudget(10)
    async with room.taken(8):
        waiting = [asyncio.create_task(room.taken(5).__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(5), room.taken(2):
            pass
    async with asyncio.timeout(5), room.taken(10):
        pass


async def test_who_gives_up_at_the_moment_of_its_turn_leaves_nothing_taken() -> None:
    room = ByteBudget(10)
    first = room.taken(10)
    await first.__aenter__()
    waiting = asyncio.create_task(room.taken(10).__aenter__())
    await asyncio.sleep(0)
    await first.__aexit__(None, None, None)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5), room.taken(10):
        pass
