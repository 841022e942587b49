"""Where boards are drawn, and which links: near means a short round trip, and boards stay put."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.map.layout import Layout, layout, order
from leadline_controller.map.links import SOURCES, chosen, matrix
from leadline_controller.telemetry.coordinates import estimate
from leadline_controller.telemetry.link_status import PairTable


def pair_table(
    names: list[str],
    rtts: dict[tuple[str, str], float],
    *,
    fitted: bool = False,
    tested: tuple[tuple[str, str], ...] = (),
) -> PairTable:
    ends = np.array([[names.index(each) for each in pair] for pair in rtts], dtype=np.int64)
    ends, rtt_ms = ends.reshape(-1, 2), np.array(list(rtts.values()))
    estimates = estimate(names, ends, rtt_ms) if fitted else None
    unknown = np.full(len(ends), np.nan)
    return PairTable(
        names=tuple(names),
        ends=ends,
        rtt_ms=rtt_ms,
        error_ms=unknown,
        near_ms=unknown,
        loss=unknown,
        is_stale=np.zeros(len(ends), dtype=np.bool_),
        tested=dict.fromkeys(tested, 100.0),
        estimates=estimates,
    )


def sites(count: int, each: int, seed: int = 1) -> tuple[list[str], dict[tuple[str, str], float]]:
    """Boards of so many sites 20 ms apart, and all their round trips."""
    random = np.random.default_rng(seed)
    names = [f"s{site}-{at}" for site in range(count) for at in range(each)]
    rtts = {}
    for one in range(len(names)):
        for other in range(one + 1, len(names)):
            away = abs(one // each - other // each)
            rtts[names[one], names[other]] = (0.5 + 20 * away) * random.uniform(0.9, 1.1)
    return names, rtts


def distance(found: Layout, a: str, b: str) -> float:
    one, other = np.array(found.positions[a]), np.array(found.positions[b])
    return float(np.hypot(*(one - other)))


@pytest.mark.parametrize("fitted", [False, True])
def test_boards_of_one_site_are_near_to_each_other(fitted: bool) -> None:
    names, rtts = sites(3, 5)
    found = layout(names, pair_table(names, rtts, fitted=fitted), Layout())
    for name in names:
        mine = [distance(found, name, x) for x in names if x[:2] == name[:2] and x != name]
        others = [distance(found, name, x) for x in names if x[:2] != name[:2]]
        assert max(mine) < min(others)
    assert not found.unplaced


def test_the_same_input_gives_the_same_layout() -> None:
    names, rtts = sites(2, 6)
    pairs = pair_table(names, rtts, fitted=True)
    assert layout(names, pairs, Layout()) == layout(names, pairs, Layout())


def test_boards_stay_where_they_are_when_round_trips_vary() -> None:
    names, rtts = sites(3, 6)
    before = layout(names, pair_table(names, rtts, fitted=True), Layout())
    for seed in range(2, 6):
        _, varied = sites(3, 6, seed)
        after = layout(names, pair_table(names, varied, fitted=True), before)
        moved = [np.hypot(*np.subtract(before.positions[x], after.positions[x])) for x in names]
        assert np.median(moved) < 0.1
        before = after


def test_a_turned_or_mirrored_layout_is_turned_back() -> None:
    names, rtts = sites(3, 4)
    pairs = pair_table(names, rtts)
    first = layout(names, pairs, Layout())
    # Nobody but the new board is known: the others start anew, on what was there.
    turned = Layout({x: (first.positions[x][1], first.positions[x][0]) for x in names[:5]})
    second = layout(names, pairs, turned)
    for name in names[:5]:
        assert distance(second, name, name) == 0
        assert np.hypot(*np.subtract(second.positions[name], turned.positions[name])) < 0.35


def test_a_new_board_appears_beside_its_peers_and_the_others_stay() -> None:
    names, rtts = sites(2, 6)
    old = [name for name in names if name != "s1-5"]
    known = {pair: value for pair, value in rtts.items() if "s1-5" not in pair}
    before = layout(old, pair_table(old, known), Layout())
    after = layout(names, pair_table(names, rtts), before)
    nearest = min(old, key=lambda name: distance(after, "s1-5", name))
    assert nearest.startswith("s1")
    assert (
        np.median([np.hypot(*np.subtract(before.positions[x], after.positions[x])) for x in old])
        < 0.15
    )


def test_boards_without_a_round_trip_are_at_the_lower_edge() -> None:
    names, rtts = sites(1, 3)
    found = layout([*names, "new", "other"], pair_table(names, rtts), Layout())
    assert found.unplaced == {"new", "other"}
    lowest = max(found.positions[name][1] for name in names)
    assert found.positions["new"][1] > lowest
    assert found.positions["new"] != found.positions["other"]


@given(st.integers(0, 12), st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_any_measurements_give_positions_in_the_square(count: int, seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    names = [f"n{at}" for at in range(count)]
    rtts = {
        (a, b): float(random.choice([0.0, 1e-9, 0.3, 0.3, 50.0, 1e7, np.inf]))
        for at, a in enumerate(names)
        for b in names[at + 1 :]
        if random.random() < share
    }
    pairs = pair_table(names, rtts)
    before = Layout()
    for _ in range(2):
        before = layout(names, pairs, before)
        assert before.positions.keys() == set(names)
        for x, y in before.positions.values():
            assert 0 <= x <= 1
            assert 0 <= y <= 1


def test_boards_do_not_cover_each_other() -> None:
    names, rtts = sites(1, 40)
    found = layout(names, pair_table(names, rtts), Layout())
    places = np.array(list(found.positions.values()))
    between = np.hypot(*(places[:, np.newaxis] - places).transpose(2, 0, 1))
    np.fill_diagonal(between, np.inf)
    assert between.min() > 0.02


@pytest.mark.slow
def test_beyond_400_boards_the_others_are_put_beside_their_nearest() -> None:
    names = [f"n{at}" for at in range(450)]
    rtts = {
        (names[at], names[other]): 0.5 if at % 2 == other % 2 else 60.0
        for at in range(450)
        for other in range(at + 1, min(450, at + 40))
    }
    found = layout(names, pair_table(names, rtts), Layout())
    assert len(set(found.positions.values())) > 300


def test_an_order_visits_each_board_once_and_near_ones_in_turn() -> None:
    places = np.array([(0.0, 0.0), (1.0, 1.0), (0.1, 0.0), (0.9, 1.0), (0.2, 0.0)])
    found = order(places).tolist()
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert abs(found.index(1) - found.index(3)) == 1
    assert order(np.zeros((0, 2))).tolist() == []


def test_the_links_drawn_grow_with_the_boards_and_not_with_the_pairs() -> None:
    for each in (10, 40):
        names, rtts = sites(2, each)
        drawn = chosen(pair_table(names, rtts, fitted=True), ())
        assert 2 * each <= len(drawn) <= 4 * 2 * each
        assert all(a < b for a, b in drawn)


def test_each_board_has_links_to_its_nearest_peers_and_to_the_anchors() -> None:
    names, rtts = sites(2, 10)
    drawn = chosen(pair_table(names, rtts), ["s0-0"])
    for name in names:
        nearest = sorted((value, pair) for pair, value in rtts.items() if name in pair)
        assert {pair for _, pair in nearest[:4]} <= drawn
        if name != "s0-0":
            assert tuple(sorted((name, "s0-0"))) in drawn


def test_lost_and_tested_pairs_are_drawn() -> None:
    names, rtts = sites(1, 20)
    rtts["s0-0", "s0-19"] = np.inf
    tested = (("s0-1", "s0-18"),)
    drawn = chosen(pair_table(names, rtts, tested=tested), ())
    assert {("s0-0", "s0-19"), *tested} <= drawn


def test_a_board_with_few_measured_peers_has_estimated_ones() -> None:
    names, rtts = sites(2, 6)
    measured = {
        pair: value
        for pair, value in rtts.items()
        if "s1-5" not in pair or pair == ("s1-0", "s1-5")
    }
    drawn = chosen(pair_table(names, measured, fitted=True), ())
    assert sum("s1-5" in pair for pair in drawn) >= 4


def test_the_matrix_has_measured_estimated_and_lost_pairs() -> None:
    names, rtts = sites(2, 5)
    rtts["s0-0", "s0-1"] = np.inf
    del rtts["s0-0", "s0-2"]
    finite = {pair: value for pair, value in rtts.items() if np.isfinite(value)}
    fit = pair_table(names, finite, fitted=True)
    pairs = pair_table(names, rtts)._replace(estimates=fit.estimates)
    rtt_ms, source = matrix(names, pairs)
    words = [[SOURCES[each] for each in row] for row in source.tolist()]
    assert words[0][1] == "unreachable"
    assert np.isnan(rtt_ms[0, 1])
    assert words[0][2] in ("estimated", "triangulated")
    assert 0 < rtt_ms[0, 2] < 10
    assert words[0][3] == "measured"
    assert rtt_ms[0, 3] == rtts["s0-0", "s0-3"]
    assert np.array_equal(rtt_ms, rtt_ms.T, equal_nan=True)
    assert np.array_equal(source, source.T)
    assert words[0][0] == "unknown"
