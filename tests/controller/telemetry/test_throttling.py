"""How much longer work takes on a throttled board, by what its reports say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.node_metrics import NodeMetrics
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.throttling import UNTHROTTLED, throttling

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder, table


@pytest.mark.parametrize(
    ("flags", "mhz", "most_mhz", "celsius", "times", "error"),
    [
        ({"throttled": True}, 600.0, 1800.0, 82.0, 3.0, 1.0),
        # The frequency that was asked for, and none: half of its work.
        ({"throttled": True}, 1800.0, 1800.0, 82.0, 2.0, 0.5),
        ({"throttled": True}, 0.0, 0.0, 0.0, 2.0, 0.5),
        ({"throttled": True}, 1.0, 1800.0, 82.0, 10.0, 4.5),
        # An idle board's governor has lowered it.
        ({"throttled": False}, 600.0, 1800.0, 50.0, 1.0, 0.0),
        ({}, 600.0, 1800.0, 90.0, 1.0, 0.0),
        # The flag of the firmware counts before the alarm of a sensor.
        ({"under_voltage": True}, 600.0, 1200.0, 50.0, 2.0, 0.5),
        ({"under_voltage": True, "throttled": False}, 600.0, 1200.0, 50.0, 1.0, 0.0),
        # It will be throttled as soon as it works.
        ({"throttled": False}, 1800.0, 1800.0, 77.5, 1.0, 0.25),
        ({"throttled": False}, 1800.0, 1800.0, 99.0, 1.0, 0.5),
        ({"under_voltage": False}, 1800.0, 1800.0, 99.0, 1.0, 0.0),
    ],
)
def test_what_a_report_says(
    flags: dict[str, bool],
    mhz: float,
    most_mhz: float,
    celsius: float,
    times: float,
    error: float,
) -> None:
    values = {"cpu_celsius": celsius} | ({"frequency_mhz": mhz} if mhz else {})
    assert throttling(flags, values, most_mhz) == pytest.approx((times, error))


@given(
    st.dictionaries(st.sampled_from(["throttled", "under_voltage"]), st.booleans()),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
    st.floats(-100, 200),
)
def test_it_is_never_quicker_and_always_finite(
    flags: dict[str, bool], mhz: float, most_mhz: float, celsius: float
) -> None:
    found = throttling(flags, {"frequency_mhz": mhz, "cpu_celsius": celsius}, most_mhz)
    assert 1.0 <= found.times <= 10.0
    assert 0.0 <= found.error <= 4.5
    if not any(flags.values()):
        assert found.times == UNTHROTTLED.times


def reported(boards: TelemetryBuilder, name: str, at_s: float, mhz: float, *, flag: bool) -> None:
    reading = BoardReading({"frequency_mhz": mhz}, flags={"throttled": flag})
    assert boards.state.report(name, boards.stamp(name, measured_s=at_s), reading)


def seen(boards: TelemetryBuilder, now_s: float, *names: str) -> NodeMetrics:
    return boards.state.metrics(table(*names), now_s)


def test_the_view_has_the_boards_frequency_beside_the_highest_that_it_reported() -> None:
    boards = TelemetryBuilder("a", "b")
    for name in ("a", "b"):
        reported(boards, name, 0.0, 1500.0, flag=False)
    assert seen(boards, 1.0, "a", "b").throttling.size == 0
    reported(boards, "b", 10.0, 600.0, flag=True)
    found = seen(boards, 11.0, "unknown", "a", "b")
    assert found.throttling.tolist() == [1.0, 1.0, 2.5]
    assert found.throttling_error.tolist() == [0.0, 0.0, 0.75]
    # As the report becomes too old, and as it ends.
    assert seen(boards, 71.0, "a", "b").throttling.size == 0
    reported(boards, "b", 80.0, 600.0, flag=False)
    assert seen(boards, 81.0, "a", "b").throttling.size == 0


def test_a_board_that_was_throttled_since_it_is_known_does_half_of_its_work() -> None:
    boards = TelemetryBuilder("a")
    reported(boards, "a", 0.0, 600.0, flag=True)
    assert seen(boards, 1.0, "a").throttling.tolist() == [2.0]


def test_more_boards_than_there_was_room_for_keep_theirs() -> None:
    names = [f"n{at}" for at in range(130)]
    boards = TelemetryBuilder(*names)
    for at, name in enumerate(names):
        reported(boards, name, 0.0, 1000.0, flag=at % 2 == 1)
    assert seen(boards, 1.0, *names).throttling.tolist() == [1.0, 2.0] * 65
