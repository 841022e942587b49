import math

import numpy as np
import pytest
from leadline_controller.framework.model import CPU, MEMORY, PODS, HostPort, Link
from leadline_controller.framework.view import Floats, Ints, LinkTable

from tests.controller.builders import GIB, node, pod, view

INDEX = {"n1": 0, "n2": 1, "n3": 2, "n4": 3}
# Table 5 of the DACS paper without its master.
LINKS = [Link("n1", "n2", 160.0), Link("n1", "n3", 150.0), Link("n3", "n2", 10.0)]


def test_free_is_allocatable_less_requested() -> None:
    cluster = view([node("a", cores=4), node("b", cores=2)], requested={CPU: [1500, 2500]})
    assert cluster.free(CPU).tolist() == [2500, -500]
    assert cluster.free(MEMORY).tolist() == [8 * GIB, 8 * GIB]
    assert cluster.free("example.com/gpu").tolist() == [0, 0]


def test_bandwidth_is_stated_else_measured_else_unknown() -> None:
    cluster = view(
        [node("a", bandwidth_mbps=100.0), node("b"), node("c")],
        metrics={"bandwidth_mbps": [90.0, 80.0, math.nan]},
        bandwidth_requested_mbps=[30.0, 30.0, 30.0],
    )
    assert cluster.bandwidth_free_mbps()[:2].tolist() == [70.0, 50.0]
    assert math.isnan(cluster.bandwidth_free_mbps()[2])


