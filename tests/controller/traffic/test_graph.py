"""What the graph of the traffic keeps, forgets, stores and tells decisions."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.traffic import NO_TRAFFIC
from leadline_controller.traffic import graph as graph_module
from leadline_controller.traffic.edges import DAY_S, HOUR_S, MINUTE_S

from tests.controller.traffic.traffic_builder import MINUTE_BYTES, Cluster, flow, replica

WEB, DB = replica("web", 1, 5), replica("db", 2, 6)
QUERY = flow(WEB.ip, DB.ip, port=5432)
ENDS = ("shop/web", "shop/db", 5432)


def pair() -> Cluster:
    """A web server on n1 that asks a database on n2."""
    return Cluster(3, [WEB, DB])


def reported(cluster: Cluster, minutes: int, amount: int = MINUTE_BYTES) -> None:
    """Both boards report for so long."""
    for _ in range(minutes):
        cluster.now_s += 60.0
        query = flow(WEB.ip, DB.ip, amount, port=5432)
        cluster.report("n1", query)
        cluster.report("n2", query)
        cluster.update()


def rates(cluster: Cluster) -> list[float]:
    """Mbit/s of the one edge: minute, hour, day."""
    (edge,) = cluster.edges().values()
    return [edge.rates[window_s].mbps for window_s in (MINUTE_S, HOUR_S, DAY_S)]


def test_an_edge_has_its_rates_and_the_bounds_of_its_requests() -> None:
    cluster = pair()
    reported(cluster, 1)
    (edge,) = cluster.edges().values()
    hour = edge.rates[HOUR_S]
    assert (hour.mbps, hour.packets_per_s, hour.connections_per_s) == pytest.approx((1, 15, 1))
    assert edge.requests_per_s == pytest.approx((1.0, 5.0))
    assert (edge.source.workload, edge.port) == (workload_of(WEB), 5432)
    assert edge.counted_s == cluster.now_s
    assert not edge.one_sided


@pytest.mark.slow
def test_minute_hour_and_day_are_means_over_their_time() -> None:
    cluster = pair()
    reported(cluster, 24 * 60, 0)
    reported(cluster, 60)
    minute, hour, day = rates(cluster)
    assert minute == pytest.approx(1.0)
    assert hour == pytest.approx(1 - 2.718281828**-1, rel=0.01)
    assert day == pytest.approx((1 - 2.718281828 ** (-1 / 24)) / (1 - 2.718281828**-1), rel=0.05)


def test_what_a_board_has_not_counted_makes_nothing_smaller() -> None:
    cluster = pair()
    reported(cluster, 10)
    cluster.now_s += 1800.0
    reported(cluster, 1)
    assert rates(cluster) == pytest.approx([1.0] * 3)


def test_a_board_that_is_silent_says_nothing_of_this_minute() -> None:
    cluster = pair()
    reported(cluster, 5)
    cluster.now_s += 200.0
    (edge,) = cluster.edges().values()
    assert {window_s: each.mbps for window_s, each in edge.rates.items()} == pytest.approx(
        {HOUR_S: 1.0, DAY_S: 1.0}
    )
    assert cluster.graph.reporting(cluster.now_s) == {"n1": 200.0, "n2": 200.0}
    cluster.now_s += DAY_S
    assert cluster.edges() == {}
    assert cluster.graph.reporting(cluster.now_s) == {}


def test_periods_that_overlap_count_once() -> None:
    cluster = pair()
    for after_s in (60.0, 30.0, 30.0):
        cluster.now_s += after_s
        cluster.report("n1", QUERY)
        cluster.update()
    (board,) = cluster.graph._boards.values()
    assert board.known[0] == pytest.approx(1 - 2.718281828 ** (-120 / HOUR_S), rel=1e-6)
    assert rates(cluster) == pytest.approx([1.0] * 3)


# Workloads.


def test_a_decision_reads_what_each_pod_exchanges() -> None:
    cluster = Cluster(3, [WEB, DB, replica("web", 3, 7)])
    reported(cluster, 1)
    traffic = cluster.graph.traffic(cluster.now_s)
    (db,) = traffic.peers[workload_of(WEB)]
    (web,) = traffic.peers[workload_of(DB)]
    assert (db.peer, db.name, web.peer) == (workload_of(DB), "shop/db", workload_of(WEB))
    assert (db.mbps, web.mbps) == pytest.approx((0.5, 1.0))
    assert (db.least_requests_per_s, db.most_requests_per_s) == pytest.approx((0.5, 2.5))
    assert traffic.flowing_mbps == pytest.approx({"n1": 1.0, "n2": 1.0})


def test_pods_of_one_board_put_nothing_on_its_link() -> None:
    beside = replica("db", 1, 6)
    cluster = Cluster(2, [WEB, beside])
    cluster.report("n1", flow(WEB.ip, beside.ip))
    (edge,) = cluster.edges().values()
    assert not edge.one_sided
    traffic = cluster.graph.traffic(cluster.now_s)
    assert traffic.peers[workload_of(WEB)][0].mbps == pytest.approx(1.0)
    assert traffic.flowing_mbps == {}


def test_a_new_replica_inherits_what_its_workload_exchanged() -> None:
    cluster = pair()
    reported(cluster, 60)
    del cluster.pods[WEB.uid]
    new = replica("web", 3, 9, bound_s=None)
    cluster.pods[new.uid] = new
    cluster.update()
    (db,) = cluster.graph.traffic(cluster.now_s).peers[workload_of(new)]
    assert db.mbps == pytest.approx(1.0)


def test_a_pod_that_moved_is_not_counted_twice() -> None:
    cluster = pair()
    reported(cluster, 60)
    del cluster.pods[WEB.uid]
    moved = replica("web", 3, 9)
    cluster.pods[moved.uid] = moved
    cluster.update()
    for _ in range(60):
        cluster.now_s += 60.0
        query = flow(moved.ip, DB.ip, port=5432)
        cluster.report("n1")
        cluster.report("n2", query)
        cluster.report("n3", query)
        cluster.update()
        assert rates(cluster)[1] == pytest.approx(1.0, rel=0.02)


def test_the_last_word_of_a_board_that_died_holds_as_long_as_the_other_end_confirms_it() -> None:
    cluster = pair()
    for _ in range(60):
        cluster.now_s += 60.0
        cluster.report("n1", QUERY, flow(WEB.ip, "198.51.100.7"))
        cluster.report("n2", QUERY)
        cluster.update()
    del cluster.pods[WEB.uid]
    moved = replica("web", 3, 9)
    cluster.pods[moved.uid] = moved
    cluster.update()
    for _ in range(30):
        cluster.now_s += 60.0
        query = flow(moved.ip, DB.ip, port=5432)
        cluster.report("n2", query)
        cluster.report("n3", query, flow(moved.ip, "198.51.100.7"))
        assert cluster.mbps()[ENDS] == pytest.approx(1.0, rel=0.02)
    assert cluster.mbps()["shop/web", "198.51.100.7", 80] == pytest.approx(1.0, rel=0.02)


def test_a_workload_without_pods_is_forgotten_after_ten_minutes() -> None:
    cluster = pair()
    reported(cluster, 5)
    del cluster.pods[DB.uid]
    cluster.update()
    cluster.now_s += 599.0
    assert ENDS in cluster.edges()
    cluster.now_s += 2.0
    assert cluster.edges() == {}
    cluster.pods[DB.uid] = replace(DB, uid="again")
    assert cluster.edges() == {}


def test_a_workload_whose_maker_stays_is_kept() -> None:
    cluster = pair()
    cluster.is_kept = True
    reported(cluster, 5)
    del cluster.pods[DB.uid]
    cluster.now_s += 3000.0
    assert ENDS in cluster.edges()


def test_a_node_that_left_is_forgotten() -> None:
    cluster = pair()
    reported(cluster, 5)
    del cluster.nodes["n1"]
    del cluster.pods[WEB.uid]
    cluster.now_s += 601.0
    cluster.update()
    assert "n1" not in cluster.graph.reporting(cluster.now_s)


def test_a_board_that_is_no_node_reports_nothing() -> None:
    cluster = pair()
    cluster.report("stranger", QUERY)
    assert cluster.edges() == {}
    assert cluster.graph.reports == 0


# Bounds.


def test_the_edges_with_the_least_bytes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "_MOST_EDGES", 10)
    pods = [replica(f"app-{number}", 2, number + 10) for number in range(40)]
    cluster = Cluster(2, [WEB, *pods])
    flows = [flow(WEB.ip, pod.ip, 1000 * (number + 1)) for number, pod in enumerate(pods)]
    cluster.report("n1", *flows)
    kept = {destination for _, destination, _ in cluster.edges()}
    assert kept == {f"shop/app-{number}" for number in range(30, 40)}
    assert cluster.graph.dropped == 30
    assert len(cluster.graph._boards["n1"].keys) == 10


def test_a_board_that_invents_addresses_keeps_a_bounded_number_of_rows() -> None:
    cluster = pair()
    for minute in range(20):
        cluster.now_s += 60.0
        strangers = [f"198.51.{minute}.{number + 1}" for number in range(64)]
        cluster.report("n1", *(flow(WEB.ip, each) for each in strangers))
        cluster.update()
    assert len(cluster.graph._boards["n1"].keys) == 512
    assert len(cluster.edges()) == 512


def test_many_ports_of_one_pair_are_one_edge() -> None:
    cluster = pair()
    cluster.report("n1", *(flow(WEB.ip, DB.ip, 60_000, port=port) for port in range(1000, 1040)))
    assert cluster.mbps() == {("shop/web", "shop/db", 0): pytest.approx(0.32)}


def test_a_dropped_edge_without_ports_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph_module, "_MOST_EDGES", 1)
    cluster = pair()
    pings = flow(WEB.ip, DB.ip, 600, port=0)
    cluster.report("n1", QUERY, pings)
    cluster.update()
    assert list(cluster.edges()) == [ENDS]
    assert [key.port for key in cluster.graph._boards["n1"].keys] == [5432]


# Restarts.


def test_a_restart_keeps_the_graph() -> None:
    cluster = pair()
    reported(cluster, 120)
    cluster.report("n1", QUERY, flow(WEB.ip, "198.51.100.7"))
    before = cluster.edges()
    document = cluster.graph.document(cluster.now_s)
    assert len(document) < 1000
    cluster.graph = cluster.new_graph()
    assert cluster.graph.is_idle()
    cluster.graph.load(document, cluster.now_s)
    assert not cluster.graph.is_idle()
    after = cluster.edges()
    assert after.keys() == before.keys()
    for ends, edge in after.items():
        assert edge.rates[HOUR_S].mbps == pytest.approx(before[ends].rates[HOUR_S].mbps, rel=1e-3)
        assert edge.source == before[ends].source
        assert edge.one_sided == before[ends].one_sided
        assert edge.counted_s == pytest.approx(before[ends].counted_s)
    reported(cluster, 1)
    assert cluster.mbps()[ENDS] == pytest.approx(1.0, rel=0.01)


def test_the_time_away_counts_as_age() -> None:
    cluster = pair()
    reported(cluster, 5)
    document = cluster.graph.document(cluster.now_s)
    cluster.graph = cluster.new_graph()
    cluster.graph.load(document, cluster.now_s + 500.0)
    assert cluster.graph._boards["n1"].counted_s == pytest.approx(cluster.now_s)
    later = cluster.new_graph()
    later.load(document, cluster.now_s + DAY_S + 1.0)
    assert later.is_idle()


def test_pods_that_do_not_run_yet_after_a_restart_keep_their_counts() -> None:
    cluster = pair()
    reported(cluster, 5)
    document = cluster.graph.document(cluster.now_s)
    cluster.pods.clear()
    cluster.graph = cluster.new_graph()
    cluster.graph.load(document, cluster.now_s)
    cluster.now_s += 300.0
    cluster.update()
    cluster.pods = {WEB.uid: WEB, DB.uid: DB}
    assert list(cluster.mbps().values()) == pytest.approx([1.0], rel=1e-3)


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_damaged_document_is_refused(cut: int) -> None:
    cluster = pair()
    reported(cluster, 5)
    document = cluster.graph.document(cluster.now_s)
    new = cluster.new_graph()
    with pytest.raises(ValueError, match=r"^the stored traffic cannot be read"):
        new.load(document[:cut] if cut else b"{}", cluster.now_s)
    assert new.is_idle()


# What decisions read.


def test_no_report_is_no_traffic() -> None:
    cluster = pair()
    assert cluster.graph.is_idle()
    cluster.update()
    assert cluster.graph.traffic(cluster.now_s) is NO_TRAFFIC
    cluster.report("n1")
    assert not cluster.graph.is_idle()


def test_what_was_counted_more_than_an_hour_ago_is_not_read() -> None:
    cluster = pair()
    reported(cluster, 5)
    cluster.now_s += HOUR_S - 1
    cluster.update()
    assert cluster.graph.traffic(cluster.now_s).peers
    assert cluster.graph.traffic(cluster.now_s + 2) is NO_TRAFFIC


def test_a_peer_outside_is_the_node_where_it_enters() -> None:
    cluster = pair()
    cluster.report("n1", flow(WEB.ip, "198.51.100.7"))
    cluster.report("n2", flow("198.51.100.8", DB.ip, translated=True))
    cluster.update()
    traffic = cluster.graph.traffic(cluster.now_s)
    (nas,) = traffic.peers[workload_of(WEB)]
    (user,) = traffic.peers[workload_of(DB)]
    assert (nas.peer, nas.name) == ("n1", "198.51.100.7")
    assert (user.peer, user.name) == ("n2", "198.51.100.8")
    assert traffic.entries == {"198.51.100.7": "n1", "198.51.100.8": "n2"}


def test_peers_come_with_the_most_traffic_first_over_all_ports() -> None:
    cache = replica("cache", 2, 8)
    cluster = Cluster(2, [WEB, DB, cache])
    flows: list[Any] = [
        flow(WEB.ip, DB.ip, 400, port=1),
        flow(WEB.ip, DB.ip, 400, port=2),
        flow(WEB.ip, cache.ip, 600),
    ]
    cluster.report("n1", *flows)
    cluster.update()
    peers = cluster.graph.traffic(cluster.now_s).peers[workload_of(WEB)]
    assert [peer.name for peer in peers] == ["shop/db", "shop/cache"]
    assert peers[0].mbps == pytest.approx(800 * 8 / 60e6)
