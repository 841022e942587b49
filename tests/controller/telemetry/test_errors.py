"""How precise a board's values are, by what they change from report to report."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import Floats
from leadline_controller.telemetry.board_columns import BoardColumns
from leadline_controller.telemetry.link_bandwidth import LinkBandwidth

CPU, DISK = METRICS.index("cpu_percent"), METRICS.index("disk_bytes_per_s")
BANDWIDTH = METRICS.index("bandwidth_mbps")


def errors(columns: BoardColumns, slots: Iterable[int]) -> Floats:
    at = np.array(list(slots))
    return columns.node_metrics(at, columns.values[at], 0.0).errors


def reported(series: Floats) -> BoardColumns:
    """Boards that have sent these values of CPU, shape (reports, boards)."""
    columns = BoardColumns(60, 1800)
    slots = [columns.take() for _ in range(series.shape[1])]
    for at, values in enumerate(series.tolist()):
        for slot, value in zip(slots, values, strict=True):
            columns.report(slot, {"cpu_percent": value}, {}, 10.0 * at)
    return columns


@pytest.mark.parametrize("deviation", [0.01, 3.0, 500.0])
@pytest.mark.parametrize("seed", range(5))
def test_an_error_is_about_the_deviation_of_a_reading(deviation: float, seed: int) -> None:
    drift = np.linspace(0, 10 * deviation, 100)[:, np.newaxis]
    series = drift + np.random.default_rng(seed).normal(1000, deviation, (100, 20))
    found = errors(reported(series), range(20))[:, CPU] / deviation
    assert 0.8 < np.median(found) < 1.2
    assert (found > 0.35).all()
    assert (found < 2).all()


def test_load_that_comes_is_no_error() -> None:
    series = np.random.default_rng(0).normal(5, 0.5, (40, 4))
    for jump_at in (1, 20, 39):
        loaded = series.copy()
        loaded[jump_at:, 0] += 90
        assert errors(reported(loaded[: jump_at + 1]), range(1, 4))[:, CPU].max() < 90
    # From an idle disk's exact zeros, too.
    columns = BoardColumns(60, 1800)
    slot = columns.take()
    for at, value in enumerate([0.0, 0.0, 0.0, 5e6]):
        columns.report(slot, {"disk_bytes_per_s": value}, {}, at)
    assert errors(columns, [slot])[0, DISK] < 5e6


def test_a_metric_that_no_report_brought_has_changed_nothing() -> None:
    columns = BoardColumns(60, 1800)
    slot = columns.take()
    for at, value in enumerate([1.0, 3.0, 1.0]):
        columns.report(slot, {"cpu_percent": value}, {}, at)
        columns.report(slot, {"disk_bytes_per_s": 7.0}, {}, at)
    assert errors(columns, [slot])[0, CPU] == pytest.approx(2 * math.pi**0.5 / 2)


def test_a_bandwidths_error_is_what_agreeing_tests_differ_by() -> None:
    columns = BoardColumns(60, 1800)
    known, unknown = columns.take(), columns.take()
    columns.set_bandwidth(known, LinkBandwidth(90.0, 0.0))
    assert errors(columns, [known, unknown, -1])[:, BANDWIDTH].tolist() == pytest.approx([9, 0, 0])


def test_a_bounds_error_is_that_of_what_the_interface_does_if_that_is_known() -> None:
    columns = BoardColumns(60, 1800)
    known, unknown = columns.take(), columns.take()
    columns.report(known, {"link_mbps": 1000.0}, {}, 0.0)
    for slot in (known, unknown):
        columns.set_bandwidth(slot, LinkBandwidth(90.0, 0.0, lower_bound=True))
    assert errors(columns, [known, unknown])[:, BANDWIDTH].tolist() == pytest.approx([100, 9])


def test_another_board_in_a_slot_begins_anew() -> None:
    columns = reported(np.array([[0.0, 1.0], [50.0, 1.0], [0.0, 1.0]]))
    columns.free(0)
    assert columns.take() == 0
    assert errors(columns, [0])[0, CPU] == 0.0
