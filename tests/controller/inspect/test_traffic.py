"""Who talks to whom: where both ends are, the round trip and the best one, the share of the links,
and what is declared. Four boards: a and b are near, c is far, d is nearest but takes no pods."""

from dataclasses import replace
from math import isfinite

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import DeclaredPeer, Owner, Pod, PodAnnotations
from leadline_controller.framework.peers import peers_of
from leadline_controller.framework.ports import ObjectChanged, PodChanged, Relisted
from leadline_controller.framework.selectors import parse_selector
from leadline_controller.inspect.traffic import TrafficReader
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.traffic.edges import End, TrafficEdge
from leadline_wire.v1 import traffic_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from tests.controller.builders import node
from tests.controller.inspect.counts import FakeCounts, edge, end_of
from tests.controller.inspect.harness import ControllerHarness, answering

RTTS_MS = {("a", "b"): 1.0, ("a", "c"): 20.0, ("b", "c"): 20.0}
RTTS_MS |= {("a", "d"): 0.5, ("b", "d"): 0.5, ("c", "d"): 20.0}


def replica(workload: str, number: int, board: str, *peers: DeclaredPeer) -> Pod:
    return Pod(
        "shop",
        f"{workload}-x1-{number}",
        uid=f"{workload}-{number}",
        labels={"app": workload, "pod-template-hash": "x1"},
        owner=Owner("ReplicaSet", f"{workload}-x1", f"uid-of-{workload}"),
        node_name=board,
        annotations=PodAnnotations(peers=peers),
    )


def controller(*pods: Pod, counted: list[TrafficEdge] | None = None) -> ControllerHarness:
    harness = ControllerHarness()
    boards = [
        node(name, bandwidth_mbps=100.0, unschedulable=name == "d", addresses=(f"10.0.0.{at}",))
        for at, name in enumerate("abcd")
    ]
    harness.cluster.apply(Relisted(tuple(boards), ()))
    for name in "abcd":
        harness.hear(name)
    for name in "abc":
        rounds = {b: PingRound(ms) for (a, b), ms in RTTS_MS.items() if a == name}
        harness.telemetry.rtts(name, harness.stamp(name), rounds)
    for pod in pods:
        harness.cluster.apply(PodChanged(pod))
    harness.source.traffic_graph = FakeCounts(counted or [], {"b": 12.0, "a": 5.0}, dropped=3)
    return harness


def read(harness: ControllerHarness, of: str = "") -> list[pb.TrafficEdge]:
    return list(TrafficReader(harness.source).response(of).edges)


def test_an_edge_says_where_its_ends_are_how_far_apart_and_where_it_would_be_best() -> None:
    front, dbs = replica("front", 1, "c"), [replica("db", 1, "a"), replica("db", 2, "b")]
    counted = edge(end_of(front), end_of(dbs[0]), 10.0, counted_s=990.0, one_sided=True)
    (found,) = read(controller(front, *dbs, counted=[counted]))
    assert (found.source, found.destination, found.port) == ("shop/front", "shop/db", 80)
    assert found.source_nodes == {"c": 1}
    assert found.destination_nodes == {"a": 1, "b": 1}
    assert found.rtt_ms == pytest.approx(20.0)
    # On d it would be 0.5, too, but d takes no pods; on a and b it is 0 to one and 1 to the other.
    assert (found.moves, found.best_node) == ("shop/front", "a")
    assert found.best_rtt_ms == pytest.approx(0.5)
    # Half of 10 Mbit/s goes over each of two links of 100.
    assert found.link_share == pytest.approx(0.05)
    assert (found.minute.mbps, found.hour.mbps, found.HasField("day")) == (10.0, 5.0, False)
    assert (found.requests_least_per_s, found.requests_most_per_s) == (2.0, 30.0)
    assert (found.age_s, found.one_sided, found.declared) == (10.0, True, False)
    assert not found.HasField("declared_mbps")


def test_a_tested_link_counts_and_where_none_was_tested_the_slower_node() -> None:
    front, db = replica("front", 1, "b"), replica("db", 1, "a")
    harness = controller(front, db, counted=[edge(end_of(front), end_of(db), 10.0)])
    assert read(harness)[0].link_share == pytest.approx(0.1)
    mbps, seconds = 40.0, 5.0
    test = BandwidthTest("a", "b", mbps * seconds / 8, seconds=seconds, at_s=harness.now_s)
    harness.telemetry.bandwidth(test)
    harness.telemetry.bandwidth(BandwidthTest("a", "c", 99.0, seconds=1.0, at_s=harness.now_s))
    assert read(harness)[0].link_share == pytest.approx(10.0 / test.mbps)


