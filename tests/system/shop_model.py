"""The shop of the lab: eleven services as in the demonstrations of microservices, and how long a
user's request takes if they are on these boards. Pure.

A request is a sequence of calls, so it takes what each service waits, the round trips of all calls,
and the bytes of their answers over the slower of the two links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

USER = "user"  # outside of the cluster


@dataclass(frozen=True)
class Call:
    """Calls of an operation of another service, one after the other."""

    service: str
    operation: str
    times: int = 1


@dataclass(frozen=True)
class Operation:
    """What a service does for one request."""

    wait_ms: float
    kb: int  # of its answer, 10^3 bytes
    calls: tuple[Call, ...] = ()


SHOP: Mapping[str, Mapping[str, Operation]] = {
    "front": {
        "browse": Operation(2, 30, (Call("catalogue", "list"),)),
        "buy": Operation(2, 10, (Call("catalogue", "item"), Call("cart", "add"))),
        "order": Operation(2, 5, (Call("accounts", "of"), Call("orders", "make"))),
    },
    "catalogue": {
        "list": Operation(1, 20, (Call("catalogue-db", "rows", 3),)),
        "item": Operation(1, 2, (Call("catalogue-db", "row"),)),
    },
    "catalogue-db": {"rows": Operation(1, 8), "row": Operation(1, 1)},
    "cart": {
        "add": Operation(1, 1, (Call("cart-store", "get"), Call("cart-store", "put"))),
        "all": Operation(1, 2, (Call("cart-store", "get"),)),
    },
    "cart-store": {"get": Operation(0.5, 2), "put": Operation(0.5, 1)},
    "accounts": {"of": Operation(2, 1)},
    "orders": {
        "make": Operation(
            2,
            2,
            (
                Call("cart", "all"),
                Call("payment", "pay"),
                Call("orders-db", "write", 2),
                Call("shipping", "send"),
            ),
        )
    },
    "orders-db": {"write": Operation(1, 1)},
    "payment": {"pay": Operation(5, 1)},
    "shipping": {"send": Operation(1, 1, (Call("queue", "put"),))},
    "queue": {"put": Operation(0.5, 1)},
}
# How often users do what.
MIX = {"browse": 0.6, "buy": 0.3, "order": 0.1}


@dataclass(frozen=True)
class Network:
    """Boards, and what lies between them. Boards of `far` are behind a second switch, and one link
    joins both; the user is at the first. rates_mbps, delays_ms: of each board's own link, the delay
    as what it adds to a round trip."""

    name: str
    rates_mbps: Mapping[str, float]
    delays_ms: Mapping[str, float] = field(default_factory=dict)
    far: frozenset[str] = frozenset()
    trunk_mbps: float = 1000.0
    trunk_delay_ms: float = 0.0

    @property
    def boards(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.rates_mbps)

    def rtt_ms(self, a: str, b: str) -> float:
        """The round trip that the network adds between two boards, or a board and the user."""
        if a == b:
            return 0.0
        delay_ms = self.delays_ms.get(a, 0.0) + self.delays_ms.get(b, 0.0)
        return delay_ms + (self.trunk_delay_ms if self._is_apart(a, b) else 0.0)

    def mbps(self, a: str, b: str) -> float:
        """What one transfer between them gets."""
        if a == b:
            return float("inf")
        rates = [self.rates_mbps[each] for each in (a, b) if each != USER]
        return min([*rates, *([self.trunk_mbps] if self._is_apart(a, b) else [])])

    def _is_apart(self, a: str, b: str) -> bool:
        return (a in self.far) != (b in self.far)


_ALL = {"n1": 100.0, "n2": 100.0, "n3": 100.0, "n4": 100.0}
NETWORKS = {
    each.name: each
    for each in (
        Network("alike", _ALL),
        # Two boards on cables, two on Wi-Fi.
        Network("home", {**_ALL, "n3": 25.0, "n4": 12.0}, {"n3": 6.0, "n4": 10.0}),
        Network("halls", _ALL, far=frozenset({"n3", "n4"}), trunk_mbps=20.0, trunk_delay_ms=8.0),
        Network("cloud", _ALL, far=frozenset({"n3", "n4"}), trunk_mbps=50.0, trunk_delay_ms=40.0),
    )
}


def expected_ms(network: Network, placed: Mapping[str, str], operation: str) -> float:
    """How long a user's request takes if each service is on this board, without queues."""
    return _call_ms(network, placed, USER, Call("front", operation))


def mean_ms(network: Network, placed: Mapping[str, str]) -> float:
    """The mean over what users do."""
    return sum(share * expected_ms(network, placed, doing) for doing, share in MIX.items())


def _call_ms(network: Network, placed: Mapping[str, str], caller: str, call: Call) -> float:
    here = placed.get(caller, USER)
    there, doing = placed[call.service], SHOP[call.service][call.operation]
    one_ms = doing.wait_ms + network.rtt_ms(here, there)
    one_ms += doing.kb * 8 / network.mbps(here, there)  # kbit / (kbit/ms)
    one_ms += sum(_call_ms(network, placed, call.service, each) for each in doing.calls)
    return call.times * one_ms


def flows(per_s: float) -> Mapping[tuple[str, str], tuple[float, float]]:
    """Of each pair of services that talk, the requests a second and the Mbit/s, if users make so
    many requests a second."""
    requests: defaultdict[tuple[str, str], float] = defaultdict(float)
    megabits: defaultdict[tuple[str, str], float] = defaultdict(float)

    def follow(caller: str, call: Call, rate: float) -> None:
        doing, rate = SHOP[call.service][call.operation], rate * call.times
        requests[caller, call.service] += rate
        megabits[caller, call.service] += rate * doing.kb * 8e-3
        for each in doing.calls:
            follow(call.service, each, rate)

    for doing, share in MIX.items():
        follow(USER, Call("front", doing), share * per_s)
    return {pair: (requests[pair], megabits[pair]) for pair in requests}


def random_placements(
    network: Network, most_a_board: int, count: int, seed: int
) -> Iterator[Mapping[str, str]]:
    """Placements by chance with at most so many services on each board."""
    random = Random(seed)
    slots = [board for board in network.boards for _ in range(most_a_board)]
    for _ in range(count):
        yield dict(zip(SHOP, random.sample(slots, len(SHOP)), strict=True))


def promising(
    network: Network, most_a_board: int, count: int, kept: int, seed: int
) -> Sequence[Mapping[str, str]]:
    """Of so many placements by chance those that are expected to be the quickest."""
    found = random_placements(network, most_a_board, count, seed)
    return sorted(found, key=lambda placed: mean_ms(network, placed))[:kept]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the others does not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)]


def mean_of_random_ms(network: Network, most_a_board: int, seed: int = 0) -> float:
    """What chance gives."""
    found = random_placements(network, most_a_board, 500, seed)
    return fmean(mean_ms(network, placed) for placed in found)
