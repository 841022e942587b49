"""Batch scheduling: every step of a plan passes the filters, or is dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import (
    Allowed,
    BatchPlan,
    BatchStrategy,
    Move,
    Running,
    checked_plan,
    decide_as_planned,
    decide_batch,
    decides_together,
    in_steps,
)
from leadline_controller.framework.cycle import Better, Decision, Rule, Scores
from leadline_controller.framework.model import CPU, MEMORY, PODS, Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.leadline import Leadline

from tests.contracts.clusters import fingerprint
from tests.controller.builders import GIB, node, pod, view


@dataclass(frozen=True)
class Planned(BatchStrategy):
    """Returns a fixed plan; a single pod gets the first node."""

    name: ClassVar[str] = "planned"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "none"
    needs: ClassVar[tuple[str, ...]] = ()

    made: BatchPlan = field(default_factory=BatchPlan)
    saw: dict[str, list[bool]] = field(default_factory=dict)

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        total = -candidates.astype(np.float64)
        return Scores(candidates, total, np.array([0]), lambda _: "the first")

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Mapping[str, int]:
        return pod.requests

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        for each in [*pending, *(there for there, _ in running)]:
            self.saw[each.key] = allowed(each).tolist()
        return self.made


NODES = [node("a", cores=2), node("b", cores=2), node("c", cores=4)]


def asks(name: str, cpu: int, **fields: object) -> Pod:
    return pod(name, requests={"cpu": str(cpu)}, **fields)


def run(
    pods: Sequence[Pod], running: Sequence[Running] = (), **plan: object
) -> tuple[list[Decision], BatchPlan, ClusterView, Planned]:
    cluster = view(NODES)
    for each, at in running:
        cluster = cluster.with_placement(each, at)
    strategy = Planned(BatchPlan(**plan))  # type: ignore[arg-type]
    return *decide_batch(cluster, pods, running, Rule(strategy, FILTERS)), strategy


def test_the_plan_is_followed_and_charged() -> None:
    decisions, _, after, _ = run(
        [asks("p", 1), asks("q", 3)],
        placed={"default/p": 1, "default/q": 2},
        why={"default/p": "so"},
    )
    assert [(d.node, d.why) for d in decisions] == [
        ("b", "so"),
        ("c", "as planned for the whole batch"),
    ]
    assert after.requested_of(CPU).tolist() == [0, 1000, 3000]
    assert decisions[0].scores() == {"a": (0.0, {}), "b": (-1.0, {}), "c": (-2.0, {})}
    assert decisions[0].priorities() == {"a": 9, "b": 10, "c": 0}, "the plan's choice is the best"
    assert decisions[1].scores() == {"c": (-2.0, {})}
    assert decisions[1].rejected()["a"] == ["NodeResourcesFit: insufficient cpu: needs 3, has 2"]


def test_a_pod_without_a_plan_is_decided_on_alone() -> None:
    decisions, *_ = run([asks("p", 1)])
    assert (decisions[0].node, decisions[0].why) == ("a", "the first")


def test_a_placement_that_does_not_pass_is_decided_on_alone_or_stays_pending() -> None:
    decisions, *_ = run([asks("p", 3), asks("q", 5)], placed={"default/p": 0, "default/q": 2})
    assert decisions[0].node == "c"
    assert decisions[1].node is None
    assert decisions[1].why == "0 of 3 nodes fit: 3 NodeResourcesFit"


def test_planned_pods_with_anti_affinity_are_kept_apart() -> None:
    shy = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
    cluster = view([node(n, labels={"kubernetes.io/hostname": n}) for n in "ab"])
    pods = [pod(n, labels={"app": "web"}, affinity=shy) for n in "pq"]
    strategy = Planned(BatchPlan(placed={"default/p": 1, "default/q": 1}))
    decisions, _, _ = decide_batch(cluster, pods, [], Rule(strategy, FILTERS))
    assert [d.node for d in decisions] == ["b", "a"]


def test_a_move_makes_room_for_a_placement() -> None:
    old = asks("old", 2)
    move = Move(old, 0, 2, "makes room", ("default/p",))
    decisions, plan, after, _ = run(
        [asks("p", 2)], [(old, 0)], placed={"default/p": 0}, moves=(move,)
    )
    assert decisions[0].node == "a"
    assert plan.moves == (move,)
    assert after.requested_of(CPU).tolist() == [2000, 0, 2000]
    assert after.assigned_pods.node.tolist() == [2, 0]


def test_two_pods_may_change_places() -> None:
    one, two = asks("one", 2), asks("two", 2)
    moves = (Move(one, 0, 1, "x"), Move(two, 1, 0, "x"))
    _, plan, after, _ = run([], [(one, 0), (two, 1)], moves=moves)
    assert plan.moves == moves
    assert after.requested_of(CPU).tolist() == [2000, 2000, 0]


def test_a_move_that_does_not_pass_is_dropped_with_those_that_depend_on_it() -> None:
    big, small, wall = asks("big", 2), asks("small", 1), asks("wall", 1)
    refused = Move(big, 0, 1, "x")  # the wall stays there
    leaning = Move(small, 1, 2, "x", ("default/big",))
    running = [(big, 0), (small, 1), (wall, 1)]
    _, plan, after, _ = run([], running, moves=(leaning, refused))
    assert plan.moves == ()
    assert after.requested_of(CPU).tolist() == [2000, 2000, 0]


def test_a_move_whose_purpose_failed_is_dropped() -> None:
    old = asks("old", 1)
    move = Move(old, 0, 2, "makes room", ("default/p",))
    decisions, plan, after, _ = run(
        [asks("p", 3)], [(old, 0)], placed={"default/p": 0}, moves=(move,)
    )
    assert decisions[0].node == "c"
    assert plan.moves == ()
    assert after.requested_of(CPU).tolist() == [1000, 0, 3000]


def test_allowed_includes_nodes_on_which_others_would_have_to_make_room() -> None:
    full = [(asks(name, 2), at) for at, name in enumerate("xy")]
    *_, strategy = run([asks("p", 2), asks("q", 3)], full)
    assert strategy.saw["default/p"] == [True, True, True]
    assert strategy.saw["default/q"] == [False, False, True]
    assert strategy.saw["default/x"] == [True, True, True]


def test_a_pod_that_is_terminating_or_unreadable_is_not_moved() -> None:
    going, odd = replace(asks("g", 1), terminating=True), replace(asks("o", 1), problem="odd")
    *_, strategy = run([], [(going, 0), (odd, 1)])
    assert strategy.saw == {"default/g": [False] * 3, "default/o": [False] * 3}


def test_a_pod_that_fails_before_the_filters_is_not_planned() -> None:
    gated = pod("p", schedulingGates=[{"name": "wait"}])
    decisions, _, _, strategy = run([gated], placed={"default/p": 0})
    assert strategy.saw == {}
    assert decisions[0].node is None
    assert decisions[0].why == "the pod's scheduling gates hold it back"


def test_removing_a_pod_undoes_its_placement() -> None:
    cluster = view(NODES, requested={CPU: [500, 0, 0], MEMORY: [GIB, 0, 0], PODS: [1, 0, 0]})
    mover = pod(
        "m",
        labels={"app": "m"},
        annotations={"bandwidth-mbps": "5"},
        requests={"cpu": "1", "memory": "1Gi"},
    )
    there = cluster.with_placement(pod("r", labels={"app": "r"}), 0)
    before = fingerprint(there)
    after = there.with_placement(mover, 0)
    assert fingerprint(after) != before
    back = after.without_placement(mover, 0)
    assert back.assigned_pods.rows.tolist() == there.assigned_pods.rows.tolist()
    assert back.requested_of(CPU).tolist() == there.requested_of(CPU).tolist()
    assert back.requested_of(MEMORY).tolist() == there.requested_of(MEMORY).tolist()
    np.testing.assert_array_equal(back.bandwidth_requested_mbps, there.bandwidth_requested_mbps)


def test_a_running_pod_is_allowed_only_where_it_may_go() -> None:
    here, free = asks("here", 1), asks("free", 1)
    cluster = view(NODES).with_placement(here, 0).with_placement(free, 1)
    strategy = Planned()
    running = [(here, 0), (free, 1)]
    checked_plan(
        cluster,
        [asks("p", 1)],
        running,
        Rule(strategy, FILTERS),
        may_go=lambda pod: np.array([pod.name == "free", False, pod.name == "free"]),
    )
    assert strategy.saw == {
        "default/p": [True, True, True],
        "default/here": [False, False, False],
        "default/free": [True, False, True],
    }


def test_a_pod_whose_planned_node_is_taken_meanwhile_is_decided_on_alone() -> None:
    plan, wanted = BatchPlan({"default/p": 1}), asks("p", 2)
    cluster = view(NODES)
    decisions = [
        decide_as_planned(there, wanted, plan, Rule(Planned(), FILTERS))
        for there in (cluster, cluster.with_placement(asks("other", 1), 1))
    ]
    assert [(d.node, d.why) for d in decisions] == [
        ("b", "as planned for the whole batch"),
        ("a", "the first"),
    ]


def steps(*moves: Move, cores: Sequence[float] = (2, 2), cloud: float = 0) -> list[tuple[str, int]]:
    """The steps of these moves: of pods of two cores on edge nodes with these cores, the last node
    being the cloud's."""
    nodes = [node(f"e{at}", cores=each) for at, each in enumerate(cores)]
    nodes.append(node("far", cores=cloud, tier="cloud"))
    cluster = view(nodes)
    for move in moves:
        cluster = cluster.with_placement(move.pod, move.source)
    return [(step.pod.name, step.target) for step in in_steps(cluster, moves, FILTERS)]