def test_on_one_board_nothing_is_far_and_no_link_is_taken() -> None:
    front, db = replica("front", 1, "b"), replica("db", 1, "b")
    (found,) = read(controller(front, db, counted=[edge(end_of(front), end_of(db), 90.0)]))
    assert (found.rtt_ms, found.best_rtt_ms, found.best_node) == (0.0, 0.0, "b")
    assert found.HasField("link_share")
    assert found.link_share == 0.0


def test_a_round_trip_that_is_not_known_is_not_set_and_no_zero() -> None:
    front, db = replica("front", 1, "a"), replica("db", 1, "b")
    harness = controller(front, db, counted=[edge(end_of(front), end_of(db))])
    harness.now_s += 1e6  # all is too old
    (found,) = read(harness)
    assert not found.HasField("rtt_ms")
    assert (found.best_node, found.best_rtt_ms) == ("b", 0.0)


def test_who_cannot_move_stays_where_it_is() -> None:
    user, db = End("192.0.2.7", node="c"), replica("db", 1, "a")
    camera, nas = End("node/b", node="b"), End("node/a", node="a")
    harness = controller(db, counted=[edge(user, end_of(db)), edge(camera, nas)])
    moved, fixed = read(harness)
    assert (moved.moves, moved.best_node, moved.best_rtt_ms) == ("shop/db", "c", 0.0)
    assert moved.rtt_ms == pytest.approx(20.0)
    assert (fixed.moves, fixed.best_node) == ("", "")
    assert fixed.rtt_ms == pytest.approx(1.0)
    assert not fixed.HasField("best_rtt_ms")


def test_an_end_that_is_nowhere_has_no_round_trip() -> None:
    db = replica("db", 1, "a")
    (found,) = read(controller(db, counted=[edge(End("203.0.113.9"), end_of(db))]))
    assert not found.source_nodes
    assert not found.HasField("rtt_ms")
    assert not found.HasField("link_share")


def test_what_pods_declare_marks_what_is_counted_and_stands_alone_where_nothing_is() -> None:
    peers = (
        DeclaredPeer("database", mbps=2.0, requests_per_s=20.0),
        DeclaredPeer("queue.infra", mbps=0.2),
        DeclaredPeer("node/b", mbps=5.0),
        DeclaredPeer("2001:db8::7"),
    )
    fronts = [replica("front", 1, "c", *peers), replica("front", 2, "c", *peers)]
    db = replica("db", 1, "b")
    harness = controller(*fronts, db, counted=[edge(end_of(fronts[0]), end_of(db), 7.0)])
    service = PodSelector("Service", "shop", "database", parse_selector("app=db"))
    harness.cluster.apply(ObjectChanged(service))
    edges = read(harness)
    assert [each.destination for each in edges[1:]] == ["node/b", "2001:db8::7", "infra/queue"]
    counted = edges[0]
    # The Service's pods are those that were counted; both pods declare it.
    assert (counted.destination, counted.declared, counted.minute.mbps) == ("shop/db", True, 7.0)
    assert counted.declared_mbps == 4.0
    assert (counted.requests_least_per_s, counted.requests_most_per_s) == (40.0, 40.0)
    node_b, _, queue = edges[1:]
    assert node_b.declared_mbps == 10.0
    assert node_b.rtt_ms == pytest.approx(20.0)
    assert (node_b.moves, node_b.best_node, node_b.best_rtt_ms) == ("shop/front", "b", 0.0)
    assert queue.declared
    assert queue.declared_mbps == pytest.approx(0.4)
    for name in ("minute", "age_s", "link_share", "rtt_ms", "requests_least_per_s"):
        assert not queue.HasField(name)


