"""Planners of bandwidth tests, and what they are told of links."""

from collections.abc import Sequence
from math import inf
from typing import Any

from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest
from leadline_controller.telemetry.bandwidth import LinkBandwidth, NodeLink

LAN_MS = 0.3
LATER_S = 2000.0  # all budgets have saved what they can
INTERVAL_S = 22.0
MOST_BYTES = 30_000_000


def lan(_a: str, _b: str) -> float | None:
    return LAN_MS


def known(name: str, mbps: float = 100.0, **changed: Any) -> NodeLink:
    """A node whose bandwidth was measured; `changed` are fields of the measurement."""
    return NodeLink(name, 1000.0, LinkBandwidth(mbps, 0.0, **{"measured_s": inf} | changed))


def suspect(name: str, mbps: float = 5.0, former_mbps: float = 100.0, peer: str = "") -> NodeLink:
    """A node whose last test, with the peer, showed less than the one before."""
    return known(name, mbps, former_mbps=former_mbps, suspected_mbps=mbps, suspect_peer=peer)


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
    planner.finish(lease_id, planned.max_bytes, is_measured=True)


def servers_that_fail(planner: BandwidthPlanner, links: Sequence[NodeLink]) -> list[str]:
    """The servers of four tests of the node "a", all of which fail."""
    servers = []
    for turn in range(4):
        now_s = LATER_S + 100 * turn
        planner._tested_s.update(b=now_s, c=now_s)  # only a asks
        (planned,) = planner.plan(links, lan, now_s)
        servers.append(planned.server)
        begin(planner, planned, now_s)
        planner.finish("x-1", planned.max_bytes, is_measured=False)
    return servers
