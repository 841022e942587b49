"""Boards whose pods request more than the lower bound that is known are tested first."""

from itertools import permutations

import pytest
from leadline_controller.framework.model import Node
from leadline_controller.probing.bandwidth import BandwidthPlanner
from leadline_controller.probing.budgets import BandwidthBudget, PlannedTest
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.telemetry.bandwidth import BandwidthTest, LinkBandwidth, NodeLink
from leadline_controller.telemetry.state import Agent
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder

EXACT = LinkBandwidth(94.0, 0.0, measured_s=90.0)
BOUND = LinkBandwidth(94.0, 0.0, lower_bound=True, is_short=True)
RICH = BandwidthBudget(link_time_share=0.5, bytes_per_day=10**13)


def clients(*links: NodeLink, now_s: float) -> list[str]:
    """Who begins a test, if each board began its last one at 90 s."""
    planner = BandwidthPlanner(RICH)
    planner.plan(links, lambda *_: 1.0, 0.0)
    for link, other in permutations(links, 2):
        names = (link.name, other.name)
        planner.start(
            PlannedTest(*names, 65536, (), dict.fromkeys(names, 0.01)), link.name, 90.0, 91.0
        )
        planner.finish(link.name, 65536, is_measured=True)
    return [test.client for test in planner.plan(links, lambda *_: 1.0, now_s)]


@pytest.mark.parametrize(
    ("wanted_mbps", "bandwidth", "expected"),
    [(150.0, BOUND, ["a"]), (90.0, BOUND, ["a"]), (150.0, EXACT, []), (0.0, None, ["a"])],
)
def test_a_bound_does_not_wait_for_its_turn(
    wanted_mbps: float, bandwidth: LinkBandwidth | None, expected: list[str]
) -> None:
    peer = NodeLink("b", None, LinkBandwidth(940.0, 0.0, measured_s=90.0))
    links = (NodeLink("a", 1000.0, bandwidth, wanted_mbps=wanted_mbps), peer)
    assert clients(*links, now_s=100.0) == expected


def test_of_two_bounds_the_wanted_one_comes_first() -> None:
    links = (NodeLink("a", 1000.0, BOUND), NodeLink("b", 1000.0, BOUND, wanted_mbps=150.0))
    assert clients(*links, now_s=300.0) == ["b"]


def test_the_scheduler_knows_what_pods_request() -> None:
    boards, sent = TelemetryBuilder(), list[pb.Lease]()
    nodes = {name: Node(name, addresses=("192.0.2.1",)) for name in ("n1", "n2")}
    for name in nodes:
        agent = Agent(name, address="192.0.2.1", probes=("iperf3",))
        boards.state.birth(agent, boards.stamp(name))
        for peer in nodes.keys() - {name}:
            boards.state.bandwidth(BandwidthTest(name, peer, 94.0, 0.001, 0.0))
    scheduler = ProbeScheduler(
        boards.state, sent.append, ProbeSettings(), lambda: nodes, lambda: {"n2": 150.0, "n9": 1.0}
    )
    for at_s in range(1, 60):
        scheduler.tick(float(at_s))
    tests = [lease for lease in sent if lease.HasField("bandwidth")]
    assert tests[0].node == "n1"
    assert {lease.bandwidth.role: lease.node for lease in tests[:2]} == {
        pb.BandwidthLease.SERVER: "n1",
        pb.BandwidthLease.CLIENT: "n2",
    }
