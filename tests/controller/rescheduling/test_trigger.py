"""A second look at a placement, when its node stays worse than assumed."""

from __future__ import annotations

from dataclasses import replace

from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import DeclaredPeer, Link, Pod, PodAnnotations
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView
from leadline_controller.rescheduling.trigger import Assumptions

from tests.controller.builders import node, pod, view

NEEDS = ("rtt_ms", "bandwidth_mbps", "cpu_percent", "disk_bytes_per_s")


def cluster(mbps: float = 90.0, rtt_ms: float = 10.0, cpu: float = 20.0) -> ClusterView:
    unknown = float("nan")
    return view(
        [node("n1"), node("user")],
        metrics={
            "bandwidth_mbps": [mbps, unknown],
            "cpu_percent": [cpu, unknown],
            "disk_bytes_per_s": [1e9 * cpu, unknown],
        },
        links=[Link("n1", "user", rtt_ms)],
    )


def placed() -> Pod:
    return replace(pod("p", annotations={"user-node": "user"}), uid="u")


def test_nothing_is_worse_while_values_stay_near() -> None:
    looking = Assumptions(NEEDS, 0.2)
    looking.look(cluster(), [(placed(), "n1")], 0)
    for near in (cluster(mbps=73), cluster(mbps=900), cluster(rtt_ms=11.9), cluster(cpu=39)):
        assert looking.look(near, [(placed(), "n1")], 10) == []


def test_each_value_can_be_worse_and_is_named() -> None:
    looking = Assumptions(NEEDS, 0.2)
    looking.look(cluster(), [(placed(), "n1")], 0)
    for worse, said in (
        (cluster(mbps=70), "bandwidth_mbps of n1 is 70, and was 90"),
        (cluster(rtt_ms=13), "rtt_ms of n1 is 13, and was 10"),
        (cluster(cpu=45), "cpu_percent of n1 is 45, and was 20"),
    ):
        assert [each.why for each in looking.look(worse, [(placed(), "n1")], 10)] == [said]


def test_time_counts_without_a_break_and_again_after_a_plan() -> None:
    looking, slow = Assumptions(NEEDS, 0.2), cluster(mbps=20)
    running = [(placed(), "n1")]

    def since(now: ClusterView, at: float) -> list[float]:
        return [each.since_s for each in looking.look(now, running, at)]

    assert since(cluster(), 0) == []
    assert since(slow, 10) == since(slow, 300) == [10]
    assert since(cluster(), 310) == []
    assert since(slow, 320) == [320]
    (worse,) = looking.look(slow, running, 400)
    looking.may_move(worse, 400, moves=False)
    assert since(slow, 410) == [400]


def test_a_link_that_became_worse_moves_a_pod_at_once_and_later_plans_must_agree() -> None:
    looking, running, slow = Assumptions(NEEDS, 0.2), [(placed(), "n1")], cluster(mbps=20)
    looking.look(cluster(), running, 0)

    def may_move(now: ClusterView, at_s: float) -> bool:
        (worse,) = looking.look(now, running, at_s)
        return looking.may_move(worse, at_s, moves=True)

    assert may_move(slow, 300)
    looking.look(cluster(), running, 400)
    assert may_move(slow, 700)  # it has become worse again
    (worse,) = looking.look(slow, running, 1000)
    assert not looking.may_move(worse, 1000, moves=False)
    assert [may_move(slow, at_s) for at_s in (1300, 1600, 1900)] == [False, False, True]


def test_of_load_three_plans_in_a_row_must_move_a_pod() -> None:
    looking, running, busy = Assumptions(NEEDS, 0.2), [(placed(), "n1")], cluster(cpu=90)
    looking.look(cluster(), running, 0)
    found = []
    for at_s, moves in enumerate((True, True, False, True, True, True)):
        (worse,) = looking.look(busy, running, at_s)
        found.append(looking.may_move(worse, at_s, moves=moves))
    assert found == [False] * 5 + [True]


