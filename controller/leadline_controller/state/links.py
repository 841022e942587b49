"""What was measured between nodes: round trips and bandwidth, each with its age.

Times are seconds on the controller's monotonic clock.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations

from leadline_controller.core.model import Link
from leadline_controller.core.view import LinkTable, NodeTable

# Pairs joined from broker legs grow with the square of the boards, and are a makeshift for
# places without ICMP; past this many boards such a pair stays unknown.
_MAX_LEGS = 64


@dataclass(frozen=True, slots=True)
class LinkReading:
    """What is known of one pair of nodes; the times say when it was measured.

    rtt_method: "icmp", or "mqtt" for a bound made of both boards' round trips to the broker.
    lower_bound: the bandwidth test ran into its byte cap; the link can do at least this.
    """

    a: str
    b: str
    rtt_ms: float | None = None
    rtt_at_s: float = 0.0
    rtt_method: str = ""
    bandwidth_mbps: float | None = None
    bandwidth_at_s: float = 0.0
    lower_bound: bool = False


class LinkState:
    """All pairs of which something was measured."""

    def __init__(self, rtt_ttl_s: float, bandwidth_ttl_s: float) -> None:
        self._rtt_ttl_s = rtt_ttl_s
        self._bandwidth_ttl_s = bandwidth_ttl_s
        self._links: dict[tuple[str, str], LinkReading] = {}
        self._peers: defaultdict[str, set[str]] = defaultdict(set)
        self._legs: dict[str, tuple[float, float]] = {}
        self._version = 0
        self._made: tuple[object, LinkTable] | None = None

    def set_rtt(self, node: str, peer: str, rtt_ms: float, at_s: float) -> None:
        """A round trip by ICMP."""
        link = self._get(node, peer)
        self._set(replace(link, rtt_ms=rtt_ms, rtt_at_s=at_s, rtt_method="icmp"))

    def set_broker_leg(self, node: str, rtt_ms: float, at_s: float) -> None:
        """A board's round trip to the broker, where it may not send ICMP."""
        if node in self._legs or len(self._legs) < _MAX_LEGS:
            self._legs[node] = (rtt_ms, at_s)
            self._version += 1

    def set_bandwidth(
        self, node: str, peer: str, mbps: float, at_s: float, *, lower_bound: bool
    ) -> None:
        """The result of a bandwidth test."""
        link = self._get(node, peer)
        self._set(replace(link, bandwidth_mbps=mbps, bandwidth_at_s=at_s, lower_bound=lower_bound))

    def fresh(self, now_s: float) -> list[LinkReading]:
        """Every pair of which something is known now; what is too old is None."""
        links = {key: self._aged(link, now_s) for key, link in self._links.items()}
        for (a, leg_a), (b, leg_b) in combinations(sorted(self._legs.items()), 2):
            link = links.get((a, b), LinkReading(a, b))
            at_s = min(leg_a[1], leg_b[1])
            if link.rtt_ms is None and now_s - at_s <= self._rtt_ttl_s:
                # Each leg crosses one of the two boards' links and the broker, so together
                # they bound the pair's round trip from above.
                links[a, b] = replace(
                    link, rtt_ms=leg_a[0] + leg_b[0], rtt_at_s=at_s, rtt_method="mqtt"
                )
        return [x for x in links.values() if x.rtt_ms is not None or x.bandwidth_mbps is not None]

    def bandwidth_of(self, node: str, now_s: float) -> tuple[float, float] | None:
        """(Mbit/s, when measured) of the node's best link: what its own interface can do at
        least, for a slow peer says nothing of the node. None when unknown now."""
        known = [
            (link.bandwidth_mbps, link.bandwidth_at_s)
            for peer in self._peers[node]
            if (link := self._aged(self._get(node, peer), now_s)).bandwidth_mbps is not None
        ]
        return max(known, default=None)

    def table(self, nodes: NodeTable, now_s: float) -> LinkTable:
        """The round trips over `nodes`; made again when one changed, or each second, since
        a value may have grown too old."""
        key = (nodes, self._version, int(now_s))
        if self._made is None or self._made[0] != key:
            links = [Link(x.a, x.b, x.rtt_ms, x.bandwidth_mbps) for x in self.fresh(now_s)]
            self._made = (key, LinkTable(nodes.index, links))
        return self._made[1]

    def _get(self, node: str, peer: str) -> LinkReading:
        a, b = sorted((node, peer))
        return self._links.get((a, b)) or LinkReading(a, b)

    def _set(self, link: LinkReading) -> None:
        self._links[link.a, link.b] = link
        self._peers[link.a].add(link.b)
        self._peers[link.b].add(link.a)
        self._version += 1

    def _aged(self, link: LinkReading, now_s: float) -> LinkReading:
        if link.rtt_ms is not None and now_s - link.rtt_at_s > self._rtt_ttl_s:
            link = replace(link, rtt_ms=None)
        if link.bandwidth_mbps is not None and now_s - link.bandwidth_at_s > self._bandwidth_ttl_s:
            link = replace(link, bandwidth_mbps=None)
        return link
