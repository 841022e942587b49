from random import Random
from typing import Any

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Rule, decide
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import Node
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.explanation import (
    BANDWIDTH,
    RATES_UNKNOWN,
    RECENTLY_PLACED,
    REPORT,
    RTT,
    decode,
    encode,
    explanation,
    load_document,
)
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.netsched import NetSched

from tests.controller.builders import node, pod, view

NAN = float("nan")
NOW_S = 100.0


def measured(nodes: list[Node], at_s: float = 90.0) -> ClusterView:
    """Everything was measured at the same time, except the last node's CPU and the links."""
    count = len(nodes)
    made = view(nodes, metrics={name: [50.0] * count for name in METRICS})
    times_s = np.full((count, len(METRICS)), at_s)
    times_s[-1, METRICS.index("cpu_percent")] = at_s - 20
    times_s[:, METRICS.index("bandwidth_mbps")] = at_s - 60
    columns = {name: getattr(made.metrics, name) for name in METRICS}
    metrics = NodeMetrics(**columns, measured_at_s=times_s)
    ends = np.array([[0, 1], [1, 2]])
    links = LinkTable.of_columns(count, ends, np.array([1.0, 2.0]), np.array([95.0, 85.0]))
    return ClusterView(
        made.table, {}, metrics, links, made.bandwidth_requested_mbps, made.placed_in_run
    )


def decide_on(cluster: ClusterView, strategy: type = NetSched, **wanted: Any) -> Decision:
    return decide(cluster, pod(**wanted), Rule(strategy(), FILTERS, Random(1)))


def test_a_small_cluster_is_explained_in_full() -> None:
    cluster = view([node("n1"), node("n2", unschedulable=True), node("n3", ready=False)])
    decision = decide_on(cluster)
    explained = explanation(decision, NOW_S, limit=64)
    assert (explained.scored, explained.rejected) == (1, 2)
    assert explained.nodes == ("n1",)
    assert {
        name: list(reasons) for name, reasons in explained.reasons.items()
    } == decision.rejected()
    assert explained.failing == {"NodeUnschedulable": 1, "NodeReady": 1}


def test_it_has_the_values_that_the_strategy_read() -> None:
    cluster = measured([node(name) for name in ("n1", "n2", "n3")])
    by_points = explanation(decide_on(cluster), NOW_S).measured
    assert sorted(by_points) == sorted(NetSched.needs)
    assert by_points["cpu_percent"].tolist() == [50.0] * 3
    for_a_user = explanation(decide_on(cluster, Dacs, annotations={"user-node": "n2"}), NOW_S)
    round_trips = dict(zip(for_a_user.nodes, for_a_user.measured["rtt_ms"], strict=True))
    assert (round_trips["n1"], round_trips["n3"]) == (1.0, 2.0)
    assert explanation(decide_on(cluster, KubeDefault), NOW_S).measured == {}


def test_what_is_assumed_stands_beside_what_was_measured() -> None:
    before = measured([node(name) for name in ("n1", "n2", "n3")]).assuming_load()
    nothing = explanation(decide_on(before), NOW_S)
    assert nothing.assumed == nothing.pods == {}
    placed = pod(requests={"cpu": "400m", "memory": "800Mi"}, annotations={"bandwidth-mbps": "5"})
    explained = explanation(decide_on(before.with_placement(placed, 1)), NOW_S)
    assert explained.measured["cpu_percent"].tolist() == [50.0] * 3
    assert {name: column[1] for name, column in explained.assumed.items()} == {
        "cpu_percent": 10.0,
        "memory_percent": pytest.approx(100 * 800 / (8 * 1024), rel=1e-5),
        "bandwidth_mbps": -5.0,
    }
    assert {name: column.tolist() for name, column in explained.pods.items()} == {
        RECENTLY_PLACED: [0.0, 1.0, 0.0],
        RATES_UNKNOWN: [0.0, 1.0, 0.0],
    }
    stored = decode(encode(explained))
    assert stored.assumed["cpu_percent"].tolist() == [0.0, 10.0, 0.0]
    document = load_document({"cpu_percent": 50.0, "rtt_ms": 3.0}, {"cpu_percent": 10.0})
    assert document == {
        "measured": {"cpu_percent": 50.0, "rtt_ms": 3.0},
        "assumed": {"cpu_percent": 10.0},
        "sum": {"cpu_percent": 60.0},
    }


