"""What boards would have reported if other pods had run on them."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.telemetry.collectors import BoardReading
from leadline_lab.replay.boards import BoardLoad, Stay, left_mbps

NAN = float("nan")
# What a pod adds: CPU and memory, %, and packets.
ADDED = (25.0, 10.0, 5.0, 5.0, 0.0)
READING = BoardReading({"cpu_percent": 60.0, "memory_percent": 40.0, "packets_sent_per_s": 3.0})


def test_a_report_has_the_replayed_pods_in_place_of_the_recorded_ones() -> None:
    load = BoardLoad()
    load.begin("here", Stay(0.0, ADDED), is_replayed=True)
    load.begin("there", Stay(0.0, (30.0, 20.0, 50.0, 0.0, 0.0)), is_replayed=False)
    shown = load.as_replayed(READING, 100.0)
    assert shown.values == {"cpu_percent": 55.0, "memory_percent": 30.0, "packets_sent_per_s": 0.0}
    assert READING.values["cpu_percent"] == 60.0


def test_means_have_a_pod_for_the_share_of_their_time_in_which_it_ran() -> None:
    load = BoardLoad()
    load.as_replayed(READING, 90.0)
    load.begin("p", Stay(96.0, ADDED), is_replayed=True)
    first, second = load.as_replayed(READING, 100.0), load.as_replayed(READING, 110.0)
    assert first.values["cpu_percent"] == pytest.approx(60 + 0.4 * 25)
    assert first.values["memory_percent"] == pytest.approx(50), "a reading at one moment"
    assert second.values["cpu_percent"] == pytest.approx(85)
    load.end("p", 115.0, is_replayed=True)
    third, fourth = load.as_replayed(READING, 120.0), load.as_replayed(READING, 130.0)
    assert third.values["cpu_percent"] == pytest.approx(60 + 0.5 * 25)
    assert fourth is READING


def test_what_a_board_cannot_give_is_missing_and_no_value_leaves_its_range() -> None:
    load = BoardLoad()
    load.begin("p", Stay(0.0, (90.0, 90.0, 0.0, 0.0, 0.0)), is_replayed=True)
    shown = load.as_replayed(READING, 100.0)
    assert (shown.values["cpu_percent"], shown.values["memory_percent"]) == (100.0, 100.0)
    assert load.short / load.reports == pytest.approx(1 - 100 / 150)
    assert not load.is_saturated
    load.as_replayed(BoardReading({"cpu_percent": 100.0}), 110.0)
    assert load.is_saturated


times = st.floats(0, 1000)


@given(st.lists(st.tuples(times, st.floats(1, 300), st.booleans()), max_size=8), times)
def test_where_the_same_ran_a_report_is_as_it_was(
    stays: list[tuple[float, float, bool]], other_s: float
) -> None:
    """Also after pods that ran elsewhere have come and gone."""
    load = BoardLoad()
    events = [(other_s, "other", True, True), (other_s + 50, "other", False, True)]
    for number, (begin_s, lasts_s, _) in enumerate(stays):
        for is_replayed in (True, False):
            events.append((begin_s, str(number), True, is_replayed))
            events.append((begin_s + lasts_s, str(number), False, is_replayed))
    events.sort(key=lambda each: each[0])
    for at_s in range(0, 2000, 10):
        while events and events[0][0] <= at_s:
            when_s, uid, is_begin, is_replayed = events.pop(0)
            if is_begin:
                load.begin(uid, Stay(when_s, (0.1, 0.2, 0.3, 0.4, 0.5)), is_replayed=is_replayed)
            else:
                load.end(uid, when_s, is_replayed=is_replayed)
        shown = load.as_replayed(READING, float(at_s))
        if not other_s - 10 <= at_s <= other_s + 60:
            assert shown is READING


@pytest.mark.parametrize(
    ("free", "capacity", "left"), [(30.0, 100.0, 30.0), (-5.0, 100.0, 1.0), (NAN, NAN, NAN)]
)
def test_a_transfer_gets_some_of_a_link_that_is_all_requested(
    free: float, capacity: float, left: float
) -> None:
    assert left_mbps(free, capacity) == pytest.approx(left, nan_ok=True)
    assert Stay(0.0, ()).end_s == inf
