"""The fields that a snapshot of a live cluster has beyond those that people write."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import Lives, workload_of
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.traffic import PeerTraffic
from leadline_controller.parsing.fields import FieldError
from leadline_controller.snapshot.score import start_scoring
from leadline_controller.snapshot.snapshot import Snapshot, read_snapshot
from leadline_controller.snapshot.writing import write_snapshot
from leadline_controller.strategies.netsched import NetSched

NETSCHED = Rule(NetSched(), FILTERS)
CPU_AT = METRICS.index("cpu_percent")
POD: dict[str, Any] = {
    "metadata": {"name": "p", "uid": "uid-p", "labels": {"app": "web"}},
    "spec": {"containers": [{"image": "web:1"}]},
}
NO_UID = {"metadata": {"name": "q"}}
STATED: dict[str, Any] = {
    "apiVersion": "leadline.dev/v1",
    "kind": "ClusterSnapshot",
    "rule": {"strategy": "netsched", "preferences": 0.5, "seed": 3, "assumed_load": True},
    "nodes": [
        {
            "name": "a",
            "metrics": {"cpu_percent": 20, "bandwidth_mbps": 30},
            "metric_ages_s": {"cpu_percent": 4.5},
            "metrics_with_assumed": {"cpu_percent": 130},
            "bandwidth_is_bound": True,
            "bandwidth_most_mbps": 1000,
            "bandwidth_host_limited": True,
            "recently_placed": 2,
            "rates_unknown": 1,
            "placed_in_run": 1,
            "charged_in_run": {"cpu": -500},
            "features": ["X"],
            "image_layers": ["sha256:base"],
            "download_queue": {"layers": ["sha256:own"], "mb": 4, "ready_s": 9},
            "pulls": {"mbps": 50, "overhead_s": 0.5},
            "throttling": 2.5,
            "throttling_error": 0.75,
        },
        {"name": "b", "metrics": {"bandwidth_mbps": 40}, "bandwidth_is_bound": True},
        {"name": "c", "metrics": {"bandwidth_mbps": 50}, "absence_ms": 40},
    ],
    "links": [
        {"a": "a", "b": "b", "rtt_ms": 2, "age_s": 3},
        {"a": "a", "b": "c", "unreachable": True},
    ],
    "estimates": {
        "nodes": ["a", "b", "c", "elsewhere"],
        "positions_ms": [[0, 0, 0], [3, 4, 0], [-3, -4, 0], [0, 0, 0]],
        "heights_ms": [1, 1, 2, None],
        "pairs": [],
    },
    "images": [
        {"name": "web:1", "layers": [{"digest": "sha256:base", "size_mb": 10}]},
        {
            "name": "web:1",
            "architecture": "arm64",
            "layers": [{"digest": "sha256:own", "size_mb": 5}],
        },
    ],
    "pods": [
        POD,
        {"metadata": {"name": "q", "uid": "uid-q"}, "spec": {"containers": [{"image": "x"}]}},
    ],
    "problems": [{"pod": "default/q", "problem": "nobody can place it"}],
    "nominations": [{"pod": {"metadata": {"name": "q", "uid": "uid-q"}}, "node": "b"}],
    "reservations": [{"pod": POD, "node": "c", "why": "room was made"}],
    "expected_use": [
        {
            "namespace": "default",
            "labels": {"app": "web"},
            "measured": {"cpu_cores": 0.5, "memory_bytes": 1e8},
            "learned": {"cpu_cores": 0.4, "packets_sent_per_s": 7},
            "lives": {"ran_s": 7200, "ended": 3},
            "start_s": 4,
        },
        {"namespace": "default", "uid": "uid-x", "measured": {"cpu_cores": 1}},
    ],
    "starts": {"others_s": 2, "classes": [{"class": "pi3", "factor": 2.5}]},
    "traffic": {
        "workloads": [
            {
                "namespace": "default",
                "labels": {"app": "web"},
                "peers": [
                    {
                        "workload": {"namespace": "default", "uid": "uid-x"},
                        "name": "default/x",
                        "mbps": 2.5,
                        "most_requests_per_s": 8,
                    },
                    {"node": "b", "name": "192.0.2.7", "mbps": 1, "least_requests_per_s": 2},
                ],
            }
        ],
        "entries": [{"address": "192.0.2.7", "node": "b"}],
        "flowing": [{"node": "a", "mbps": 3.5}],
    },
    "unreadable": [{"kind": "persistentvolumes", "why": "forbidden"}],
}


def stated() -> dict[str, Any]:
    return copy.deepcopy(STATED)


@pytest.fixture
def snapshot() -> Snapshot:
    return read_snapshot(stated())


def test_what_was_measured_has_its_age_and_its_bounds(snapshot: Snapshot) -> None:
    measured = snapshot.view.measured
    assert measured.measured_at_s[0, CPU_AT] == -4.5
    assert measured.measured_at_s[1, CPU_AT] == -math.inf
    assert measured.bandwidth_most_mbps.tolist() == [1000, math.inf, 50]
    assert measured.bandwidth_host_limited.tolist() == [True, False, False]
    assert snapshot.view.bandwidth_possible_mbps().tolist() == [1000, math.inf, 50]


def test_boards_that_are_slowed_down_or_go_away_are_told(snapshot: Snapshot) -> None:
    measured = snapshot.view.measured
    assert measured.throttling.tolist() == [2.5, 1, 1]
    assert measured.throttling_error.tolist() == [0.75, 0, 0]
    assert measured.absence_ms.tolist() == [0, 0, 40]
    assert snapshot.view.metrics.throttling.tolist() == [2.5, 1, 1]
    a, b, c = write_snapshot(snapshot)["nodes"]
    assert (a["throttling"], a["throttling_error"], c["absence_ms"]) == (2.5, 0.75, 40)
    assert not {"throttling", "throttling_error", "absence_ms"} & b.keys()


def test_strategies_read_what_is_assumed_as_well(snapshot: Snapshot) -> None:
    view = snapshot.view
    assert (view.measured.cpu_percent[0], view.metrics.cpu_percent[0]) == (20, 130)
    assert view.metrics.bandwidth_mbps.tolist() == [30, 40, 50]
    assert view.recently_placed.tolist() == [2, 0, 0]
    assert view.assumed is not None
    assert view.assumed.rates_unknown.tolist() == [1, 0, 0]
    use = view.assumed.expected.of(snapshot.pods[0])
    assert [*view.assumed.expected.lives.values()] == [Lives(7200.0, 3)]
    assert (use.cpu_cores, use.memory_bytes, use.packets_sent_per_s) == (0.5, 1e8, 7)
    assert math.isnan(use.disk_bytes_per_s)
    starts = view.assumed.expected.starts
    assert starts.of(workload_of(snapshot.pods[0])) == {"": 4, "pi3": 10}
    assert starts.of(workload_of(snapshot.pods[1])) == {"": 2, "pi3": 5}


def test_without_assumed_load_what_was_measured_counts(snapshot: Snapshot) -> None:
    scoring = start_scoring(snapshot, NETSCHED, assumes_load=False)
    view, _, _ = next(scoring.decisions).basis()
    assert view is not None
    assert view.metrics.cpu_percent[0] == 20


def test_the_run_goes_on(snapshot: Snapshot) -> None:
    assert snapshot.view.placed_in_run.tolist() == [1, 0, 0]
    assert snapshot.view.charged_in_run["cpu"].tolist() == [-500, 0, 0]


def test_round_trips_are_measured_lost_or_estimated(snapshot: Snapshot) -> None:
    links = snapshot.view.links
    assert links.rtt_ms_from(0)[1] == 2.0
    assert np.isnan(links.rtt_ms_from(0)[2])
    assert links.rtt_ms_from(1)[2] == pytest.approx(10 + 3)
    assert links.oldest_at_s.tolist()[:2] == [-3, -3]


def test_images_queues_and_pulls(snapshot: Snapshot) -> None:
    view, pod = snapshot.view, snapshot.pods[0]
    assert view.images.waiting_mb(view.table).tolist() == [4, 0, 0]
    assert view.images.queue_s == {0: 9}
    assert view.registry_mbps().tolist() == [50, 40, 50]
    assert view.images.missing_mb(view.table, pod).tolist() == [0, 10, 10]


def test_a_node_that_states_its_queue_pulls_nothing_for_the_pods_on_it() -> None:
    document = stated()
    running = copy.deepcopy(POD)
    running["metadata"] = {"name": "r"}
    for node in ("a", "b"):
        each = copy.deepcopy(running)
        each["metadata"]["name"] = f"r-{node}"
        each["spec"]["nodeName"] = node
        document["pods"].append(each)
    view = read_snapshot(document).view
    assert view.images.waiting_mb(view.table).tolist() == [4, 10, 0]


def test_a_pod_goes_where_room_is_kept_for_it(snapshot: Snapshot) -> None:
    decisions = list(start_scoring(snapshot, NETSCHED).decisions)
    assert (decisions[0].node, decisions[1].node) == ("c", None)
    assert decisions[0].why.startswith("room was made")
    assert decisions[1].why.startswith("nobody can place it")


def test_the_rule_is_read(snapshot: Snapshot) -> None:
    rule = snapshot.rule
    assert rule is not None
    assert (rule.strategy, rule.preferences, rule.seed, rule.letter) == ("netsched", 0.5, 3, False)


@pytest.mark.parametrize(("said", "read"), [(True, "on"), (False, "off"), ("on", "on"), (2, 2.0)])
def test_preferences_as_yaml_reads_them(said: object, read: object) -> None:
    document = stated()
    document["rule"]["preferences"] = said
    rule = read_snapshot(document).rule
    assert rule is not None
    assert rule.preferences == read


def test_a_file_by_hand_states_nothing() -> None:
    document = {
        "apiVersion": "leadline.dev/v1",
        "kind": "ClusterSnapshot",
        "nodes": [{"name": "n"}],
    }
    snapshot = read_snapshot(document)
    view = snapshot.view
    assert (snapshot.rule, snapshot.reservations, view.nominated, view.assumed) == (
        None,
        (),
        (),
        None,
    )
    assert view.links.estimates is None
    for column in (
        *(view.metrics.measured_at_s, view.metrics.bandwidth_most_mbps, view.recently_placed),
        *(view.metrics.bandwidth_host_limited, view.metrics.absence_ms),
        *(view.metrics.throttling, view.metrics.throttling_error),
    ):
        assert column.size == 0


def test_the_traffic_is_that_of_each_pod_of_a_workload(snapshot: Snapshot) -> None:
    traffic = snapshot.view.traffic
    assert traffic.peers == {
        ("default", frozenset({("app", "web")})): (
            PeerTraffic(("default", frozenset({("", "uid-x")})), "default/x", 2.5, 0.0, 8.0),
            PeerTraffic("b", "192.0.2.7", 1.0, 2.0, 0.0),
        )
    }
    assert (traffic.entries, traffic.flowing_mbps) == ({"192.0.2.7": "b"}, {"a": 3.5})


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("rule", "seed"), "x", "rule.seed: expected a whole number"),
        (("rule", "options"), {"alpha": []}, "rule.options.alpha: expected a number or a word"),
        (("rule", "preferences"), "maybe", "rule.preferences: expected a number"),
        (("rule", "wish"), 1, "rule.wish: unknown field"),
        (("nodes", 0, "placed_in_run"), -1, "nodes[0].placed_in_run: expected a whole number"),
        (("nodes", 0, "charged_in_run", "cpu"), 1.5, "nodes[0].charged_in_run.cpu: expected"),
        (("nodes", 0, "download_queue", "kb"), 1, "nodes[0].download_queue.kb: unknown field"),
        (("nodes", 0, "throttling"), -2, "nodes[0].throttling: expected a finite number"),
        (("nodes", 0, "pulls", "mbps"), -1, "nodes[0].pulls.mbps: expected a finite number"),
        (("nodes", 0, "metric_ages_s"), {"x": 1}, "nodes[0].metric_ages_s.x: unknown field"),
        (("links", 1, "unreachable"), 3, "links[1].unreachable: expected true or false"),
        (("estimates", "nodes"), ["a", "a", "b", "c"], "estimates.nodes: expected each node once"),
        (("estimates", "heights_ms"), [1], "estimates: expected 3 coordinates"),
        (("estimates", "heights_ms"), [0, 1, 1, 1], "estimates.heights_ms: expected finite"),
        (("estimates", "positions_ms", 0), [0, 0], "estimates: expected 3 coordinates"),
        (("estimates", "positions_ms", 0), [0, 0, math.inf], "estimates.positions_ms: expected"),
        (("estimates", "pairs"), [[0, 9, 1]], "estimates.pairs[0]: expected two places in nodes"),
        (("estimates", "pairs"), [[0, 0, 1]], "estimates.pairs[0]: expected two places in nodes"),
        (("estimates", "pairs"), [[0, 1, -1]], "estimates.pairs[0]: expected two places in nodes"),
        (("estimates", "pairs"), ["x"], "estimates.pairs[0]: expected"),
        (("estimates", "more"), 1, "estimates.more: unknown field"),
        (("nominations", 0, "node"), "d", "nominations[0].node: expected the name of a node"),
        (("nominations", 0, "pod"), NO_UID, "nominations[0].pod.metadata.uid"),
        (
            ("reservations", 0, "pod"),
            {"metadata": {"name": "q"}},
            "reservations[0].pod.metadata.uid",
        ),
        (("reservations", 0, "for"), 1, "reservations[0].for: unknown field"),
        (("problems", 0, "pod"), 1, "problems[0].pod: expected text"),
        (("expected_use", 0, "measured"), {"disk": 1}, "expected_use[0].measured.disk: unknown"),
        (("expected_use", 0, "lives"), {"ended": -1}, "expected_use[0].lives.ended: expected a"),
        (("expected_use", 0, "start_s"), -1, "expected_use[0].start_s: expected a"),
        (("starts", "classes", 0, "class"), None, "starts.classes[0].class: expected text"),
        (("starts", "more"), 1, "starts.more: unknown field"),
        (("expected_use", 0, "namespace"), None, "expected_use[0].namespace: expected text"),
        (("traffic", "more"), 1, "traffic.more: unknown field"),
        (("traffic", "workloads", 0, "peers", 1, "node"), "z", "traffic.workloads[0].peers[1]."),
        (("traffic", "entries", 0, "node"), "z", "traffic.entries[0].node: expected the name"),
        (("traffic", "flowing", 0, "mbps"), -1, "traffic.flowing[0].mbps: expected a finite"),
        (("unreadable", 0, "kind"), None, "unreadable[0].kind: expected text"),
        (("images", 1, "architecture"), 5, "images[1].architecture: expected text"),
        (("images", 1, "architecture"), "", "images[1].name: 'web:1' is taken by images[0]"),
    ],
)
def test_what_no_writer_would_write_is_named(
    place: tuple[str | int, ...], value: object, said: str
) -> None:
    document: Any = stated()
    part = document
    for each in place[:-1]:
        part = part[each]
    part[place[-1]] = value
    with pytest.raises(FieldError) as caught:
        read_snapshot(document)
    assert str(caught.value).startswith(said)
