import math

import numpy as np
import pytest
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import Link
from leadline_controller.framework.view import Floats, Ints

INDEX = {"n1": 0, "n2": 1, "n3": 2, "n4": 3}


# Table 5 of the DACS paper without its master.
LINKS = [Link("n1", "n2", 160.0), Link("n1", "n3", 150.0), Link("n3", "n2", 10.0)]


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
