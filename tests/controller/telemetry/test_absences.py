"""Boards that go away and come back: what counts as an absence, and what absences cost."""

from math import exp, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.telemetry.absences import (
    MEMORY_S,
    Absences,
    Heard,
    absence_s,
    absence_waits_ms,
)

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder, table

BOOT, OTHER = bytes(16), bytes([1] * 16)


@pytest.mark.parametrize(
    ("before", "now", "interval_s", "away_s"),
    [
        (Heard(), Heard(5.0, BOOT, 1), 10.0, None),
        (Heard(0.0, BOOT, 1), Heard(30.0, BOOT, 1), 10.0, None),
        (Heard(0.0, BOOT, 1), Heard(40.0, BOOT, 1), 10.0, 40.0),
        (Heard(0.0, BOOT, 1), Heard(40.0, BOOT, 1), 60.0, None),
        # A restart takes its pods along, an agent that restarts alone does not.
        (Heard(0.0, BOOT, 1), Heard(15.0, OTHER, 2), 10.0, 35.0),
        (Heard(0.0, BOOT, 1), Heard(900.0, BOOT, 2), 10.0, None),
        # The pods are elsewhere then.
        (Heard(0.0, BOOT, 1), Heard(9000.0, BOOT, 1), 10.0, 300.0),
        (Heard(0.0, BOOT, 1), Heard(9000.0, OTHER, 2), 10.0, 320.0),
        # The broker was away for 50 s, and this board came back after others.
        (Heard(0.0, BOOT, 1), Heard(100.0, BOOT, 1, 50.0), 10.0, None),
        (Heard(0.0, BOOT, 1, 50.0), Heard(100.0, OTHER, 2, 80.0), 10.0, 90.0),
        (Heard(50.0, BOOT, 1), Heard(10.0, OTHER, 2), 10.0, None),
    ],
)
def test_what_an_absence_is(
    before: Heard, now: Heard, interval_s: float, away_s: float | None
) -> None:
    assert absence_s(before, now, interval_s) == away_s


def waits_after(absences: list[tuple[float, float]], now_s: float) -> float:
    """absences: when each ended, s, and how long it was, s."""
    kept = Absences()
    for end_s, away_s in absences:
        kept = kept.after(away_s, end_s)
    return float(absence_waits_ms(np.array([kept]), now_s)[0])


def test_a_wait_is_worked_out_by_hand() -> None:
    # Of two that end now half counts: who comes in 60 s waits for 30, and so in 1800 of 10,800 s.
    assert waits_after([(0.0, 60.0), (0.0, 60.0)], 0.0) == pytest.approx(1000 * 1800 / MEMORY_S)
    left = exp(-1800 / MEMORY_S)
    by_hand = 1000 * (1 + left) * 1800 / MEMORY_S * left / (1 + left)
    assert waits_after([(0.0, 60.0), (1800.0, 60.0)], 1800.0) == pytest.approx(by_hand)


def test_a_board_that_is_away_for_a_minute_in_ten_costs_what_its_rate_says() -> None:
    found = waits_after([(600.0 * at, 60.0) for at in range(1000)], 600_000.0)
    assert found == pytest.approx(1000 * 1800 / 600, rel=0.1)


def test_one_restart_costs_nothing_and_what_is_long_ago_is_forgotten() -> None:
    assert waits_after([], 0.0) == 0.0
    assert waits_after([(0.0, 80.0)], 1.0) == 0.0
    assert waits_after([(86_400.0 * at, 80.0) for at in range(30)], 86_400.0 * 30) < 0.1
    often = [(600.0 * at, 80.0) for at in range(6)]
    later = [waits_after(often, 3600.0 + hours * 3600.0) for hours in range(12)]
    assert later == sorted(later, reverse=True)
    assert later[0] > 500
    assert later[-1] == 0.0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 320)), max_size=30), st.floats(0, 320))
def test_one_more_absence_is_never_cheaper_and_a_wait_is_finite(
    absences: list[tuple[float, float]], one_more_s: float
) -> None:
    in_turn = sorted(absences)
    end_s = in_turn[-1][0] if in_turn else 0.0
    fewer = waits_after(in_turn, end_s)
    more = waits_after([*in_turn, (end_s, one_more_s)], end_s)
    assert 0.0 <= fewer <= more * (1 + 1e-9) < inf


def advance(boards: TelemetryBuilder, to_s: float) -> None:
    boards.state.set_members({"a", "b"}, to_s)


def restarts(boards: TelemetryBuilder, at_s: list[float]) -> float:
    """What b costs, ms, if it restarts at these times, while both report each 10 s."""
    boot = 0
    for now_s in range(0, 7200, 10):
        advance(boards, float(now_s))
        boards.report("a", 1.0, at_s=now_s)
        if now_s in at_s:
            boot += 1
        stamp = {"boot_id": bytes([boot] * 16), "session": 1 + boot}
        boards.report("b", 1.0, at_s=now_s, **stamp)
    found = boards.state.metrics(table("a", "b"), 7200.0).absence_ms
    if not found.size:
        return 0.0
    assert found[0] == 0.0
    return float(found[1])


def test_a_board_that_restarts_again_and_again_costs_more_the_oftener_it_does() -> None:
    never, once, twice, often = (
        restarts(TelemetryBuilder(), at_s)
        for at_s in ([], [3000.0], [3000.0, 5000.0], [3000.0 + 500.0 * at for at in range(8)])
    )
    assert never == once == 0.0
    assert 0.0 < twice < often


def silences(boards: TelemetryBuilder, *, is_broker: bool, interval_s: int = 10) -> float:
    """What b costs, ms, if it says nothing for 2 of each 20 minutes; or if nobody does for half of
    that, and b comes back last."""
    boards.birth("b", interval_s=interval_s)
    for now_s in range(0, 7200, 10):
        advance(boards, float(now_s))
        is_silent = now_s % 1200 >= 1080
        if not (is_silent and is_broker) or now_s % 1200 >= 1140:
            boards.report("a", 1.0, at_s=now_s)
        if not is_silent:
            boards.report("b", 1.0, at_s=now_s)
    found = boards.state.metrics(table("a", "b"), 7200.0).absence_ms
    return float(found[1]) if found.size else 0.0


def test_a_silence_of_all_is_the_brokers_and_of_one_the_boards() -> None:
    assert silences(TelemetryBuilder(), is_broker=True) == 0.0
    assert silences(TelemetryBuilder(), is_broker=False) > 1000


@pytest.mark.parametrize("interval_s", [0, 60])
def test_a_board_that_reports_seldom_or_does_not_say_how_often_is_not_away(interval_s: int) -> None:
    assert silences(TelemetryBuilder(), is_broker=False, interval_s=interval_s) == 0.0


def test_a_retained_birth_does_not_show_that_a_board_is_back() -> None:
    boards = TelemetryBuilder()
    for at in range(4):
        advance(boards, 1000.0 * at)
        boards.report("a", 1.0, at_s=1000.0 * at)
        boards.report("b", 1.0, at_s=1000.0 * at)
        boards.birth("b", interval_s=10)
        advance(boards, 1000.0 * at + 20.0)
        boards.report("a", 1.0, at_s=1000.0 * at + 20)
        boards.birth("b", interval_s=10, retained=True)
        advance(boards, 1000.0 * at + 40.0)
        boards.report("a", 1.0, at_s=1000.0 * at + 40)
        boards.report("b", 1.0, at_s=1000.0 * at + 40)
    found = boards.state.metrics(table("a", "b"), 3040.0).absence_ms
    assert found.tolist() == [0.0, pytest.approx(found[1])]
    assert found[1] > 0.0
