"""Plans which nodes ping which others. No I/O."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_controller.parsing.settings import setting

# The longest delivery of a lease: the expiry of its message on the wire.
DELIVERY_S = 5.0
# Of each node on the ring, so the pairs that are measured grow with the nodes, not their square.
MAX_DISTANCES, MIN_DISTANCES = 64, 8
# Of all nodes. LinkState stores 200,000 pairs; the others are left to near nodes and anchors.
MAX_RING_PAIRS = 150_000
# Peers of a node that are chosen because they are near.
NEAR_PEERS = 2
# And those that are chosen because of what is known of the pair, or for a wanted row.
CHOSEN_PEERS = NEAR_PEERS + 2
# A wanted row is that of a node whose round trips to all others strategies need. With one peer a
# turn of each node, so many rows are measured anew before they are stale.
MAX_ROWS = 15
# Nodes that ping the same one in a turn because its row is wanted: 50 pings a second.
MAX_ROW_PEERS = 250
MAX_ROW_PAIRS = 20_000  # of all rows; LinkState has to store them besides


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Limits on the cost of probing. Every agent refuses a lease outside of their ranges."""

    interval_s: float = setting(
        22.0, "a node that was in no bandwidth test for so long is checked", least=1
    )
    duration_ms: int = setting(
        2000, "how long one bandwidth test may take", least=1000, most=30_000
    )
    max_bytes: int = setting(
        30_000_000, "how many bytes one bandwidth test may send", least=1 << 18, most=1 << 34
    )
    ttl_ms: int = setting(
        5000, "a bandwidth test that has not started by then is dropped", least=100, most=120_000
    )
    port: int = setting(
        5201,
        "where the bandwidth test's server listens, only during the lease; another port must be "
        "[allowed](#the-units) on the boards",
        least=1024,
        most=65_535,
    )
    ping_peers: int = setting(
        8, "how many others each node pings; they [change](network.md#round-trips)", most=256
    )
    ping_interval_s: int = setting(10, "between two rounds of pings", least=1, most=3600)
    ping_count: int = setting(2, "pings to each peer in a round", least=1, most=20)
    ping_ttl_s: int = setting(60, "how long a lease of pings lasts", least=3, most=86_400)


class PingRing:
    """Selects the peers of each node for one turn, the time between two leases.

    First come the anchors, then the nodes that `work` is given, and the others are at some
    distances from the node on the ring of sorted names (kubenurse's ring). All nodes use the same
    distances, so each is pinged by as many others as it pings. A turn begins at the distance
    `start`, where most nodes ended the turn before; so every pair of up to 2 * MAX_DISTANCES nodes
    is measured, and then from its other end. Of more nodes, each measures 2 * MAX_DISTANCES others,
    of thousands fewer, and the other pairs are estimated.
    steps: how many distances each node that `work` was called for has covered.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        anchors: Sequence[str],
        limits: ProbeLimits,
        start: int = 0,
    ) -> None:
        self.steps: list[int] = []
        self._addresses, self._limits, self._start = addresses, limits, start
        self._ring = sorted(addresses)
        self._first = [anchor for anchor in dict.fromkeys(anchors) if anchor in addresses]
        half = range(1, len(self._ring) // 2 + 1)
        most = min(MAX_DISTANCES, max(MIN_DISTANCES, MAX_RING_PAIRS // max(len(self._ring), 1)))
        distances = Random(0).sample(half, min(len(half), most))  # noqa: S311  # no secret
        self._distances = list(
            dict.fromkeys((*distances, *(len(self._ring) - each for each in distances)))
        )

    def work(self, node: str, near: Sequence[str] = ()) -> pb.PingLease:
        """The ping lease of one node. near: nodes to ping besides, up to
        CHOSEN_PEERS, nearest first."""
        ring, limits = self._ring, self._limits
        at = bisect_left(ring, node)
        others = (
            ring[(at + self._distances[(self._start + step) % len(self._distances)]) % len(ring)]
            for step in range(len(self._distances))
        )
        chosen: dict[str, None] = {}
        for each in chain(self._first, near):
            if each != node and each in self._addresses and len(chosen) < limits.ping_peers:
                chosen[each] = None
        steps = 0
        for each in others:
            if len(chosen) == limits.ping_peers:
                break
            steps += 1
            if each != node and each in self._addresses:
                chosen[each] = None
        self.steps.append(steps)
        return pb.PingLease(
            peers=[pb.Peer(node=name, address=self._addresses[name]) for name in chosen],
            interval_s=limits.ping_interval_s,
            count=limits.ping_count,
            ttl_s=limits.ping_ttl_s,
        )
