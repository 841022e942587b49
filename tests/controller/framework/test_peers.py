"""Where a pod's peers are, and how long it would wait for them."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import DeclaredPeer, Link, Owner, Pod, PodAnnotations
from leadline_controller.framework.peers import (
    absent_peers,
    busiest_nodes,
    free_mbps,
    main_peer,
    peers_among,
    peers_of,
    round_trips_ms,
    wait_s,
    waits_s,
    waits_text,
)
from leadline_controller.framework.selectors import Requirement, Selector
from leadline_controller.framework.services import Service
from leadline_controller.framework.traffic import NO_TRAFFIC, PeerAt, PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView

from tests.controller.builders import node, pod, view

NAMES = ("a", "b", "c", "d")
NODES = [node(name, bandwidth_mbps=100.0) for name in NAMES]
LINKS = [Link("a", "b", 2.0), Link("a", "c", 4.0), Link("b", "c", 6.0)]
DB = {"app": "db"}


def equals(**labels: str) -> Selector:
    return tuple(Requirement(key.replace("_", "-"), "In", (text,)) for key, text in labels.items())


SERVICE = PodSelector("Service", "default", "db", equals(app="db"))


def database(name: str, on: str, **labels: str) -> Pod:
    return pod(name, labels={**DB, **labels}, nodeName=on)


def owned(made: Pod, kind: str, name: str) -> Pod:
    return replace(made, owner=Owner(kind, name, f"uid-of-{name}"))


def cluster(
    *pods: Pod, objects: tuple[PodSelector, ...] = (SERVICE,), traffic: Traffic = NO_TRAFFIC
) -> ClusterView:
    return view(NODES, links=LINKS, assigned_pods=pods, objects=objects, traffic=traffic)


def declaring(*peers: DeclaredPeer, **labels: str) -> Pod:
    return replace(
        pod("web", labels=labels or {"app": "web"}), annotations=PodAnnotations(peers=peers)
    )


def seen(
    peer: Service | str, name: str, mbps: float = 3.0, least: float = 1.0, most: float = 4.0
) -> Traffic:
    found = PeerTraffic(peer, name, mbps, least, most)
    return Traffic({workload_of(declaring()): (found,)})


def test_a_service_is_where_its_pods_are_but_not_those_that_are_going() -> None:
    going = replace(database("gone", "d"), terminating=True)
    found = cluster(database("1", "a"), database("2", "c"), database("3", "c"), going)
    (peer,) = peers_of(found, declaring(DeclaredPeer("db", 5.0, 20.0, 7.0)))
    assert peer.share.tolist() == pytest.approx([1 / 3, 0, 2 / 3, 0])
    assert (peer.name, peer.mbps, peer.requests_per_s, peer.most_rtt_ms) == ("db", 5.0, 20.0, 7.0)
    assert peer.declared
    assert [NAMES[at] for at in peer.nodes] == ["c", "a"]


@pytest.mark.parametrize(
    ("name", "objects", "places"),
    [
        ("database", (), "ab"),
        ("database.infra", (), "c"),
        ("logs", (), "acd"),
        ("import", (), "b"),
        ("logs", (PodSelector("Service", "default", "logs", equals(app="db")),), "ab"),
        ("logs", (PodSelector("Service", "default", "logs", equals(app="none")),), ""),
        ("database-h1", (), ""),
        ("4", (), ""),
        ("db", (PodSelector("Service", "infra", "db", equals(app="db")),), ""),
        ("db.default", (SERVICE,), "ab"),
        ("db.infra", (PodSelector("Service", "infra", "db", equals(app="db")),), "c"),
        ("node/b", (), "b"),
        ("node/gone", (), ""),
        ("192.0.2.7", (), "d"),
        ("10.0.0.3", (), "c"),
        ("192.0.2.8", (), ""),
    ],
)
def test_what_a_name_stands_for(name: str, objects: tuple[PodSelector, ...], places: str) -> None:
    nodes = [replace(each, addresses=("10.0.0.3",) if each.name == "c" else ()) for each in NODES]
    pods = [
        owned(database("1", "a", **{"pod-template-hash": "h1"}), "ReplicaSet", "database-h1"),
        owned(database("2", "b", **{"pod-template-hash": "h2"}), "ReplicaSet", "database-h2"),
        owned(pod("3", labels=DB, namespace="infra", nodeName="c"), "StatefulSet", "database"),
        pod("4", nodeName="a"),
        owned(pod("import-x", nodeName="b"), "Job", "import"),
        *(owned(pod(f"logs-{on}", nodeName=on), "DaemonSet", "logs") for on in "acd"),
        replace(owned(pod("logs-b", nodeName="b"), "DaemonSet", "logs"), terminating=True),
    ]
    traffic = Traffic(entries={"192.0.2.7": "d"})
    found = view(nodes, assigned_pods=pods, objects=objects, traffic=traffic)
    wanted = declaring(DeclaredPeer(name))
    shares = [each.share for each in peers_of(found, wanted)]
    assert [NAMES[at] for share in shares for at in np.flatnonzero(share)] == list(places)
    assert absent_peers(found, wanted) == (() if places else (DeclaredPeer(name),))


def test_what_was_counted_is_a_peer_and_what_is_declared_of_the_same_wins() -> None:
    workload = ("default", frozenset(DB.items()))
    found = cluster(database("1", "b"), traffic=seen(workload, "default/db"))
    (peer,) = peers_of(found, declaring())
    assert (peer.name, peer.mbps, peer.declared) == ("default/db", 3.0, False)
    assert peer.requests_per_s == 2.0
    (peer,) = peers_of(found, declaring(DeclaredPeer("db", 9.0)))
    assert (peer.name, peer.mbps, peer.requests_per_s) == ("db", 9.0, 2.0)
    (peer,) = peers_of(found, declaring(DeclaredPeer("db", 9.0, 7.0)))
    assert peer.requests_per_s == 7.0
    other = peers_of(found, declaring(DeclaredPeer("node/b", 9.0)))
    assert [each.name for each in other] == ["node/b", "default/db"]


def test_a_declared_workload_is_the_same_as_the_counted_one_of_its_name() -> None:
    workload = ("default", frozenset(DB.items()))
    one = owned(database("1", "b", **{"pod-template-hash": "h1"}), "ReplicaSet", "db-h1")
    found = cluster(one, objects=(), traffic=seen(workload, "default/db"))
    assert [each.name for each in peers_of(found, declaring(DeclaredPeer("db")))] == ["db"]
    # A Service of that name is another one.
    service = PodSelector("Service", "default", "db", equals(app="other"))
    found = cluster(one, objects=(service,), traffic=seen(workload, "default/db"))
    assert [each.name for each in peers_of(found, declaring(DeclaredPeer("db")))] == ["default/db"]


@pytest.mark.parametrize(
    ("declared", "counted", "node", "names"),
    [
        ("node/b", "node/b", "b", ["node/b"]),
        ("10.0.0.3", "node/c", "c", ["10.0.0.3"]),
        ("192.0.2.7", "192.0.2.7", "b", ["192.0.2.7"]),
        ("192.0.2.7", "node/b", "b", ["192.0.2.7", "node/b"]),
        ("192.0.2.7", "192.0.2.9", "b", ["192.0.2.7", "192.0.2.9"]),
    ],
)
def test_nodes_and_addresses_are_told_apart(
    declared: str, counted: str, node: str, names: list[str]
) -> None:
    nodes = [replace(each, addresses=("10.0.0.3",) if each.name == "c" else ()) for each in NODES]
    traffic = replace(seen(node, counted), entries={"192.0.2.7": "b"})
    found = view(nodes, traffic=traffic)
    assert [each.name for each in peers_of(found, declaring(DeclaredPeer(declared)))] == names


def test_a_pod_without_peers_has_none() -> None:
    assert peers_of(cluster(), declaring()) == ()
    assert main_peer(cluster(), declaring()) is None
    workload = ("default", frozenset({("app", "gone")}))
    assert peers_of(cluster(traffic=seen(workload, "default/gone")), declaring()) == ()


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [(4.0, 4.0, 4.0), (4.0, 9.0, 6.0), (1.0, 16.0, 8.0), (0.0, 36.0, 18.0), (0.0, 0.0, 0.0)],
)
def test_requests_between_bounds(least: float, most: float, expected: float) -> None:
    found = cluster(database("1", "b"), traffic=seen("b", "node/b", 1.0, least, most))
    assert peers_of(found, declaring())[0].requests_per_s == pytest.approx(expected)


def test_where_nothing_tells_the_requests_the_mbit_do() -> None:
    (peer,) = peers_of(cluster(database("1", "b")), declaring(DeclaredPeer("db", 2.5)))
    assert peer.requests_per_s == pytest.approx(10.0)


def test_the_main_peer_has_the_most_requests_then_mbit() -> None:
    def main(*peers: DeclaredPeer) -> str:
        found = main_peer(cluster(), declaring(*peers))
        assert found is not None
        return found.name

    a, b = DeclaredPeer("node/a", 5.0, 10.0), DeclaredPeer("node/b", 1.0, 11.0)
    assert main(a, b) == main(b, a) == "node/b"
    assert main(a, replace(b, requests_per_s=10.0)) == "node/a"
    assert main(replace(b, name="node/gone"), a) == "node/a"


def test_the_expected_round_trip_is_the_mean_over_the_pods() -> None:
    found = cluster(database("1", "a"), database("2", "b"))
    (peer,) = peers_of(found, declaring(DeclaredPeer("db")))
    assert round_trips_ms(found, [peer])[0].tolist() == pytest.approx(
        [1.0, 1.0, 5.0, nan], nan_ok=True
    )


def test_the_wait_is_round_trips_and_transfer_over_the_slower_link() -> None:
    nodes = [*NODES[:2], node("c", bandwidth_mbps=10.0)]
    found = view(nodes, links=LINKS, bandwidth_requested_mbps=[0, 50, 0])
    peers = peers_of(
        found, declaring(DeclaredPeer("node/a", 5.0, 20.0), DeclaredPeer("node/b", 1.0, 0.0))
    )
    waits = waits_s(found, peers, np.arange(3))
    # To a: 20 x 2 ms + 5/50 s from b, 20 x 4 ms + 5/10 s from c. To b: 1/50 s from a, 1/10 from c.
    assert waits.tolist() == [pytest.approx([0, 0.14, 0.58]), pytest.approx([0.02, 0, 0.1])]
    assert wait_s(found, peers, np.array([2, 1])).tolist() == pytest.approx([0.68, 0.14])
    text = waits_text(found, peers, waits[:, 2])
    assert text == "waits 0.58 s each second for node/a, 0.1 for node/b"


def test_an_unknown_round_trip_counts_only_where_there_are_requests() -> None:
    peers = peers_of(cluster(), declaring(DeclaredPeer("node/d", 5.0, 1.0)))
    assert np.isnan(wait_s(cluster(), peers, np.arange(4))).tolist() == [True, True, True, False]
    quiet = peers_of(cluster(), declaring(DeclaredPeer("node/d", 5.0, 0.0)))
    assert wait_s(cluster(), quiet, np.arange(4)).tolist() == [0.05, 0.05, 0.05, 0.0]
    assert waits_text(cluster(), peers, np.array([nan])) == "waits for an unknown time for node/d"


def test_a_long_text_is_cut() -> None:
    found = cluster(*(database(each, each) for each in "abc"))
    (peer,) = peers_of(found, declaring(DeclaredPeer("db")))
    assert waits_text(found, [peer] * 5, np.full(5, 0.5)) == (
        "waits 0.5 s each second for db (a, b and 1 more), 0.5 for db (a, b and 1 more), "
        "0.5 for db (a, b and 1 more)"
    )


def test_the_traffic_of_a_running_pod_is_bandwidth_that_it_would_have() -> None:
    nodes = [replace(each, bandwidth_mbps=None) for each in NODES[:3]] + [NODES[3]]
    found = view(nodes, metrics={"bandwidth_mbps": [90.0, 80.0, 70.0, nan]})
    wanted = declaring(DeclaredPeer("node/b", 8.0), DeclaredPeer("node/d", 2.0))
    peers = peers_of(found, wanted)
    assert free_mbps(found, wanted, peers).tolist() == [90, 80, 70, 100]
    runs_on = [replace(wanted, node_name=each) for each in ("a", "b")]
    assert free_mbps(found, runs_on[0], peers).tolist() == [100, 88, 70, 100]
    assert free_mbps(found, runs_on[1], peers).tolist() == [90, 82, 70, 100]


def test_a_peer_on_more_than_32_nodes_is_everywhere() -> None:
    nodes = [node(f"n{number:02}", bandwidth_mbps=100.0) for number in range(40)]
    wanted = declaring(DeclaredPeer("db", 1.0, 99.0), DeclaredPeer("node/n01", 1.0, 0.0))
    for count, main in ((32, "db"), (33, "node/n01")):
        pods = [database(each.name, each.name) for each in nodes[:count]]
        found = view(nodes, assigned_pods=pods, objects=[SERVICE])
        peers = peers_of(found, wanted)
        assert [each.name for each in peers] == ["db", "node/n01"]
        chosen = main_peer(found, wanted)
        assert chosen is not None
        assert chosen.name == main
        waits = waits_s(found, peers, np.arange(40))
        assert waits[1].tolist() == [0.01, 0.0, *[0.01] * 38]
        assert np.isnan(waits[0]).all() == (count == 32)
        assert waits[0].any() == (count == 32)


def test_pods_with_more_labels_are_another_workload() -> None:
    pods = [database("1", "a"), database("2", "b", tier="x")]
    found = cluster(*pods, traffic=seen(("default", frozenset(DB.items())), "default/db"))
    (peer,) = peers_of(found, declaring())
    assert peer.share.tolist() == [1, 0, 0, 0]


def test_the_nodes_of_the_busiest_peers() -> None:
    workload = ("default", frozenset(DB.items()))
    peers = (
        PeerTraffic("d", "node/d", 1.0, 0, 0),
        PeerTraffic(workload, "default/db", 5.0, 0, 0),
        PeerTraffic("gone", "node/gone", 50.0, 0, 0),
    )
    traffic = Traffic({workload_of(declaring()): peers, workload_of(pod("x")): peers[:1]})
    found = cluster(database("1", "c"), database("2", "c"), database("3", "a"))
    busiest = busiest_nodes(traffic, found.assigned_pods, found.table, 9)
    assert busiest == ["c", "a", "d"]
    assert busiest_nodes(traffic, found.assigned_pods, found.table, 2) == ["c", "a"]


AMOUNTS = st.floats(0, 1e12) | st.sampled_from([0.0, 1.0, 5.0])
RTTS = st.none() | st.floats(0, 1e9)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterView, tuple[PeerAt, ...]]:
    """Any cluster with any peers; nodes c and d are alike, and no peer is there."""
    links = []
    for a, b in ("ab", "ac", "bc"):
        if (ms := draw(RTTS)) is not None:
            links += [Link(a, b, ms)] + ([Link(a, "d", ms)] if b == "c" else [])
    mbps = [draw(st.none() | AMOUNTS) for _ in "abc"]
    nodes = [
        node(name, bandwidth_mbps=each) for name, each in zip(NAMES, [*mbps, mbps[2]], strict=True)
    ]
    peers = draw(
        st.lists(
            st.builds(
                PeerAt,
                st.just("peer"),
                st.sampled_from([[1, 0, 0, 0], [0, 1, 0, 0], [0.25, 0.75, 0, 0]]).map(np.array),
                AMOUNTS,
                AMOUNTS,
                AMOUNTS,
                st.none(),
                st.booleans(),
            ),
            max_size=4,
        )
    )
    return view(nodes, links=links), tuple(peers)


@given(clusters())
def test_waits_are_never_negative_and_the_same_for_equal_nodes(
    drawn: tuple[ClusterView, tuple[PeerAt, ...]],
) -> None:
    found, peers = drawn
    waits = wait_s(found, peers, np.arange(4))
    assert waits.shape == (4,)
    known = waits[~np.isnan(waits)]
    assert ((known >= 0) & (known < inf)).all()
    assert np.array_equal(waits[2], waits[3], equal_nan=True)


def calls(name: str, on: str, *peers: DeclaredPeer) -> Pod:
    made = pod(name, labels={"app": name}, nodeName=on)
    return replace(made, annotations=PodAnnotations(peers=peers))


def test_who_is_declared_has_the_callers_as_peers() -> None:
    found = cluster(calls("web", "c", DeclaredPeer("db", 6.0, 20.0)))
    (peer,) = peers_of(found, pod("db-1", labels=DB))
    assert [NAMES[at] for at in peer.nodes] == ["c"]
    assert (peer.mbps, peer.requests_per_s, peer.declared) == (6.0, 20.0, True)
    assert peers_of(found, pod("other", labels={"app": "other"})) == ()


def test_replicas_share_what_callers_declare() -> None:
    web = calls("web", "c", DeclaredPeer("db", 6.0, 20.0))
    (peer,) = peers_of(cluster(web, database("1", "a"), database("2", "b")), pod("3", labels=DB))
    assert [peer.mbps, peer.requests_per_s] == pytest.approx([2.0, 20 / 3])


def test_a_pods_own_word_and_its_callers_count_before_what_was_counted() -> None:
    web = calls("web", "c", DeclaredPeer("db", 6.0, 20.0))
    counted = PeerTraffic(workload_of(web), "default/web", 50.0, 1.0, 900.0)
    database = pod("db-1", labels=DB)
    found = cluster(web, traffic=Traffic({workload_of(database): (counted,)}))
    (peer,) = peers_of(found, database)
    assert (peer.mbps, peer.declared) == (6.0, True)
    objects = (SERVICE, PodSelector("Service", "default", "web", equals(app="web")))
    own = replace(database, annotations=PodAnnotations(peers=(DeclaredPeer("web", 1.0, 2.0),)))
    (peer,) = peers_of(cluster(web, objects=objects), own)
    assert (peer.name, peer.mbps, peer.requests_per_s) == ("web", 1.0, 2.0)


def test_each_pod_and_each_view_has_its_own_peers() -> None:
    found = cluster(database("1", "a"))
    first, second = declaring(DeclaredPeer("db")), declaring(DeclaredPeer("node/d"))
    for _ in range(2):
        assert [each.name for each in peers_of(found, first)] == ["db"]
        assert [each.name for each in peers_of(found, second)] == ["node/d"]
        assert absent_peers(found, first) == ()
    assert [NAMES[at] for at in peers_of(found, first)[0].nodes] == ["a"]
    more = found.with_placement(pod("2", labels=DB), NAMES.index("c"))
    assert [NAMES[at] for at in peers_of(more, first)[0].nodes] == ["a", "c"]
    assert [NAMES[at] for at in peers_of(found, first)[0].nodes] == ["a"]


def test_pods_that_come_together_are_peers_before_they_have_a_place() -> None:
    web = replace(
        pod("web", labels={"app": "web"}),
        annotations=PodAnnotations(peers=(DeclaredPeer("db", 6.0, 20.0),)),
    )
    batch = [web, pod("db-1", labels=DB), pod("other", labels={"app": "other"})]
    (peer,) = peers_among(cluster(database("2", "b")), web, batch)
    assert peer.members.tolist() == [False, True, False]
    assert (peer.name, peer.mbps, peer.least_requests_per_s, peer.placed) == ("db", 6.0, 20.0, 1)
    assert not list(peers_among(cluster(), batch[1], batch)), "who declares it is not its peer here"


def test_pods_whose_workloads_were_seen_to_exchange_data_are_peers_too() -> None:
    web, database = pod("web", labels={"app": "web"}), pod("db-1", labels=DB)
    counted = PeerTraffic(workload_of(database), "default/db", 5.0, 4.0, 4.0)
    found = cluster(traffic=Traffic({workload_of(web): (counted,)}))
    (peer,) = peers_among(found, web, [web, database])
    assert (peer.name, peer.members.tolist(), peer.placed) == ("default/db", [False, True], 0)
