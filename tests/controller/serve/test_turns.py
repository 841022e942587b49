"""A client that asks for more than others neither goes first nor keeps what it holds."""

import asyncio
from contextlib import suppress

import pytest
from leadline_controller.serve.turns import Turns, of_the_fullest


async def order(at_once: int, clients: str, cancelled: int = -1) -> str:
    """The clients in the order in which they have their turns, after one turn that others took."""
    turns, had = Turns(at_once), list[str]()
    for _ in range(at_once):
        await turns.acquire("others")

    async def take(client: str) -> None:
        await turns.acquire(client)
        had.append(client)
        await asyncio.sleep(0)
        turns.release()

    tasks = [asyncio.create_task(take(each)) for each in clients]
    await asyncio.sleep(0)
    if cancelled >= 0:
        tasks[cancelled].cancel()
    for _ in range(at_once):
        turns.release()
    await asyncio.wait(tasks)
    async with asyncio.timeout(10):  # all are free again
        for _ in range(at_once):
            await turns.acquire("others")
    return "".join(had)


@pytest.mark.parametrize(
    ("at_once", "clients", "had"),
    [(1, "aaaab", "abaaa"), (2, "aaaabc", "abcaaa"), (1, "aabbcc", "abcabc"), (3, "aa", "aa")],
)
async def test_clients_have_their_turns_one_after_the_other(
    at_once: int, clients: str, had: str
) -> None:
    assert await order(at_once, clients) == had


async def test_who_does_not_wait_any_more_is_left_out() -> None:
    assert await order(1, "aab", cancelled=0) == "ba"


async def test_a_turn_that_comes_with_the_end_of_its_wait_goes_on() -> None:
    turns = Turns(1)
    await turns.acquire("a")
    first, second = (asyncio.create_task(turns.acquire(each)) for each in "bc")
    await asyncio.sleep(0)
    turns.release()
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 10)


@pytest.mark.parametrize(
    ("held", "fullest"),
    [
        ([], []),
        (["a1x", "b1x", "b1y"], ["b1x", "b1y"]),
        (["a1x", "a2x", "a2y", "b1x", "b1y"], ["a2x", "a2y"]),
    ],
)
def test_the_client_with_the_most_is_found_from_wide_to_narrow(
    held: list[str], fullest: list[str]
) -> None:
    assert of_the_fullest(held, lambda each: each[:1], lambda each: each[:2]) == fullest