def test_a_move_comes_after_the_one_that_leaves_its_room() -> None:
    first, then = Move(asks("x", 2), 0, 1, ""), Move(asks("y", 2), 1, 2, "")
    assert steps(first, then, cloud=2) == [("y", 2), ("x", 1)]


def test_of_two_that_change_places_one_goes_to_the_cloud_and_stays_there_for_now() -> None:
    swap = Move(asks("x", 2), 0, 1, "packs"), Move(asks("y", 2), 1, 0, "packs")
    assert steps(*swap, cloud=2) == [("x", 2), ("y", 0)]
    assert steps(*swap, cloud=0) == [], "nobody moves for nothing"


def test_moves_that_wait_for_nothing_keep_their_order() -> None:
    moves = [Move(asks(name, 1), 0, 1, "") for name in "xyz"]
    assert steps(*moves, cores=(4, 4)) == [("x", 1), ("y", 1), ("z", 1)]
    assert steps(*moves, cores=(4, 2)) == [("x", 1), ("y", 1)]


def test_only_a_strategy_without_a_rule_for_single_pods_decides_together() -> None:
    """The others may be shadows, which decide pod by pod."""
    assert decides_together(Planned(BatchPlan()))
    assert decides_together(KubeDsm())
    assert not decides_together(Leadline())
    assert not decides_together(KubeDefault())