@pytest.mark.parametrize(
    ("name", "destination", "places"),
    [
        ("database", "shop/db", "ab"),
        ("db", "shop/db", "ab"),
        ("db.shop", "shop/db", "ab"),
        ("db.infra", "infra/db", ""),
        ("logs", "shop/logs", "bcd"),
        ("other", "shop/other", ""),
        ("node/b", "node/b", "b"),
        ("10.0.0.2", "node/c", "c"),
        ("192.0.2.7", "192.0.2.7", ""),
    ],
)
def test_a_declared_name_stands_for_what_it_is_in_decisions(
    name: str, destination: str, places: str
) -> None:
    front = replica("front", 1, "c", DeclaredPeer(name))
    logs = [
        replace(replica("logs", at, on), owner=Owner("DaemonSet", "logs", "uid-of-logs"))
        for at, on in enumerate("bcd")
    ]
    harness = controller(front, replica("db", 1, "a"), replica("db", 2, "b"), *logs)
    for service, app in (("database", "db"), ("other", "gone")):
        selector = parse_selector(f"app={app}")
        harness.cluster.apply(ObjectChanged(PodSelector("Service", "shop", service, selector)))
    (found,) = read(harness)
    assert (found.destination, "".join(sorted(found.destination_nodes))) == (destination, places)
    view = harness.cluster.view(harness.telemetry, harness.now_s)
    peers = [view.table.names[at] for peer in peers_of(view, front) for at in peer.nodes.tolist()]
    assert "".join(sorted(peers)) == places


def test_only_that_in_which_something_takes_part() -> None:
    front, db, other = replica("front", 1, "c"), replica("db", 1, "a"), replica("other", 1, "b")
    user = End("192.0.2.7", node="b")
    counted = [edge(end_of(front), end_of(db)), edge(user, end_of(other))]
    harness = controller(front, db, other, counted=counted)

    def sources(of: str) -> list[str]:
        return [each.source for each in read(harness, of)]

    assert sources("") == ["shop/front", "192.0.2.7"]
    assert sources("shop/db") == ["shop/front"]
    assert sources("192.0.2.7") == ["192.0.2.7"]
    assert sources("node/a") == ["shop/front"]
    assert sources("node/b") == ["192.0.2.7"]
    assert sources("shop/none") == sources("node/zzz") == sources("a") == []


async def test_over_grpc_with_the_boards_that_report() -> None:
    front, db = replica("front", 1, "c"), replica("db", 1, "a")
    harness = controller(front, db, counted=[edge(end_of(front), end_of(db))])
    async with (
        answering(harness) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = InspectionStub(channel)
        answer = await stub.GetTraffic(pb.GetTrafficRequest())
        assert [each.source for each in answer.edges] == ["shop/front"]
        assert (list(answer.nodes), answer.report_age_s, answer.dropped) == (["a", "b"], 5.0, 3)
        for of in ("shop/front", "node/b"):
            await stub.GetTraffic(pb.GetTrafficRequest(of=of))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetTraffic(pb.GetTrafficRequest(of="shop/frnt"))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert "'shop/frnt'" in (caught.value.details() or "")
        harness.source.traffic_graph = FakeCounts()
        answer = await stub.GetTraffic(pb.GetTrafficRequest())
        assert (len(answer.edges), len(answer.nodes)) == (0, 0)
        assert not answer.HasField("report_age_s")


BOARDS = st.lists(st.sampled_from("abcd"), max_size=5)


@given(BOARDS, BOARDS, st.floats(0.0, 1e6))
def test_no_place_is_worse_than_the_best_and_all_links_together_carry_what_is_apart(
    fronts: list[str], dbs: list[str], mbps: float
) -> None:
    pods = [replica("front", at, board) for at, board in enumerate(fronts)]
    others = [replica("db", at, board) for at, board in enumerate(dbs)]
    ends = end_of(replica("front", 0, "a")), end_of(replica("db", 0, "a"))
    harness = controller(*pods, *others, counted=[edge(*ends, mbps)])
    ((found, links, _),) = TrafficReader(harness.source).read()
    if not (fronts and dbs):
        assert not links.part.size
        assert not found.HasField("rtt_ms")
        return
    together = sum(one == other for one in fronts for other in dbs) / (len(fronts) * len(dbs))
    assert links.part.sum() == pytest.approx(1.0 - together)
    assert (links.a < links.b).all()
    assert 0.0 <= found.link_share <= 1.0
    assert isfinite(found.rtt_ms)
    on_open = [board for board in fronts if board != "d"]
    if len(on_open) == len(fronts):
        assert found.best_rtt_ms <= found.rtt_ms + 1e-9
