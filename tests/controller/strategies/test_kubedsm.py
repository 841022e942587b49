"""KubeDSM over whole clusters: the conversion of views and plans. The algorithms themselves
are in strategies/kubedsm/test_packing.py and strategies/kubedsm/test_decision.py."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchPlan, Running, decide_batch
from leadline_controller.framework.cycle import Decision, Rule, decide
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.options import OptionError, build
from leadline_controller.framework.view import Bools, ClusterView, NodeTable
from leadline_controller.strategies.kubedsm import BOUNDED, EXACT, KubeDsm

from tests.contracts.clusters import case, fingerprint
from tests.controller.builders import node, pod, view

E1 = node("e1", cores=4, gib=4, tier="edge")
E2 = node("e2", cores=4, gib=4, tier="edge")
FAR = node("far", cores=32, gib=64, tier="cloud")
NODES = (E1, E2, FAR)


def asks(name: str, cores: int, gib: int, app: str | None = None, **fields: Any) -> Pod:
    labels = {"app": app or name}
    return pod(name, labels=labels, requests={"cpu": f"{cores}", "memory": f"{gib}Gi"}, **fields)


def run(
    pods: Sequence[Pod],
    running: Sequence[tuple[Pod, str]] = (),
    nodes: Sequence[Node] = NODES,
    **options: Any,
) -> tuple[dict[str, str | None], list[tuple[str, str, str]], BatchPlan, list[Decision]]:
    """Node of each pod, (pod, from, to) of each move."""
    cluster: ClusterView = view(nodes)
    there: list[Running] = [(each, cluster.table.index[name]) for each, name in running]
    for each, at in there:
        cluster = cluster.with_placement(each, at)
    strategy = KubeDsm(**options)
    decisions, plan, _ = decide_batch(cluster, pods, there, Rule(strategy, FILTERS))
    names = cluster.table.names
    moves = [(move.pod.name, names[move.source], names[move.target]) for move in plan.moves]
    return {d.pod.name: d.node for d in decisions}, moves, plan, decisions


def test_a_batch_is_packed_tightly_on_the_edge() -> None:
    # 3 GiB and 1 GiB fill a node together, and two of 2 GiB the other.
    pods = [asks("a", 2, 2, "x"), asks("b", 1, 3), asks("c", 2, 2, "x"), asks("d", 1, 1)]
    placed, moves, plan, decisions = run(pods)
    assert placed["a"] == placed["c"] != placed["b"] == placed["d"]
    assert set(placed.values()) == {"e1", "e2"}
    assert (moves, plan.method) == ([], EXACT)
    assert all(decision.scores()[str(decision.node)][0] for decision in decisions)


def test_what_the_edge_cannot_hold_goes_to_the_cloud() -> None:
    placed, *_ = run([asks(f"p{i}", 1, 3, "x") for i in range(3)])
    assert sorted(map(str, placed.values())) == ["e1", "e2", "far"]


def test_without_a_cloud_it_stays_pending_with_the_filters_reasons() -> None:
    _, _, _, decisions = run([asks(f"p{i}", 1, 3, "x") for i in range(3)], nodes=(E1, E2))
    left = [decision for decision in decisions if decision.node is None]
    assert [decision.why for decision in left] == ["0 of 2 nodes fit: 2 NodeResourcesFit"]


def test_of_several_cloud_nodes_the_one_with_the_largest_free_share_wins() -> None:
    clouds = [node(f"c{i}", cores=cores, gib=64, tier="cloud") for i, cores in enumerate((8, 16))]
    # 8 cores: 6/8 free after the first there; 16 cores: 14/16.
    placed, *_ = run(
        [asks(f"p{i}", 2, 9, "x") for i in range(3)],
        nodes=(E1, *clouds),
        running=[(asks("there", 8, 1), "c1")],
    )
    # Free shares: c0 8/8, c1 8/16. Then c0 6/8, then 4/8 = c1's 8/16: the first of equals.
    assert list(placed.values()) == ["c0", "c0", "c0"]


def test_a_node_without_a_tier_is_edge() -> None:
    placed, *_ = run([asks("p", 1, 1)], nodes=(FAR, node("plain")))
    assert placed == {"p": "plain"}


def test_the_three_kinds_of_migration() -> None:
    # The worked example of docs/examples/kubedsm.yaml, and then one within the edge.
    idle = asks("idle", 2, 3, annotations={"qos-edge-ratio": "0"})
    web = [asks(f"web-{i}", 1, 1, "web") for i in range(2)]
    running = [(web[0], "e1"), (web[1], "far"), (idle, "e2")]
    assert run([asks("cam", 1, 4)], running)[0] == {"cam": "far"}, "no node has room for it"
    placed, moves, plan, _ = run([asks("cam", 1, 4)], running, room="capacity")
    assert placed == {"cam": "e2"}
    assert moves == [("idle", "e2", "far"), ("web-1", "far", "e1")]
    assert plan.moves[0].room_for
    _, moves, _, _ = run([], [(web[0], "e1"), (web[1], "e2")])
    assert moves in ([("web-0", "e1", "e2")], [("web-1", "e2", "e1")])


def test_without_suggestions_and_with_no_migrations_allowed_nothing_moves() -> None:
    running = [(asks("web", 1, 1), "far")]
    assert run([], running, suggest=0)[1] == []
    assert run([], running, m_c2e=0, m_er=0)[1] == []
    assert run([], running)[1] == [("web", "far", "e1")]


def test_the_last_running_replica_of_a_service_stays_if_told_so() -> None:
    alone = [(asks("web", 1, 1), "far")]
    assert run([], alone)[1] == [("web", "far", "e1")]
    assert run([], alone, last_replica="stays")[1] == []
    both = [(asks(f"web-{i}", 1, 1, "web"), "far") for i in range(2)]
    assert len(run([], both)[1]) == 2
    assert len(run([], both, last_replica="stays")[1]) == 1
    # Two that are apart could be together; the only one of a service does not move for that.
    apart = [(asks("x", 1, 1), "e1"), (asks("y", 1, 1), "e2")]
    assert len(run([], apart)[1]) == 1
    assert run([], apart, last_replica="stays")[1] == []
    assert run([asks("new", 1, 1)], last_replica="stays")[0] == {"new": "e1"}


def test_the_programs_qos_spreads_over_services_what_the_papers_gives_to_one() -> None:
    # Room for two of four. F pays for a share that reaches its target; below it, F is linear and
    # indifferent, and the program's square root prefers one pod of each service.
    only = (node("e", cores=4, gib=4, tier="edge"), FAR)
    pods = [asks(f"{app}{i}", 1, 2, app) for app in "xy" for i in range(2)]
    placed = run(pods, nodes=only, suggest=0)[0]
    assert placed in (
        {"x0": "e", "x1": "e", "y0": "far", "y1": "far"},
        {"x0": "far", "x1": "far", "y0": "e", "y1": "e"},
    )
    # 0.99 for one service is more than 0.8 * sqrt(1/2) = 0.57, and less than twice that.
    placed = run(pods, nodes=only, suggest=0, qos="program")[0]
    assert placed in ({"x0": "e", "y0": "e", "x1": "far", "y1": "far"},)


def test_no_pod_is_migrated_for_a_pod_that_then_finds_no_node() -> None:
    # Free are 2 GiB on e1 and 1 on e2; with x gone it is 4 in all, what p wants, but 3 on e1. x's
    # service wants nothing of the edge, so QoS would only fall from 10.1 to 10 for it.
    running = [
        (asks("x", 1, 1, annotations={"qos-edge-ratio": "0"}), 0),
        (asks("z", 1, 1, nodeSelector={"on": "e1"}), 0),
        (asks("y", 1, 3, nodeSelector={"on": "e2"}), 1),
        (asks("p", 1, 4), 2),
    ]
    cluster = view(NODES)
    for pod_, at in running:
        cluster = cluster.with_placement(pod_, at)
    mine = {"z": [True, False, False], "y": [False, True, False]}

    def allowed(pod_: Pod) -> Bools:
        return np.array(mine.get(pod_.name, [True] * 3))

    for room in ("free", "capacity"):
        assert KubeDsm(m_er=0, room=room).plan(cluster, [], running, allowed).moves == ()


def test_a_pod_moves_to_the_edge_only_if_it_passes_the_filters() -> None:
    picky = asks("web", 1, 1, nodeSelector={"disk": "ssd"})
    assert run([], [(picky, "far")])[1] == []
    fast = node("e3", cores=4, gib=4, tier="edge", labels={"disk": "ssd"})
    assert run([], [(picky, "far")], nodes=(*NODES, fast))[1] == [("web", "far", "e3")]


def test_every_resource_must_fit_and_not_only_cpu_and_memory() -> None:
    tight = node("tight", cores=4, gib=4, pods=1, tier="edge")
    placed, _, _, decisions = run([asks("p", 1, 1, "x"), asks("q", 1, 1, "x")], nodes=(tight, FAR))
    assert sorted(map(str, placed.values())) == ["far", "tight"]
    assert all("its service" in decision.why for decision in decisions), "as planned"


def test_the_target_of_a_service_is_its_pods_annotation_or_the_option() -> None:
    # Room for one. With equal targets the smaller pod is worth no more, and comes first on a tie;
    # one that asks for nothing of the edge leaves it to the other.
    only = (node("e", cores=4, gib=4, tier="edge"), FAR)
    small, large = asks("s", 3, 3), asks("l", 3, 4)
    assert run([small, large], nodes=only, suggest=0)[0] == {"s": "e", "l": "far"}
    unhurried = asks("s", 3, 3, annotations={"qos-edge-ratio": "0"})
    assert run([unhurried, large], nodes=only, suggest=0)[0] == {"s": "far", "l": "e"}
    assert run([unhurried, large], nodes=only, suggest=0, qos_target=0)[0]["s"] == "e"


def test_too_many_possibilities_are_searched_within_bounds_and_reported_so() -> None:
    nodes = [node(f"n{i}", cores=16, gib=16, tier="edge") for i in range(9)]
    pods = [asks(f"p{i}", 1 + i % 3, 1 + i % 4) for i in range(20)]
    placed, _, plan, decisions = run(pods, nodes=(*nodes, FAR))
    assert plan.method == BOUNDED
    assert "far" not in placed.values()
    assert BOUNDED in decisions[0].why


def test_one_pod_alone_goes_where_it_packs_best() -> None:
    # e1 is used 2/4 of both: 3/4 * 3/4 - 1/4 = 0.3125. Empty e2: 1/16. The cloud is for need only.
    cluster = view(NODES).with_placement(asks("there", 2, 2), 0)
    one = asks("p", 1, 1)
    scores = KubeDsm().score(cluster, one, np.arange(3))
    assert scores.parts["packing_growth"][:2].tolist() == pytest.approx([0.3125, 0.0625])
    assert scores.total.tolist() == pytest.approx([1.3125, 1.0625, 1.0])
    decision = decide(cluster, one, Rule(KubeDsm(), FILTERS))
    assert (decision.node, decision.why) == (
        "e1",
        "on the edge, where it leaves the least fragmentation, with 1 of 1 pods of its service",
    )
    away = decide(cluster, asks("big", 5, 1), Rule(KubeDsm(), FILTERS))
    assert (away.node, away.why) == (
        "far",
        "no edge node can take it; the cloud node with the most room, "
        "with 0 of 1 pods of its service on the edge",
    )
    again = decide(cluster, asks("there-2", 1, 1, "there"), Rule(KubeDsm(), FILTERS))
    assert again.why.endswith("with 2 of 2 pods of its service")


def test_an_edge_only_cluster_and_one_without_an_edge() -> None:
    assert run([asks("p", 1, 1)], nodes=(FAR,))[0] == {"p": "far"}
    assert run([asks("p", 1, 1)], nodes=(E1,))[0] == {"p": "e1"}
    assert run([], nodes=(E1,))[0] == {}


@given(seed=st.integers(0, 2**32), room=st.sampled_from(["free", "capacity"]))
def test_whatever_the_cluster_every_step_passes_the_filters(seed: int, room: str) -> None:
    random, strategy, drawn = Random(seed), KubeDsm(room=room), case(seed)
    cluster, running = drawn.cluster, []
    nodes = [replace(n, tier=random.choice(["edge", "cloud", ""])) for n in cluster.nodes]
    cluster = replace(cluster, table=NodeTable(nodes))
    for number in range(4):  # pods like the wanted one that run somewhere already
        one = replace(drawn.wanted, name=f"old-{number}", labels={"app": f"{number % 2}"})
        decision = decide(cluster, one, Rule(strategy, FILTERS, random))
        if decision.node is not None:
            at = cluster.table.index[decision.node]
            cluster = cluster.with_placement(one, at, volumes=decision.volumes())
            running.append((one, at))
    pods = [replace(drawn.wanted, name=f"new-{number}") for number in range(3)]
    before = fingerprint(cluster)
    decisions, plan, after = decide_batch(
        cluster, pods, running, Rule(strategy, FILTERS, Random(seed))
    )
    assert fingerprint(cluster) == before
    assert [decision.pod for decision in decisions] == pods
    assert all(decision.node not in decision.rejected() for decision in decisions)
    assert len({move.pod.key for move in plan.moves}) == len(plan.moves)
    for resource, capacity in ((name, cluster.table.allocatable(name)) for name in after.requested):
        over = after.requested_of(resource) > np.maximum(capacity, cluster.requested_of(resource))
        assert not over.any()


@pytest.mark.parametrize("wrong", [{"b": 1}, {"a": 20}, {"gamma": 0.5}])
def test_constants_must_satisfy_equation_5(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="b < a < gamma"):
        build(KubeDsm, wrong)
