"""Algorithm 1 with numbers worked by hand; the worked example is in docs/examples."""

import json
from collections.abc import Mapping

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Rule, decide, decide_in_turn
from leadline_controller.framework.model import Link, Node, Pod, Taint
from leadline_controller.framework.options import build
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.response_time import (
    THRESHOLD,
    ResponseTime,
    least_without_replica,
    replica_to_remove,
)

from tests.controller.builders import node, pod, view

MASTER = node("m", taints=(Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),))
WORKERS = [node("n1"), node("n2"), node("n3", labels={"leadline.dev/class": "pi3"})]
# Predictions from the master: n1 10 + 50, n2 40 + 5, n3 20 + 70 ms.
LINKS = [
    Link("m", "n1", 10.0),
    Link("m", "n2", 40.0),
    Link("m", "n3", 20.0),
    Link("n1", "n2", 100.0),
]
PROFILE = {"n1": 50, "n2": 5, "pi3": 70}
WEB = {"app": "web"}


def cluster(links: list[Link] | None = None, assigned_pods: list[Pod] | None = None) -> ClusterView:
    return view(
        [MASTER, *WORKERS],
        links=LINKS if links is None else links,
        assigned_pods=assigned_pods or [],
    )


def wanted(
    name: str = "web",
    labels: Mapping[str, str] = WEB,
    profile: Mapping[str, float] | None = PROFILE,
    **annotations: str,
) -> Pod:
    given = {key.replace("_", "-"): text for key, text in annotations.items()}
    if profile is not None:
        given["profile-ms"] = json.dumps(profile)
    return pod(name, labels=labels, annotations=given)


def decided(seen: ClusterView, asked: Pod, **options: float | str) -> Decision:
    return decide(seen, asked, Rule(build(ResponseTime, options), FILTERS))


def totals(decision: Decision) -> dict[str, float | None]:
    return {name: total for name, (total, _) in decision.scores().items()}


def test_lines_1_to_3_ping_from_the_master_plus_profile() -> None:
    decision = decided(cluster(), wanted())
    assert totals(decision) == {"n1": 60.0, "n2": 45.0, "n3": 90.0}
    assert decision.scores()["n3"][1] == {"ping_ms": 20.0, "profiling_ms": 70.0}
    assert decision.node == "n2"
    assert decision.why == "45.0 ms predicted (ping 40.0, profiling 5.0)"


def test_the_users_node_replaces_the_master() -> None:
    # From n1: itself 0 + 50, n2 100 + 5; to n3 nothing was measured: the median of m and n2, 55.
    decision = decided(cluster(), wanted(user_node="n1"))
    assert totals(decision) == {"n1": 50.0, "n2": 105.0, "n3": 125.0}


def test_without_a_master_the_mean_round_trip_counts() -> None:
    links = [Link("n1", "n2", 10.0), Link("n2", "n3", 30.0), Link("n1", "n3", 50.0)]
    decision = decided(view(WORKERS, links=links), wanted(profile=None))
    assert totals(decision) == {"n1": 30.0, "n2": 20.0, "n3": 40.0}


def test_the_ping_from_a_master_to_itself_is_zero() -> None:
    open_master = node("m", labels={"node-role.kubernetes.io/control-plane": "true"})
    decision = decided(view([open_master, *WORKERS], links=LINKS), wanted(profile=None))
    assert totals(decision) == {"m": 0.0, "n1": 10.0, "n2": 40.0, "n3": 20.0}


def test_with_two_masters_the_mean_of_both_counts() -> None:
    second = node("m2", taints=MASTER.taints)
    seen = view([MASTER, second, *WORKERS], links=[*LINKS, Link("m2", "n1", 30.0)])
    assert totals(decided(seen, wanted(profile=None))) == {"n1": 20.0, "n2": 40.0, "n3": 20.0}


@pytest.mark.parametrize(
    ("threshold_ms", "left"),
    [("90", {"n1", "n2", "n3"}), ("89.9", {"n1", "n2"}), ("60", {"n1", "n2"}), ("45", {"n2"})],
)
def test_lines_4_to_6_a_node_at_the_threshold_passes(threshold_ms: str, left: set[str]) -> None:
    decision = decided(cluster(), wanted(response_time_ms=threshold_ms))
    assert set(totals(decision)) == left
    assert decision.node == "n2"


