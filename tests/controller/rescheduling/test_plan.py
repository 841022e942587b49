"""Plans: what moves, in which order, and why the others stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import Move
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import Link, Pod, PodAnnotations
from leadline_controller.rescheduling.plan import (
    Plan,
    PlanLimits,
    PlannedMove,
    Stay,
    gain_of,
    of_moves,
    plan_moves,
)
from leadline_controller.strategies.response_time import ResponseTime

from tests.controller.builders import node, pod, view
from tests.kube.moving import Liking
from tests.support.examples import examples


def placed(name: str, on: str, cpu: str = "1") -> Pod:
    made = pod(name, requests={"cpu": cpu}, nodeName=on)
    return replace(made, uid=f"uid-{name}")


def plan_of(
    likes: dict[str, float], pods: list[Pod], nodes: list[Any], rules: PlanLimits | None = None
) -> Plan:
    requested = [sum(p.requests["cpu"] for p in pods if p.node_name == each.name) for each in nodes]
    made = view(nodes, requested={"cpu": requested}, assigned_pods=pods)
    running = [(p, str(p.node_name)) for p in pods]
    return plan_moves(made, running, Rule(Liking(likes), FILTERS), rules or PlanLimits())


def test_the_pod_moves_to_the_best_node_with_its_gain() -> None:
    nodes = [node("n1"), node("n2"), node("n3")]
    plan = plan_of({"n1": 4.0, "n2": 5.0, "n3": 8.0}, [placed("p", "n1")], nodes)

    (move,) = plan.moves
    assert (move.source, move.target, move.score, move.better_score) == ("n1", "n3", 4.0, 8.0)
    assert move.gain == 0.5
    assert plan.stays == ()


@pytest.mark.parametrize(
    ("likes", "said"),
    [
        ({"n1": 9.0, "n2": 8.0}, "no other node is better: liked 9"),
        ({"n1": 9.0, "n2": 10.0}, "n2 gains 10%, less than 20%"),
        ({"n1": float("nan"), "n2": 10.0}, "liking cannot score its node n1"),
        ({"n1": 1.0, "n2": float("nan")}, "no other node is better"),
    ],
)
def test_why_a_pod_stays(likes: dict[str, float], said: str) -> None:
    plan = plan_of(likes, [placed("p", "n1")], [node("n1"), node("n2")])

    assert plan.moves == ()
    (stay,) = plan.stays
    assert (stay.pod, stay.node) == ("default/p", "n1")
    assert said in stay.why


def spread(*replicas_on: str) -> Plan:
    """The plan of response-time for replicas on these nodes; n1 has the shortest round trip."""
    pods = [
        replace(placed(f"r{at}", on), labels={"app": "web"}) for at, on in enumerate(replicas_on)
    ]
    nodes = [node("gate", unschedulable=True), node("n1"), node("n2"), node("n3")]
    pods = [replace(p, annotations=PodAnnotations(user_node="gate")) for p in pods]
    links = [Link("gate", "n1", 5.0), Link("gate", "n2", 20.0), Link("gate", "n3", 40.0)]
    requested = [sum(p.requests["cpu"] for p in pods if p.node_name == n.name) for n in nodes]
    made = view(nodes, links=links, assigned_pods=pods, requested={"cpu": requested})
    running = [(p, str(p.node_name)) for p in pods]
    return plan_moves(made, running, Rule(ResponseTime(), FILTERS), PlanLimits())


def test_replicas_that_are_spread_do_not_pile_up_on_the_best_node() -> None:
    plan = spread("n1", "n2")

    assert plan.moves == ()
    assert "least of the nodes without a replica" in plan.stays[1].why


def test_a_replica_moves_to_the_best_node_that_has_none() -> None:
    """Not to n1, whose score is the best."""
    plan = spread("n1", "n3")

    assert [(m.pod.name, m.target, m.score, m.better_score) for m in plan.moves] == [
        ("r1", "n2", 40.0, 20.0)
    ]


def test_rules_keep_pods_and_doubtful_values_count_last() -> None:
    nodes = [node("n1"), node("n2")]
    pods = [placed("kept", "n1"), placed("doubted", "n1")]
    rules = PlanLimits(
        may_move=lambda p, _: "it is kept" if p.name == "kept" else "",
        reliable=lambda *_: "the bandwidth of n2 is old",
    )

    plan = plan_of({"n1": 1.0, "n2": 2.0}, pods, nodes, rules)

    assert plan.stays == (
        Stay("default/kept", "n1", "it is kept"),
        Stay("default/doubted", "n1", "n2 seems to gain 50%, but the bandwidth of n2 is old"),
    )


def test_the_room_of_a_move_is_gone_for_the_next() -> None:
    nodes = [node("n1", cores=4), node("n2", cores=1)]
    plan = plan_of({"n2": 5.0}, [placed("a", "n1"), placed("b", "n1")], nodes)

    assert [move.target for move in plan.moves] == ["n2"]
    (stay,) = plan.stays
    assert stay.why == "after the moves before it: no other node passes the filters"


def test_the_largest_gain_comes_first_and_a_plan_has_an_end() -> None:
    nodes = [node("n1"), node("n2"), node("n3")]
    pods = [placed("little", "n2"), placed("much", "n1")]
    likes = {"n1": 1.0, "n2": 5.0, "n3": 10.0}
    assert [m.pod.name for m in plan_of(likes, pods, nodes).moves] == ["much", "little"]

    plan = plan_of(likes, pods, nodes, PlanLimits(most=1))

    assert [m.pod.name for m in plan.moves] == ["much"]
    assert "1 moves at most" in plan.stays[0].why


def test_an_id_stands_for_the_moves_and_nothing_else() -> None:
    first = PlannedMove(placed("p", "n1"), "n1", "n2", "why", 1.0, 2.0, 0.5)
    plan = Plan("liking", "higher", (first,))

    assert replace(plan, moves=(replace(first, score=1.1, why="else"),)).id == plan.id
    assert replace(plan, stays=(Stay("a", "b", "c"),)).id == plan.id
    for other in ({"target": "n3"}, {"source": "n3"}, {"pod": placed("q", "n1")}):
        assert replace(plan, moves=(replace(first, **other),)).id != plan.id


def test_a_batch_strategys_moves_become_a_plan() -> None:
    made = view([node("n1"), node("n2")])
    moved = placed("p", "n1")

    plan = of_moves(Liking(), made, [Move(moved, 0, 1, "more room")])

    assert plan.moves == (PlannedMove(moved, "n1", "n2", "more room", makes_room=True),)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
@examples(200)
def test_a_gain_one_way_is_a_loss_the_other(now: float, then: float) -> None:
    gain = gain_of(now, then, "lower")
    assert gain == -gain_of(now, then, "higher") == -gain_of(then, now, "lower")
    assert -2 <= gain <= 2
    assert (gain > 0) == (then < now)
    assert not np.isnan(gain)