def test_a_link_that_becomes_worse_counts_beside_the_load() -> None:
    looking, running = Assumptions(NEEDS, 0.2), [(placed(), "n1")]
    looking.look(cluster(), running, 0)
    looking.look(cluster(cpu=90), running, 100)
    found = looking.look(cluster(cpu=90, mbps=20), running, 500)
    assert [(each.since_s, each.of_link) for each in found] == [(100, False), (500, True)]
    assert not looking.may_move(found[0], 510, moves=True)
    found = looking.look(cluster(cpu=90, mbps=20), running, 800)
    assert [(each.since_s, each.of_link) for each in found] == [(510, False), (500, True)]
    assert looking.may_move(found[1], 800, moves=True)


def test_a_break_in_the_load_begins_the_plans_anew() -> None:
    looking, running = Assumptions(NEEDS, 0.2), [(placed(), "n1")]
    looking.look(cluster(), running, 0)
    found = []
    for at_s, cpu in enumerate((90, 90, 20, 90, 90, 90), 1):
        for worse in looking.look(cluster(cpu=cpu), running, at_s):
            found.append(looking.may_move(worse, at_s, moves=True))
    assert found == [False] * 4 + [True]


def test_an_unknown_value_is_no_worse_and_assumed_when_first_known() -> None:
    looking, unknown = Assumptions(NEEDS, 0.2), cluster(mbps=float("nan"))
    running = [(placed(), "n1")]
    assert looking.look(unknown, running, 0) == []
    assert looking.look(cluster(mbps=20), running, 10) == []
    assert len(looking.look(cluster(mbps=10), running, 20)) == 1
    assert looking.look(unknown, running, 30) == []


def test_a_pod_elsewhere_is_another_placement() -> None:
    looking = Assumptions(NEEDS, 0.2)
    looking.look(cluster(), [(placed(), "user")], 0)
    assert looking.look(cluster(mbps=20), [(placed(), "n1")], 10) == []
    assert looking.look(cluster(mbps=20), [(placed(), "gone")], 20) == []


def test_a_strategy_that_needs_nothing_never_looks_twice() -> None:
    looking = Assumptions((), 0.2)
    looking.look(cluster(), [(placed(), "n1")], 0)
    assert looking.look(cluster(mbps=1, rtt_ms=999, cpu=100), [(placed(), "n1")], 10) == []


def test_what_the_decision_knew_is_assumed() -> None:
    looking, running = Assumptions(NEEDS, 0.2), [(placed(), "n1")]
    found = looking.look(
        cluster(mbps=20),
        running,
        0,
        lambda _pod, _node: {"bandwidth_mbps": 90.0, "rtt_ms": float("nan"), "other": 1.0},
    )
    assert [each.why for each in found] == ["bandwidth_mbps of n1 is 20, and was 90"]
    assert looking.knows("u")


def test_the_round_trip_to_the_main_peer_can_be_worse() -> None:
    peers = (DeclaredPeer("node/user"), DeclaredPeer("node/n1", 0.1))
    running = [(replace(pod("p"), uid="u", annotations=PodAnnotations(peers=peers)), "n1")]
    for is_user, said in ((True, ["rtt_ms of n1 is 13, and was 10"]), (False, [])):
        looking = Assumptions(("rtt_ms",), 0.2, peer_is_user=is_user)
        assert looking.look(cluster(), running, 0) == []
        assert [each.why for each in looking.look(cluster(rtt_ms=13), running, 10)] == said


def test_a_main_peer_that_leaves_the_board_is_worse() -> None:
    def seen(on: str) -> ClusterView:
        db = pod("db", labels={"app": "db"}, nodeName=on)
        service = PodSelector("Service", "default", "db", (Requirement("app", "In", ("db",)),))
        links = [Link("n1", "user", 10.0)]
        return view([node("n1"), node("user")], links=links, assigned_pods=[db], objects=[service])

    peers = PodAnnotations(peers=(DeclaredPeer("db"),))
    running = [(replace(pod("p"), uid="u", annotations=peers), "n1")]
    looking = Assumptions(("rtt_ms",), 0.2, peer_is_user=True)
    assert looking.look(seen("n1"), running, 0) == []
    assert [each.why for each in looking.look(seen("user"), running, 10)] == [
        "rtt_ms of n1 is 10, and was 0"
    ]