def test_with_every_node_over_the_threshold_the_pod_stays_pending() -> None:
    decision = decided(cluster(), wanted(response_time_ms="44"))
    assert decision.node is None
    assert decision.why == "0 of 4 nodes fit: 1 TaintToleration, 4 ResponseTime"
    assert decision.rejected()["n3"] == ["ResponseTime: needs 44 ms, predicted 90"]


def test_with_a_threshold_an_unknown_node_does_not_pass() -> None:
    seen = cluster(links=[Link("m", "n1", 10.0), Link("m", "n3", 1.0)])
    asked = wanted(profile={"n1": 50, "n2": 5}, response_time_ms="1000")
    decision = decided(seen, asked)
    assert decision.node == "n1"
    assert decision.rejected()["n2"] == ["ResponseTime: needs 1000 ms, its round trip is unknown"]
    assert decision.rejected()["n3"] == [
        "ResponseTime: needs 1000 ms, the pod's profile does not name it"
    ]


def test_a_threshold_without_a_profile_is_unresolvable() -> None:
    decision = decided(cluster(), wanted(profile=None, response_time_ms="1000"))
    assert decision.node is None
    assert "needs leadline.dev/profile-ms beside it" in decision.why


def test_an_empty_profile_counts_as_missing() -> None:
    assert decided(cluster(), wanted(profile={})).node == "n1"
    assert decided(cluster(), wanted(profile={}, response_time_ms="1000")).node is None


def test_other_strategies_ignore_the_threshold() -> None:
    assert THRESHOLD not in FILTERS


@pytest.mark.parametrize(
    ("links", "profile", "like", "worst"),
    [
        # An unknown round trip, and none at all.
        (LINKS[:2], None, 25.0, 40.0),
        ([], PROFILE, 100.0, 100.0),
        # A node that is not in the profile.
        (LINKS, {"n1": 50, "n2": 60}, 75.0, 80.0),
    ],
)
def test_what_is_unknown_counts_as_boards_like_it_or_as_the_worst(
    links: list[Link], profile: dict[str, float] | None, like: float, worst: float
) -> None:
    for unknown, n3 in (("like-boards", like), ("worst", worst)):
        seen, asked = cluster(links=links), wanted(profile=profile)
        assert totals(decided(seen, asked, unknown=unknown, unknown_rtt=30))["n3"] == n3


@pytest.mark.parametrize(
    ("prediction_ms", "replicas", "expected"),
    [
        ([60, 45, 90], [0, 0, 0], [1]),  # lines 8-11: the first one
        ([60, 45, 90], [0, 1, 0], [0]),  # line 17: the least without one
        ([60, 45, 90], [1, 1, 0], [2]),
        ([60, 45, 90], [1, 1, 1], [1]),  # line 15: all have one
        ([60, 45, 90], [1, 2, 1], [1]),  # and again the least, however many it has
        ([60, 60, 60], [0, 1, 0], [0, 2]),
    ],
)
def test_lines_8_to_19(
    prediction_ms: list[float], replicas: list[int], expected: list[int]
) -> None:
    found = least_without_replica(np.array(prediction_ms, dtype=float), np.array(replicas))
    assert found.tolist() == expected


def in_turn(
    seen: ClusterView, count: int, options: Mapping[str, str], threshold_ms: str = "1000"
) -> list[str]:
    labels = {"app": "web", "pod-template-hash": "h"}
    replicas = [wanted(f"web-{i}", labels, response_time_ms=threshold_ms) for i in range(count)]
    turns = decide_in_turn(seen, replicas, Rule(build(ResponseTime, options), FILTERS))
    return [f"{decision.node}: {decision.why}" for decision, _ in turns]


@pytest.mark.parametrize(
    ("replicas", "order"),
    [("rounds", "n2 n1 n3 n2 n1 n3 n2"), ("minimum", "n2 n1 n3 n2 n2 n2 n2")],
)
def test_replicas_of_one_service_go_to_each_node_and_then_round_again_or_to_the_best(
    replicas: str, order: str
) -> None:
    told = in_turn(cluster(), 7, {"replicas": replicas})
    assert " ".join(each[:2] for each in told) == order
    assert told[1].endswith(", the least of the nodes without a replica")
    assert "; every node that fits has a replica already" in told[3]


def test_a_node_over_the_threshold_gets_no_replica_in_any_round() -> None:
    told = in_turn(cluster(), 4, {}, "70")
    assert [each[:2] for each in told] == ["n2", "n1", "n2", "n1"]


