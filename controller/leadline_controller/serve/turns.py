"""What clients share: whose turn is next, and who gives way when a table is full.

One client that asks for more than others must not keep them waiting, nor take their places.
"""

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


class Turns:
    """Lets `at_once` go on at a time. Of those who wait, the clients are next one after the other,
    however many turns each of them waits for."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, client: Hashable) -> None:
        """Wait for a turn; `release` ends it."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came at the same moment
                self.release()
            raise

    def release(self) -> None:
        """End a turn; the next one begins."""
        while self._waiting:
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def of_the_fullest(held: Iterable[Item], *levels: Callable[[Item], Hashable]) -> list[Item]:
    """Of what is held, that of the client who holds the most. levels: the client of each, from wide
    to narrow, such as its address and then its connection: first the address with the most, then of
    that the connection."""
    found = list(held)
    for client in levels:
        of = defaultdict[Hashable, list[Item]](list)
        for each in found:
            of[client(each)].append(each)
        found = max(of.values(), key=len, default=[])
    return found
