"""Planners of bandwidth tests, what they are told of links, and a cluster whose links are known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from leadline_controller.framework.view import Floats
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest
from leadline_controller.telemetry.bandwidth import NodeBandwidths
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.link_bandwidth import SHORT, LinkBandwidth, NodeLink
from leadline_controller.telemetry.link_belief import SPEEDS_MBPS

LAN_MS = 0.3
LATER_S = 2000.0  # all budgets have saved what they can
INTERVAL_S = 22.0
DURATION_S = 2.0  # that a test may take
MOST_BYTES = 30_000_000
LINK_MBPS = 1000.0


def lan(_a: str, _b: str) -> float | None:
    return LAN_MS


def speeds(least_mbps: float, most_mbps: float) -> Floats:
    """The speeds between these are equally probable."""
    apart = np.abs(np.log(SPEEDS_MBPS / np.sqrt(least_mbps * most_mbps)))
    is_between = apart <= max(np.log(most_mbps / least_mbps) / 2, apart.min() + 1e-9)
    return np.asarray(is_between / is_between.sum(), dtype=np.float64)


def known(name: str, mbps: float = 100.0, **changed: Any) -> NodeLink:
    """A node whose bandwidth was just measured."""
    bandwidth = LinkBandwidth(mbps, 0.0)
    return replace(
        NodeLink(name, LINK_MBPS, bandwidth, speeds(mbps, mbps), "someone", True), **changed
    )


def bound(name: str, mbps: float = 100.0, **changed: Any) -> NodeLink:
    """A node whose link does at least this."""
    bandwidth = LinkBandwidth(mbps, 0.0, lower_bound=True, reason=SHORT)
    return replace(known(name, mbps), bandwidth=bandwidth, belief=speeds(mbps, 1000.0), **changed)


def suspect(name: str, mbps: float = 5.0, former_mbps: float = 100.0, peer: str = "") -> NodeLink:
    """A node whose last test, with the peer, showed less than the one before."""
    bandwidth = LinkBandwidth(mbps, 0.0, former_mbps=former_mbps, suspected_mbps=mbps)
    belief = (speeds(mbps, mbps) + speeds(former_mbps, former_mbps)) / 2
    return replace(known(name), bandwidth=bandwidth, belief=belief, last_peer=peer or "someone")


def planner_of(
    links: Sequence[NodeLink], budget: BandwidthBudget | None = None, **planning: Any
) -> BandwidthPlanner:
    """A planner whose budgets have saved since time 0."""
    planner = BandwidthPlanner(budget or BandwidthBudget(), **planning)
    assert planner.plan([known(link.name) for link in links], lan, 0.0) == []
    return planner


def planned_for(
    links: Sequence[NodeLink], now_s: float = LATER_S, **planning: Any
) -> list[PlannedTest]:
    return planner_of(links, **planning).plan(links, lan, now_s)


def begin(
    planner: BandwidthPlanner, planned: PlannedTest, now_s: float, lease_id: str = "x-1"
) -> None:
    planner.start(planned, lease_id, now_s, now_s + 10.0)


def finish(
    planner: BandwidthPlanner, planned: PlannedTest, now_s: float, lease_id: str = "x-1"
) -> None:
    """A test that is done at once."""
    begin(planner, planned, now_s, lease_id)
    planner.finish(lease_id, planned.max_bytes, 100.0)


class Cluster:
    """A planner, and what is believed of links whose true speeds are known. Each tick, the planned
    tests are done at once."""

    def __init__(
        self,
        true_mbps: Mapping[str, float],
        interface_mbps: float | None = 100.0,
        rtt_ms: float = LAN_MS,
        **planning: Any,
    ) -> None:
        self.true_mbps = dict(true_mbps)
        self.interface_mbps: dict[str, float | None] = dict.fromkeys(true_mbps, interface_mbps)
        self.rtt_ms = rtt_ms
        self.planner = BandwidthPlanner(BandwidthBudget(), **planning)
        self.bandwidths = NodeBandwidths(1800.0)
        self.hindered = dict[str, float]()  # the rate of tests with a busy board, Mbit/s
        self.failing = set[str]()
        self.now_s = 0.0
        self.link_s = dict.fromkeys(true_mbps, 0.0)
        self.tests: list[PlannedTest] = []

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            links = [
                NodeLink(
                    name=name,
                    link_mbps=self.interface_mbps[name],
                    bandwidth=self.bandwidths.of(name, self.now_s),
                    belief=self.bandwidths.belief(name, self.now_s),
                    last_peer=self.bandwidths.last_peer(name),
                    is_measured=self.bandwidths.is_measured(name),
                )
                for name in self.true_mbps
            ]
            planned = self.planner.plan(links, lambda *_: self.rtt_ms, self.now_s)
            for number, each in enumerate(planned):
                self._do(each, f"{self.now_s}-{number}")
            self.now_s += 1.0

    def _do(self, planned: PlannedTest, lease_id: str) -> None:
        self.tests.append(planned)
        ends = (planned.client, planned.server)
        most_s = planned.most_s(DURATION_S)
        self.planner.start(planned, lease_id, self.now_s, self.now_s + 0.5, most_s)
        path_mbps = min(self.true_mbps[end] for end in ends)
        for end in ends:
            self.link_s[end] += planned.max_bytes * 8e-6 / self.true_mbps[end]
        if self.failing.intersection(ends):
            self.planner.finish(lease_id, planned.max_bytes, None)
            return
        held = [self.hindered[end] for end in ends if end in self.hindered]
        mbps = min([path_mbps, *held])
        if planned.max_bytes * 8e-6 / mbps > most_s:  # the agents end it
            self.planner.finish(lease_id, planned.max_bytes, None)
            return
        seconds = max(planned.max_bytes * 4e-6 / mbps, self.rtt_ms / 1000)
        rate = planned.max_bytes * 4e-6 / seconds
        test = BandwidthTest(*ends, rate, seconds, self.now_s, self.rtt_ms, bool(held))
        self.planner.finish(lease_id, planned.max_bytes, test.window().high_mbps)
        self.bandwidths.add(test, self.interface_mbps)

    def of(self, node: str) -> LinkBandwidth:
        found = self.bandwidths.of(node, self.now_s)
        assert found is not None
        return found

    def until(self, node: str, mbps: float, most_s: int) -> float:
        """Seconds until this much is believed of the node, within a fifth."""
        start_s = self.now_s
        while not 0.8 <= self.of(node).mbps / mbps <= 1.25:
            assert self.now_s - start_s < most_s, self.of(node)
            self.run(1)
        return self.now_s - start_s