def test_replicas_on_one_board_share_its_cores_in_the_prediction() -> None:
    # n2 has 4 cores: the fifth replica there takes 5 / 4 of the profile; with 3 cores for each, the
    # second one 6 / 4, and a board of half a core, whose profile says so, twice as long.
    def at_n2(running: int, cores: float = 4, **limits: str) -> float:
        assigned = [pod(f"r{i}", labels=WEB, nodeName="n2") for i in range(running)]
        nodes = [MASTER, node("n2", cores=cores)]
        asked = pod(labels=WEB, annotations={"profile-ms": '{"n2": 8}'}, limits=limits or None)
        seen = view(nodes, links=LINKS[1:2], assigned_pods=assigned)
        assert totals(decided(seen, asked, cores="apart")) == {"n2": 48.0}
        total, parts = decided(seen, asked).scores()["n2"]
        assert total == 48.0 + parts.get("sharing_ms", 0.0)
        return total

    assert [at_n2(running) for running in (0, 3, 4, 7)] == [48.0, 48.0, 50.0, 56.0]
    assert at_n2(1, cpu="3") == 52.0
    assert [at_n2(running, cores=0.5) for running in (0, 1, 2)] == [48.0, 56.0, 64.0]


def test_a_board_whose_cores_are_shared_by_too_many_is_over_the_threshold() -> None:
    seen = view([MASTER, node("n2", cores=1)], links=LINKS[1:2])
    told = in_turn(seen, 3, {}, "50")
    assert [each[:2] for each in told] == ["n2", "n2", "No"], "45, 50 and 55 ms"
    told = in_turn(seen, 3, {"cores": "apart"}, "50")
    assert [each[:2] for each in told] == ["n2", "n2", "n2"]


@pytest.mark.parametrize(
    ("assigned_pod", "node_name"),
    [
        (pod("other", labels={"app": "db"}, nodeName="n2"), "n2"),
        (pod("elsewhere", labels=WEB, namespace="shop", nodeName="n2"), "n2"),
        (pod("same", labels=WEB, nodeName="n2"), "n1"),
    ],
)
def test_only_pods_of_the_same_service_are_kept_apart(assigned_pod: Pod, node_name: str) -> None:
    assert decided(cluster(assigned_pods=[assigned_pod]), wanted()).node == node_name


def test_pods_without_labels_stand_alone() -> None:
    assigned_pod = pod("bare", nodeName="n2")
    assert decided(cluster(assigned_pods=[assigned_pod]), wanted(labels={})).node == "n2"


def test_lines_20_to_24_the_newest_replica_goes_first() -> None:
    replicas = [wanted(f"web-{i}") for i in range(3)]
    gone = []
    while len(replicas) > 1:
        gone.append(replica_to_remove(replicas).name)
        replicas.remove(replica_to_remove(replicas))
    assert gone == ["web-2", "web-1"]
    with pytest.raises(ValueError, match="one at least"):
        replica_to_remove([])


def test_a_deleted_user_node_counts_as_no_user() -> None:
    passes, totals = [], []
    for asked in (wanted(user_node="gone", response_time_ms="100"), wanted(response_time_ms="100")):
        passes.append(ResponseTime().filters()[THRESHOLD](cluster(), asked).passes.tolist())
        totals.append(ResponseTime().score(cluster(), asked, np.arange(len(cluster()))).total)
    assert passes[0] == passes[1]
    assert totals[0].tolist() == totals[1].tolist()


def test_nodes_without_names_in_common_still_have_predictions() -> None:
    nodes: list[Node] = [node("a"), node("b")]
    decision = decided(view(nodes, links=[]), wanted())
    assert totals(decision) == {"a": 170.0, "b": 170.0}


def test_the_main_peer_replaces_the_master() -> None:
    declared = "node/n1@9rps, node/n3@1rps"
    decision = decided(cluster(), wanted(peers=declared))
    assert totals(decision) == totals(decided(cluster(), wanted(user_node="n1")))
    assert decision.why.endswith("; its user is its main peer, node/n1")
    paper = decided(cluster(), wanted(peers=declared), main_peer="off")
    assert (totals(paper), paper.why) == (totals(decided(cluster(), wanted())), paper.why)
    assert "peer" not in paper.why


def test_the_threshold_goes_by_the_main_peer() -> None:
    near = decided(cluster(), wanted(peers="node/n1", response_time_ms="50"))
    assert near.node == "n1"
    assert near.rejected()["n2"] == [f"{THRESHOLD}: needs 50 ms, predicted 105"]
