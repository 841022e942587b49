"""Traffic follows pods when they move, and must not make them wander."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.cycle import Rule, Strategy
from leadline_controller.framework.model import DeclaredPeer, Link, Pod, PodAnnotations
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.traffic import PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.preferences import rule
from leadline_controller.rescheduling.plan import Plan, PlanLimits, plan_moves
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.leadline import Leadline
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.strategies.response_time import ResponseTime

from tests.controller.builders import node, pod, view

BOARDS, APPS = ("a", "b"), ("front", "db")
SERVICES = [
    PodSelector("Service", "default", app, (Requirement("app", "In", (app,)),)) for app in APPS
]
STRATEGIES: list[Strategy] = [
    Dacs(lambda_s=0.0),
    Dacs(),
    ResponseTime(),
    Leadline(),
    NetSched(peers=6.0),
    NetSched(cpu=0.0, memory=0.0, disk=0.0, peers=1.0),
]


def running(name: str, on: str, *peers: DeclaredPeer) -> Pod:
    made = pod(name, labels={"app": name}, requests={"cpu": "100m"}, nodeName=on)
    return replace(made, uid=f"uid-{name}", annotations=PodAnnotations(peers=peers))


def cluster(pods: list[Pod], rtt_ms: float, mbps: float, requests: float) -> ClusterView:
    """Two boards on which the two pods exchange so much. What boards count and what tests of their
    links get is with this traffic."""
    front, db = pods
    apart = front.node_name != db.node_name
    rates = mbps, requests, requests

    def towards(other: Pod) -> tuple[PeerTraffic, ...]:
        return (PeerTraffic(workload_of(other), f"default/{other.name}", *rates),)

    traffic = Traffic(
        {workload_of(front): towards(db), workload_of(db): towards(front)},
        flowing_mbps=dict.fromkeys(BOARDS, mbps) if apart else {},
    )
    packets = 10.0 + (100.0 * mbps if apart else 0.0)
    metrics = {name: [20.0, 20.0] for name in METRICS}
    metrics |= {"bandwidth_mbps": [100.0 - (mbps if apart else 0.0)] * 2}
    metrics |= {f"packets_{way}_per_s": [packets] * 2 for way in ("sent", "received")}
    requested = [sum(p.requests["cpu"] for p in pods if p.node_name == each) for each in BOARDS]
    return view(
        [node(name) for name in BOARDS],
        links=[Link(*BOARDS, rtt_ms)],
        assigned_pods=pods,
        requested={"cpu": requested},
        metrics=metrics,
        errors=dict.fromkeys(METRICS, 1.0),
        objects=SERVICES,
        traffic=traffic,
    )


def plan(seen: ClusterView, pods: list[Pod], strategy: Strategy) -> Plan:
    on_nodes = [(each, str(each.node_name)) for each in pods]
    return plan_moves(seen, on_nodes, Rule(strategy, FILTERS, prefer=rule("on")), PlanLimits())


def moved(pods: list[Pod], made: Plan) -> list[Pod]:
    target = {move.pod.uid: move.target for move in made.moves}
    return [replace(each, node_name=target.get(each.uid, each.node_name)) for each in pods]


@given(
    strategy=st.sampled_from(STRATEGIES),
    on=st.tuples(st.sampled_from(BOARDS), st.sampled_from(BOARDS)),
    declared=st.booleans(),
    rtt_ms=st.floats(0.1, 500),
    mbps=st.floats(0.01, 90),
    requests=st.floats(0.01, 1000),
)
def test_after_one_move_at_most_two_that_talk_stay(
    strategy: Strategy,
    on: tuple[str, str],
    declared: bool,
    rtt_ms: float,
    mbps: float,
    requests: float,
) -> None:
    peers = [(DeclaredPeer(app, mbps, requests),) if declared else () for app in reversed(APPS)]
    pods = [running(app, at, *peer) for app, at, peer in zip(APPS, on, peers, strict=True)]
    first = plan(cluster(pods, rtt_ms, mbps, requests), pods, strategy)
    assert len(first.moves) <= (on[0] != on[1])
    pods = moved(pods, first)
    again = plan(cluster(pods, rtt_ms, mbps, requests), pods, strategy)
    assert again.moves == ()
    assert len(again.stays) == 2


@pytest.mark.parametrize(
    "strategy", [Dacs(lambda_s=0.0), ResponseTime(), Leadline(), NetSched(peers=20.0)]
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_pod_moves_to_its_peer(strategy: Strategy, declared: bool) -> None:
    peers = (DeclaredPeer("db", 2.0, 50.0),) if declared else ()
    pods = [running("front", "a", *peers), running("db", "b")]
    made = plan(cluster(pods, 400.0, 2.0, 50.0), pods, strategy)
    assert [(move.source, move.target) for move in made.moves] in ([("a", "b")], [("b", "a")])
    assert "db" in made.moves[0].why or "front" in made.moves[0].why or "peers" in made.moves[0].why
    assert (
        plan(cluster(moved(pods, made), 400.0, 2.0, 50.0), moved(pods, made), strategy).moves == ()
    )
