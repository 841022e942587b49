"""The last bandwidth test of each pair of nodes, which is only shown: what it says about the nodes'
links is in bandwidth.py. Tests are rare, so they are few and in a dict. Times are seconds on the
controller's monotonic clock."""

from collections.abc import Iterator
from typing import NamedTuple

from leadline_controller.telemetry.link_status import Pair, pair_of

_MOST = 200_000


class PairTest(NamedTuple):
    """A result."""

    mbps: float
    at_s: float
    lower_bound: bool  # the pair can do at least this
    is_host_limited: bool  # a board was held back


class PairTests:
    """The last test of each pair, for ttl_s."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._tests: dict[Pair, PairTest] = {}

    def add(self, node: str, peer: str, test: PairTest) -> None:
        """Store a result, unless a newer one is stored."""
        pair = pair_of(node, peer)
        known = self._tests.get(pair)
        if known is None and len(self._tests) >= _MOST:
            return
        if known is None or test.at_s >= known.at_s:
            self._tests[pair] = test

    def fresh(self, now_s: float) -> Iterator[tuple[Pair, PairTest]]:
        """The pairs whose result is not too old."""
        return (
            (pair, test) for pair, test in self._tests.items() if now_s - test.at_s <= self._ttl_s
        )

    def drop_old(self, now_s: float) -> None:
        """Remove what is too old."""
        self._tests = dict(self.fresh(now_s))