def test_of_many_nodes_the_best_and_the_chosen_one_are_included() -> None:
    cluster = view([node(f"n{i}", cores=4 + i) for i in range(50)])
    decision = decide_on(cluster, KubeDefault)
    whole, explained = explanation(decision, NOW_S), explanation(decision, NOW_S, limit=8)
    assert (whole.scored, explained.scored, len(whole.nodes), len(explained.nodes)) == (
        50,
        50,
        50,
        8,
    )
    assert decision.node in explained.nodes
    totals = dict(zip(whole.nodes, whole.total, strict=True))
    assert sorted(explained.total) == sorted(totals.values())[-8:]
    assert [totals[name] for name in explained.nodes] == explained.total.tolist()
    for part, column in explained.parts.items():
        rows = [whole.nodes.index(name) for name in explained.nodes]
        np.testing.assert_array_equal(column, whole.parts[part][rows])


def test_a_chosen_node_that_is_not_among_the_best_is_included() -> None:
    # Every node is within lambda, and the roomiest wins: its delay is the longest.
    cores = [8, *([4] * 30), 64]
    cluster = view(
        [node(f"n{i}", cores=c, gib=c, bandwidth_mbps=1000 - 20 * i) for i, c in enumerate(cores)]
    )
    wanted = pod(requests={"cpu": "2"}, limits={"cpu": "2"})
    decision = decide(cluster, wanted, Rule(Dacs(lambda_s=100.0), FILTERS, Random(1)))
    assert decision.node == "n31"
    explained = explanation(decision, NOW_S, limit=4)
    assert "n31" in explained.nodes
    assert len(explained.nodes) == 4


def test_nodes_without_a_total_are_the_first_to_be_left_out() -> None:
    cluster = view(
        [node(f"n{i}") for i in range(10)],
        metrics={"cpu_percent": [NAN] * 7 + [10.0, 20.0, 30.0]},
    )
    explained = explanation(decide_on(cluster), NOW_S, limit=3)
    assert explained.nodes == ("n7", "n8", "n9")


def test_of_many_refused_nodes_those_that_nearly_fit_are_included() -> None:
    far = [node(f"far{i}", cores=1, unschedulable=True) for i in range(20)]
    near = [node(f"near{i}", cores=1) for i in range(20)]
    explained = explanation(decide_on(view([*far, *near]), requests={"cpu": "2"}), NOW_S, limit=8)
    assert list(explained.reasons) == [f"near{i}" for i in range(8)]
    assert explained.rejected == 40
    assert explained.failing == {"NodeUnschedulable": 20, "NodeResourcesFit": 40}


def test_with_a_chosen_node_a_quarter_as_many_refused_ones_are_included() -> None:
    nodes = [node("n0", cores=8), *(node(f"n{i}", cores=1) for i in range(1, 20))]
    explained = explanation(decide_on(view(nodes), requests={"cpu": "2"}), NOW_S, limit=8)
    assert (len(explained.reasons), explained.rejected) == (2, 19)


def test_the_age_is_that_of_the_oldest_measurement_that_the_strategy_uses() -> None:
    cluster = measured([node("n1"), node("n2"), node("n3")])
    explained = explanation(decide_on(cluster), NOW_S)
    assert explained.ages_s[REPORT].tolist() == [10.0, 10.0, 30.0]
    assert explained.ages_s[BANDWIDTH].tolist() == [70.0, 70.0, 70.0]
    assert RTT not in explained.ages_s
    dacs = explanation(decide_on(cluster, Dacs), NOW_S)
    assert dacs.ages_s[RTT].tolist() == [5.0, 15.0, 15.0]
    assert REPORT not in dacs.ages_s


def test_what_was_not_measured_has_no_age() -> None:
    cluster = measured([node("n1"), node("n2"), node("n3"), node("n4")])
    for name in METRICS:
        getattr(cluster.metrics, name)[0] = NAN
    explained = explanation(decide_on(cluster), NOW_S)
    assert np.isnan(explained.ages_s[REPORT][0])
    assert np.isnan(explanation(decide_on(cluster, Dacs), NOW_S).ages_s[RTT][3])


@pytest.mark.parametrize("strategy", [NetSched, Dacs])
def test_without_measurement_times_nothing_has_an_age(strategy: type) -> None:
    cluster = view([node("n1")], metrics={name: [50.0] for name in METRICS})
    explained = explanation(decide_on(cluster, strategy), NOW_S)
    assert all(np.isnan(column).all() for column in explained.ages_s.values())


def test_a_strategy_without_measurements_has_no_ages() -> None:
    assert (
        explanation(decide_on(measured([node(f"n{i}") for i in range(3)]), KubeDefault), 1).ages_s
        == {}
    )


def test_a_decision_without_its_view_has_an_empty_explanation() -> None:
    decision = decide_on(view([node("n1")]))
    light = decision.without_basis()
    assert (light.pod, light.node, light.why) == (decision.pod, decision.node, decision.why)
    assert (light.strategy, light.better) == (decision.strategy, decision.better)
    assert explanation(light, NOW_S).nodes == ()
    assert not light.has_basis
    assert decision.has_basis
