"""Estimates of the round trips that no board measured, as strategies and people see them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from leadline_controller.framework.view import Floats
from leadline_controller.telemetry import coordinates, links
from leadline_controller.telemetry.coordinates import Coordinates, Ints, RttEstimates, estimate, fit

from tests.controller.telemetry.road import NAMES, UNMEASURED, road, true_ms
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder, table


def test_one_pair_by_its_coordinates_is_what_all_pairs_are() -> None:
    random = np.random.default_rng(1)
    coordinates = Coordinates(random.normal(size=(4, 3)), random.uniform(0.1, 1.0, 4))
    for node in range(4):
        one_by_one = [coordinates.rtt_ms(node, other) for other in range(4)]
        assert one_by_one == pytest.approx(coordinates.rtt_ms_from(node).tolist())


def test_without_estimates_a_pair_is_unknown() -> None:
    row = road().state.link_table(table(*NAMES), 100.0).rtt_ms_from(0)
    assert np.isnan(row[5])
    assert row[1] == true_ms(0, 1)


def test_strategies_get_an_estimate_of_each_unmeasured_pair() -> None:
    builder = road()
    builder.state.estimate_rtts(100.0)
    found = builder.state.link_table(table(*NAMES), 100.0)
    for a, b in UNMEASURED:
        assert found.rtt_ms_from(a)[b] == pytest.approx(true_ms(a, b), rel=0.15)
        assert found.rtt_ms_from(b)[a] == pytest.approx(true_ms(a, b), rel=0.15)
    assert found.rtt_ms_from(0)[1] == pytest.approx(true_ms(0, 1), rel=0.05)


def test_a_node_without_measurements_stays_unknown() -> None:
    builder = road()
    builder.birth("new")
    builder.state.estimate_rtts(100.0)
    row = builder.state.link_table(table(*NAMES, "new"), 100.0).rtt_ms_from(7)
    assert np.isnan(np.delete(row, 7)).all()


def test_a_pair_says_where_its_round_trip_is_from() -> None:
    builder = road()
    builder.state.estimate_rtts(100.0)
    found = {(x.a, x.b): x for x in builder.state.links(100.0, NAMES)}
    assert len(found) == len(NAMES) * (len(NAMES) - 1) // 2
    assert found["n0", "n1"].rtt_source == "measured"
    assert found["n0", "n1"].rtt_method == "icmp"
    for a, b in UNMEASURED:
        link = found[NAMES[a], NAMES[b]]
        assert link.rtt_source in ("triangulated", "estimated")
        assert link.rtt_method == ""
        assert link.rtt_error_ms is not None
        assert link.rtt_error_ms > 0
    assert not {(NAMES[a], NAMES[b]) for a, b in UNMEASURED} & {
        (x.a, x.b) for x in builder.state.links(100.0)
    }


def test_a_measurement_is_stale_before_it_is_unknown() -> None:
    builder = TelemetryBuilder("n1", "n2")
    builder.rtt("n1", "n2", 5.0, 100.0)
    found = [builder.state.links(now_s) for now_s in (100.0, 189.0, 191.0, 280.0, 281.0)]
    assert [x[0].rtt_source for x in found[:4]] == ["measured", "measured", "stale", "stale"]
    assert found[4] == []
    errors = [x[0].rtt_error_ms or 0.0 for x in found[:4]]
    assert errors == sorted(errors)
    assert errors[0] < errors[3]


def test_a_measurement_replaces_the_estimate() -> None:
    builder = road()
    builder.state.estimate_rtts(100.0)
    builder.rtt("n0", "n5", 50.0, 101.0)  # a detour that no coordinates would have found
    found = builder.state.link_table(table(*NAMES), 101.0)
    assert found.rtt_ms_from(0)[5] == pytest.approx(50.0)


def test_one_outlier_changes_nothing_and_a_lasting_change_does() -> None:
    builder = TelemetryBuilder("n1", "n2")
    seen = []
    for at_s, rtt_ms in enumerate((5.0, 5.0, 80.0, 5.0, 80.0, 80.0)):
        builder.rtt("n1", "n2", rtt_ms, 100.0 + at_s)
        seen.append(builder.state.links(100.0 + at_s)[0].rtt_ms)
    assert seen == [5.0, 5.0, 5.0, 5.0, 80.0, 80.0]


def test_few_nodes_have_no_estimates() -> None:
    builder = TelemetryBuilder("n1", "n2", "n3")
    builder.rtt("n1", "n2", 5.0, 100.0)
    builder.rtt("n2", "n3", 5.0, 100.0)
    builder.state.estimate_rtts(100.0)
    assert np.isnan(builder.state.link_table(table("n1", "n2", "n3"), 100.0).rtt_ms_from(0)[2])


def test_the_nearest_unknown_nodes_are_the_unmeasured_ones_by_distance() -> None:
    builder = road()
    assert builder.state.nearest_unknown(["n0"], 2, 100.0) == {}
    builder.state.estimate_rtts(100.0)
    found = builder.state.nearest_unknown(["n0", "n9", "n3"], 2, 100.0)
    assert found == {"n0": ["n5"], "n3": []}
    assert builder.state.nearest_unknown([], 2, 100.0) == {}
    # All measurements are stale by then.
    assert builder.state.nearest_unknown(["n0"], 2, 195.0) == {"n0": ["n1", "n2"]}


def test_a_table_of_many_pairs_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_FEW_LINKS", 1)
    builder, nodes = TelemetryBuilder("n1", "n2", "n3"), table("n1", "n2", "n3")
    builder.rtt("n1", "n2", 1.0, 100.0)
    assert builder.state.link_table(nodes, 100.0).rtt_ms_from(0)[1] == 1.0
    builder.rtt("n2", "n3", 2.0, 100.0)
    assert builder.state.link_table(nodes, 100.0).rtt_ms_from(1)[2] == 2.0
    builder.rtt("n1", "n3", 3.0, 100.0)
    assert np.isnan(builder.state.link_table(nodes, 100.5).rtt_ms_from(0)[2])
    assert builder.state.link_table(nodes, 101.0).rtt_ms_from(0)[2] == 3.0


def test_estimates_may_be_read_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinates, "_MAX_ROWS_CACHED", 2)
    rtt_ms, ends = pairs_of(30)
    estimates = estimate([f"n{i}" for i in range(30)], ends, rtt_ms)
    alone = [estimates.rtt_ms_from(node)[0].tolist() for node in range(30)]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda i: estimates.rtt_ms_from(i % 30)[0].tolist(), range(600)))
    assert rows == [alone[i % 30] for i in range(600)]


def pairs_of(count: int) -> tuple[Floats, Ints]:
    random = np.random.default_rng(1)
    places = random.uniform(0, 20, (count, 2))
    ends = np.array([(a, b) for a in range(count) for b in range(a) if (a + b) % 3])
    return np.hypot(*(places[ends[:, 0]] - places[ends[:, 1]]).T) + 1.0, ends


def test_a_second_fit_starts_from_the_first() -> None:
    rtt_ms, ends = pairs_of(30)
    names = [f"n{i}" for i in range(30)]
    first = estimate(names, ends, rtt_ms)
    second = estimate(names, ends, rtt_ms, first)
    moved = abs(second.coordinates.heights - first.coordinates.heights)
    assert np.nanmedian(moved) < 0.1
    # A node that is gone takes its coordinates along; a new one gets some.
    kept = (ends < 29).all(axis=1)
    third = estimate([*names[:29], "new"], ends[kept], rtt_ms[kept], second)
    assert np.isnan(third.coordinates.heights[29])
    assert np.isfinite(third.coordinates.heights[:29]).all()


def settled_on(
    names: list[str], ends: Ints, rtt_ms: Floats, found: RttEstimates | None = None
) -> RttEstimates:
    found = estimate(names, ends, rtt_ms, found)
    while found.settled is None:
        found = estimate(names, ends, rtt_ms, found)
    return found


def test_coordinates_stay_until_measurements_agree_less_with_them() -> None:
    rtt_ms, ends = pairs_of(30)
    names = [f"n{i}" for i in range(30)]
    random = np.random.default_rng(1)
    rtt_ms *= random.normal(1.0, 0.05, len(ends))
    known = settled_on(names, ends, rtt_ms)
    noise = random.normal(1.0, 0.01, len(ends))
    again = estimate(names, ends, rtt_ms * noise, known)
    assert again.coordinates is known.coordinates
    # What is measured counts, though.
    assert again.rtt_ms.tolist() == (rtt_ms * noise).tolist()
    # The uplink of one board becomes slower, by which all others hardly change.
    of_7 = (ends == 7).any(axis=1)
    slower_ms = rtt_ms + 20.0 * of_7
    slower = settled_on(names, ends, slower_ms, again)
    found_ms = slower.coordinates.between(*ends[of_7].T)
    assert np.median(abs(np.log(found_ms / slower_ms[of_7]))) < 0.05


def test_a_node_without_coordinates_or_measurements_is_seen_at_once() -> None:
    rtt_ms, ends = pairs_of(30)
    names = [f"n{i}" for i in range(30)]
    early = (ends != 7).all(axis=1)
    known = settled_on(names, ends[early], rtt_ms[early])
    assert np.isnan(known.coordinates.heights[7])
    found = estimate(names, ends, rtt_ms, known)
    assert np.isfinite(found.coordinates.heights).all()
    found = settled_on(names, ends, rtt_ms)
    without = estimate(names, ends[early], rtt_ms[early], found)
    assert np.flatnonzero(np.isnan(without.coordinates.heights)).tolist() == [7]


def test_one_pair_is_estimated_as_its_row_is() -> None:
    rtt_ms, ends = pairs_of(30)
    found = estimate([f"n{i}" for i in range(30)], ends, rtt_ms)
    pairs = [(a, b) for a in range(30) for b in range(30) if a != b]
    alone = [found.rtt_ms_between(a, b) for a, b in pairs]
    for (a, b), (one_ms, is_triangulated) in zip(pairs, alone, strict=True):
        row_ms, triangulated = found.rtt_ms_from(a)
        assert one_ms == pytest.approx(row_ms[b], rel=1e-6)
        assert is_triangulated == triangulated[b]
        assert found.rtt_ms_between(a, b) == (row_ms[b], triangulated[b])


def test_estimates_without_pairs_get_them_again() -> None:
    rtt_ms, ends = pairs_of(30)
    found = estimate([f"n{i}" for i in range(30)], ends, rtt_ms)
    again = found.without_pairs().with_pairs(ends, rtt_ms)
    assert again.rtt_ms_from(3)[0].tolist() == found.rtt_ms_from(3)[0].tolist()


def test_the_error_of_an_estimate_comes_from_pairs_that_were_measured_later() -> None:
    rtt_ms, ends = pairs_of(30)
    names = [f"n{i}" for i in range(30)]
    half = np.random.default_rng(2).random(len(ends)) < 0.5
    first = estimate(names, ends[half], rtt_ms[half])
    assert first.trials.error("estimated") == 1.0  # nothing tried it yet
    second = estimate(names, ends, rtt_ms, first)
    third = estimate(names, ends, rtt_ms, second)
    errors = [each.trials.error("estimated") for each in (second, third)]
    assert 0 < errors[0] < 1.0
    assert errors[0] == errors[1]  # no pair is new


def test_without_pairs_there_are_no_coordinates() -> None:
    assert np.isnan(fit(3, np.zeros((0, 2), dtype=np.int64), np.zeros(0)).heights).all()


def test_triangles_show_what_is_near_where_the_coordinates_are_wrong() -> None:
    # 0 measured 1, and 1 measured 2; all three are on one site, which the coordinates do not show.
    ends = np.array([(0, 1), (1, 2), (0, 3), (1, 4), (2, 5), (3, 4), (4, 5)])
    found = estimate(
        [f"n{i}" for i in range(6)], ends, np.array([1.0, 2.0, 20.0, 21.0, 22.0, 30.0, 31.0])
    )
    nodes, rtt_ms = found.nearest_measured
    assert nodes[1].tolist() == [0, 2, 4, -1, -1]
    assert rtt_ms[1].tolist() == [1.0, 2.0, 21.0, np.inf, np.inf]
    low_ms, high_ms = found.bounds_ms(0)
    assert high_ms[2] == 3.0
    assert high_ms[4] == 22.0
    assert high_ms[5] == np.inf
    assert low_ms[4] >= 20.0


def test_a_node_without_measurements_has_no_bounds() -> None:
    alone = estimate(["n0", "n1"], np.zeros((0, 2), dtype=np.int64), np.zeros(0))
    low_ms, high_ms = alone.bounds_ms(0)
    assert np.isnan(low_ms).all()
    assert np.isinf(high_ms).all()


def test_nodes_behind_one_uplink_are_near_to_each_other_at_best() -> None:
    rtt_ms = {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0}  # one site
    far = {(site, other): 12.0 for site in range(3) for other in range(3, 9)}
    others = {(a, b): 12.0 for a in range(3, 9) for b in range(a + 1, 9)}
    pairs = {pair: ms for pair, ms in {**rtt_ms, **far, **others}.items() if pair != (0, 1)}
    ends, values = np.array(list(pairs)), np.array(list(pairs.values()))
    low_ms, _ = estimate([f"n{i}" for i in range(9)], ends, values).bounds_ms(0)
    assert int(np.argmin(np.delete(low_ms, (0, 2)))) == 0
