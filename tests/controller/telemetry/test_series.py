"""Blocks of series: what is packed comes back, and steps are made of what was measured."""

import numpy as np
import pytest
from leadline_controller.telemetry.series import (
    COARSE,
    FINE,
    LEAST,
    MEAN,
    MOST,
    Block,
    SeriesKey,
    pack,
    resampled,
    unpack,
)

START_S = 1_800_000_000
CPU, RTT = SeriesKey("cpu_percent"), SeriesKey("rtt_ms", "pi-7")


def block(values: dict[SeriesKey, dict[int, float]], start_s: int = START_S) -> Block:
    """A fine block: of each series the value at some minutes, with extremes one beside it."""
    points = np.full((len(values), FINE.points, 3), np.nan)
    for row, known in zip(points, values.values(), strict=True):
        for minute, value in known.items():
            row[minute] = (value, value - 1, value + 1)
    return Block(FINE, start_s, tuple(values), points)


@pytest.mark.parametrize("largest", [1.0, 100.0, 1e9])
def test_what_is_packed_comes_back_to_a_thousandth(largest: float) -> None:
    points = np.random.default_rng(1).uniform(-largest, largest, (4, FINE.points, 3))
    points = np.sort(points, axis=2)[:, :, [1, 0, 2]]
    points[1, 3] = points[2] = np.nan
    points[3, 0] = 0.0
    keys = (CPU, RTT, SeriesKey("of another collector"), SeriesKey("rtt_ms", "Zürich"))
    found = unpack(FINE, START_S, pack(Block(FINE, START_S, keys, points)))
    assert (found.resolution, found.start_s, found.keys) == (FINE, START_S, keys)
    np.testing.assert_array_equal(np.isnan(found.points), np.isnan(points))
    np.testing.assert_allclose(found.points, points, rtol=1e-3, atol=1e-3)
    assert (found.points[3, 0] == 0.0).all()


def test_a_value_beyond_all_that_is_measured_becomes_the_largest_one() -> None:
    points = np.full((1, FINE.points, 3), np.inf)
    points[0, :, LEAST] = -1e300
    found = unpack(FINE, START_S, pack(Block(FINE, START_S, (CPU,), points))).points
    assert (found[0, :, MOST] > 1e10).all()
    assert (found[0, :, LEAST] < -1e10).all()


def test_a_board_of_all_series_takes_less_than_a_kilobyte_a_quarter() -> None:
    random = np.random.default_rng(1)
    keys = [SeriesKey(f"metric_{number}") for number in range(9)]
    keys += [SeriesKey("rtt_ms", f"pi-{number}") for number in range(8)]
    means = random.lognormal(3, 1, (17, 1)) * random.lognormal(0, 0.2, (17, FINE.points))
    points = np.stack((means, 0.9 * means, 1.2 * means), axis=-1)
    assert len(pack(Block(FINE, START_S, tuple(keys), points))) < 1024


def test_damage_is_noticed() -> None:
    packed = pack(block({CPU: dict.fromkeys(range(15), 12.5), RTT: {3: 0.4}}))
    for at in range(len(packed)):
        broken = bytearray(packed)
        broken[at] ^= 0x55
        with pytest.raises(ValueError, match=r"series|byte|key|reshape"):
            unpack(FINE, START_S, bytes(broken))
    for length in range(len(packed)):
        with pytest.raises(ValueError, match="series"):
            unpack(FINE, START_S, packed[:length])


def test_of_two_blocks_both_are_kept_and_the_newer_one_where_they_overlap() -> None:
    before = block({CPU: {0: 10.0, 1: 20.0}})
    merged = before.merged(block({RTT: {1: 5.0}, CPU: {1: 21.0, 2: 30.0}}))
    assert merged.keys == (CPU, RTT)
    np.testing.assert_array_equal(merged.points[0, :4, MEAN], [10.0, 21.0, 30.0, np.nan])
    np.testing.assert_array_equal(merged.points[1, :3, MEAN], [np.nan, 5.0, np.nan])


def test_a_coarse_point_has_mean_and_extremes_of_its_quarter() -> None:
    start_s = START_S - START_S % COARSE.block_s + 2 * FINE.block_s
    coarse = block({CPU: {0: 10.0, 14: 40.0}}, start_s).as_coarse()
    assert coarse.start_s % COARSE.block_s == 0
    assert coarse.points[0, 2].tolist() == [25.0, 9.0, 41.0]
    assert np.isnan(coarse.points[0, [0, 1, 3]]).all()


def test_steps_are_of_fine_points_where_there_are_any_else_of_the_coarse_ones() -> None:
    first_s = START_S - START_S % COARSE.block_s
    old = block({CPU: dict.fromkeys(range(15), 8.0)}, first_s)
    new = block({CPU: {0: 10.0, 1: 20.0, 3: 40.0}}, first_s + 900)
    coarse = old.as_coarse().merged(new.as_coarse())
    found = resampled((new, coarse), first_s, 18, 120)[CPU]
    assert found[:7, MEAN].tolist() == [8.0] * 7  # a coarse point for each of its minutes
    # The steps are of two minutes, and the eighth one has a minute of each quarter.
    assert found[7, MEAN] == 9.0
    assert found[8:10].tolist() == [[20.0, 19.0, 21.0], [40.0, 39.0, 41.0]]
    assert np.isnan(found[10:]).all()


def test_of_the_same_block_the_later_one_counts_but_hides_nothing() -> None:
    stored, newest = block({CPU: {0: 10.0, 1: 20.0}}), block({CPU: {1: 21.0, 2: 30.0}})
    found = resampled((stored, newest), START_S, 4, 60)[CPU]
    np.testing.assert_array_equal(found[:, MEAN], [10.0, 21.0, 30.0, np.nan])


def test_a_series_without_a_point_in_the_span_is_left_out() -> None:
    known = block({CPU: {0: 1.0}, RTT: {14: 1.0}})
    assert list(resampled((known,), START_S + 600, 5, 60)) == [RTT]
    assert resampled((known,), START_S + 900, 100, 60) == {}
    assert resampled((known,), START_S - 6000, 100, 60) == {}