def test_placing_a_pod_returns_a_new_view() -> None:
    before = view([node("a"), node("b")])
    wanted = pod(
        requests={"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
        annotations={"bandwidth-mbps": "20"},
        hostNetwork=True,
        containers=[{"name": "c", "ports": [{"containerPort": 80}]}],
    )
    after = before.with_placement(wanted, 1)
    assert after.requested_of(PODS).tolist() == [0, 1]
    assert after.bandwidth_requested_mbps.tolist() == [0.0, 20.0]
    assert after.placed_in_run.tolist() == [0, 1]
    assert after.recently_placed_pods().tolist() == [0, 1]
    assert after.host_ports == {1: (HostPort("0.0.0.0", "TCP", 80),)}
    assert before.requested_of(PODS).tolist() == [0, 0]
    assert before.bandwidth_requested_mbps.tolist() == [0.0, 0.0]
    assert before.placed_in_run.tolist() == [0, 0]
    assert before.host_ports == {}


def test_a_charge_replaces_the_requests_in_what_is_free_but_not_in_what_is_requested() -> None:
    before = view([node("a", cores=4), node("b", cores=4)])
    wanted = pod(requests={"cpu": "1"})
    after = before.with_placement(wanted, 0, {CPU: 2500, PODS: 1})
    assert after.free(CPU).tolist() == [1500, 4000]
    assert after.unrequested(CPU).tolist() == [3000, 4000]
    assert after.requested_of(CPU).tolist() == [1000, 0]
    assert after.requested_of(PODS).tolist() == [1, 0]
    twice = after.with_placement(pod("q", requests={"cpu": "1"}), 0, {CPU: 1250, PODS: 1})
    assert twice.free(CPU).tolist() == [250, 4000]
    assert (before.free(CPU).tolist(), before.charged_in_run) == ([4000, 4000], {})


def test_only_a_node_of_the_cluster_is_a_users() -> None:
    cluster = view([node("a"), node("b")])
    for name, at in (("b", 1), ("c", None)):
        assert cluster.user_node(pod(annotations={"user-node": name})) == at
    assert cluster.user_node(pod()) is None


def test_shared_columns_cannot_be_written() -> None:
    table = view([node("a")]).table
    for column in (table.allocatable(CPU), table.mask("m", lambda _: True)):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_invented_resource_names_take_no_memory() -> None:
    table = view([node("a")]).table
    for i in range(100):
        table.allocatable(f"example.com/{i}")
    assert set(table._allocatable) == set()
    table.allocatable(CPU)
    assert set(table._allocatable) == {CPU}


def test_round_trips_are_symmetric_and_nan_if_not_measured() -> None:
    table = LinkTable(INDEX, LINKS)
    np.testing.assert_equal(table.rtt_ms_from(0), [math.nan, 160.0, 150.0, math.nan])
    np.testing.assert_equal(table.rtt_ms_from(1), [160.0, math.nan, 10.0, math.nan])
    assert np.isnan(table.rtt_ms_from(3)).all()
    assert table.worst_rtt_ms == 160.0


def test_mean_and_deviation_are_those_of_equations_12_and_13() -> None:
    mean, deviation = LinkTable(INDEX, LINKS).rtt_mean_and_deviation_ms(np.ones(4, dtype=np.bool_))
    np.testing.assert_allclose(mean[:3], [155.0, 85.0, 80.0])
    np.testing.assert_allclose(deviation[:3], [5.0, 75.0, 70.0])
    assert math.isnan(mean[3])
    assert math.isnan(deviation[3])


def test_only_round_trips_to_the_given_nodes_count() -> None:
    among = np.array([True, False, True, True])
    mean, deviation = LinkTable(INDEX, LINKS).rtt_mean_and_deviation_ms(among)
    np.testing.assert_allclose(mean[:3], [150.0, 85.0, 150.0])
    np.testing.assert_allclose(deviation[:3], [0.0, 75.0, 0.0])


def test_links_without_a_round_trip_or_to_unknown_nodes_are_ignored() -> None:
    table = LinkTable(INDEX, [Link("n1", "n2", None, 90.0), Link("n1", "gone", 5.0)])
    assert math.isnan(table.worst_rtt_ms)
    assert np.isnan(table.rtt_ms_from(0)).all()
    mean, _ = table.rtt_mean_and_deviation_ms(np.ones(4, dtype=np.bool_))
    assert np.isnan(mean).all()


def test_equal_round_trips_never_deviate_by_a_rounding_error() -> None:
    index = {f"n{i}": i for i in range(8)}
    links = [Link("n0", f"n{i}", 0.1) for i in range(1, 8)]
    _, deviation = LinkTable(index, links).rtt_mean_and_deviation_ms(np.ones(8, dtype=np.bool_))
    assert deviation[0] == pytest.approx(0.0, abs=1e-6)


class Modelled:
    """Estimates that are these values, ms, shape (n, n)."""

    def __init__(self, rtt_ms: Floats) -> None:
        self._rtt_ms = rtt_ms

    def rtt_ms_from(self, node: int) -> Floats:
        return np.array(self._rtt_ms[node])

    def modelled_ms(self, a: Ints, b: Ints) -> Floats:
        return np.asarray(self._rtt_ms[a, b])

    def modelled_ms_to(self, nodes: Ints) -> Floats:
        return np.array(self._rtt_ms[:, nodes])


def partly_measured(count: int, lost: int = -1) -> tuple[LinkTable, Floats]:
    """A table of which a fifth is measured and the others are estimated 10 % too high, and what
    all pairs are then. lost: a node that replies to nobody of those."""
    random = np.random.default_rng(count)
    true = np.triu(random.lognormal(2, 0.5, (count, count)), 1)
    true += true.T
    ends = np.argwhere(np.triu(random.random((count, count)) < 0.2, 1))
    is_lost = (ends == lost).any(axis=1)
    links, gone = ends[~is_lost], ends[is_lost]
    table = LinkTable.of_columns(
        count, links, true[tuple(links.T)], np.zeros(len(links)), Modelled(1.1 * true), gone
    )
    known = 1.1 * true
    for a, b in links:
        known[a, b] = known[b, a] = true[a, b]
    for a, b in gone:
        known[a, b] = known[b, a] = math.nan
    np.fill_diagonal(known, math.nan)
    return table, known


@pytest.mark.parametrize(("among", "lost"), [(60, -1), (60, 3), (40, 50), (5, 3)])
def test_mean_and_deviation_are_those_of_all_pairs_with_an_answer(among: int, lost: int) -> None:
    table, known = partly_measured(60, lost)
    mean, deviation = table.rtt_mean_and_deviation_ms(np.arange(60) < among)
    np.testing.assert_allclose(mean, np.nanmean(known[:, :among], axis=1))
    np.testing.assert_allclose(deviation, np.nanstd(known[:, :among], axis=1))


def test_of_many_nodes_the_estimates_of_a_sample_stand_for_all() -> None:
    table, known = partly_measured(600)
    mean, deviation = table.rtt_mean_and_deviation_ms(np.ones(600, dtype=np.bool_))
    assert np.median(abs(mean / np.nanmean(known, axis=1) - 1)) < 0.05
    assert np.median(abs(deviation / np.nanstd(known, axis=1) - 1)) < 0.15


def test_a_node_without_an_answer_has_no_mean_whatever_the_model_says() -> None:
    ends = np.array([(0, other) for other in range(1, 30)])
    none: Ints = np.zeros((0, 2), dtype=np.int64)
    estimates = Modelled(np.full((30, 30), 5.0))
    table = LinkTable.of_columns(30, none, np.zeros(0), np.zeros(0), estimates, ends)
    mean, _ = table.rtt_mean_and_deviation_ms(np.ones(30, dtype=np.bool_))
    assert math.isnan(mean[0])
    np.testing.assert_allclose(mean[1:], 5.0)


def test_a_node_that_is_not_estimated_yet_has_the_mean_of_its_measured_pairs() -> None:
    rtt_ms = np.full((30, 30), 5.0)
    rtt_ms[0] = rtt_ms[:, 0] = math.nan
    ends = np.array([(0, 1), (0, 2)])
    table = LinkTable.of_columns(30, ends, np.array([1.0, 3.0]), np.zeros(2), Modelled(rtt_ms))
    mean, deviation = table.rtt_mean_and_deviation_ms(np.ones(30, dtype=np.bool_))
    assert (mean[0], deviation[0]) == (2.0, 1.0)
    assert mean[3] == 5.0
    assert mean[1] == pytest.approx((28 * 5.0 + 1.0) / 29)
