"""When a report comes before its time: after a jump of the load, and never for what it does all
the time."""

import random
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_agent.jumps import MOST_EARLY, JumpDetector, Load

A_REPORT = 5  # readings in the ten seconds between two reports
percents = st.floats(0, 100)


def reports(
    readings: Sequence[float], make: Callable[[float], Load] = Load, every: int = A_REPORT
) -> Iterator[tuple[int, float, bool]]:
    """A board's reports: after which reading, its value, and whether it came before its time. It
    has the mean since the one before."""
    detector, since = JumpDetector(), 0
    for at, reading in enumerate(readings):
        is_early = detector.is_due(make(reading))
        if is_early or at % every == every - 1:
            mean = fmean(readings[since : at + 1])
            detector.reported(make(mean), is_early=is_early)
            yield at, mean, is_early
            since = at + 1


def early_reports(readings: Sequence[float], make: Callable[[float], Load] = Load) -> list[int]:
    return [at for at, _, is_early in reports(readings, make) if is_early]


@given(st.lists(percents, max_size=200))
def test_whatever_the_load_does_few_reports_are_early(readings: list[float]) -> None:
    found = early_reports(readings)
    for start in range(0, len(readings), A_REPORT):
        assert sum(start <= at < start + A_REPORT for at in found) <= MOST_EARLY


@given(st.floats(0, 85), st.lists(st.floats(0, 15), max_size=200))
def test_noise_of_less_than_a_jump_makes_none(level: float, noise: list[float]) -> None:
    assert early_reports([level + each for each in noise]) == []


@given(st.lists(percents, min_size=2, max_size=10))
def test_what_the_load_did_in_the_last_minute_is_no_news(pattern: list[float]) -> None:
    """Such as a job that runs every few seconds."""
    found = early_reports(pattern * 20)
    assert all(at < len(pattern) + A_REPORT for at in found)


@given(st.integers(0, 2**32), st.floats(20, 100))
def test_noise_of_any_size_is_soon_known(seed: int, width: float) -> None:
    chance = random.Random(seed)
    found = early_reports([chance.uniform(0, width) for _ in range(300)])
    assert len([at for at in found if at >= 30]) <= 3


@given(percents, percents, st.integers(30, 34), st.floats(0, 1))
def test_a_jump_is_told_at_once_and_its_value_at_the_next_reading(
    before: float, after: float, at: int, share: float
) -> None:
    """It begins `share` of a reading before the reading's end."""
    first = before + share * (after - before)
    readings = [before] * at + [first] + [after] * 9
    told = list(reports(readings))
    found = [each for each, _, is_early in told if is_early]
    if abs(first - before) > 16:
        assert found[0] == at
    if abs(after - before) < 14:
        assert not found
    assert set(found) <= {at, at + 1, at + 2}
    assert abs([value for each, value, _ in told if each <= at + 2][-1] - after) <= 15


def test_reports_that_are_far_apart_leave_room_for_a_jump_each_minute() -> None:
    readings = [level for minute in range(10) for level in [50.0 * (minute % 2)] * 40]
    told = [at for at, _, _ in reports(readings, every=10_000)]
    assert all(any(40 * minute <= at < 40 * minute + 3 for at in told) for minute in range(2, 10))


@pytest.mark.parametrize(
    ("make", "before", "after"),
    [
        (lambda x: Load(cpu_percent=x), 10.0, 30.0),
        (lambda x: Load(memory_percent=x), 40.0, 52.0),
        (lambda x: Load(packets_per_s=x), 0.0, 150.0),
        (lambda x: Load(packets_per_s=x), 9000.0, 20000.0),
        (lambda x: Load(packets_per_s=x), 9000.0, 2000.0),
    ],
)
def test_each_value_can_jump(make: Callable[[float], Load], before: float, after: float) -> None:
    assert early_reports([before] * 30 + [after] * 5, make)[0] == 30
    assert early_reports([before] * 30 + [(3 * before + after) / 4] * 5, make) == []


def test_what_is_unknown_does_not_jump() -> None:
    detector = JumpDetector()
    for load in (Load(), Load(50.0), Load(), Load(None, 90.0, 1e6)):
        assert not detector.is_due(load)
        detector.reported(Load(), is_early=False)
    assert detector.is_due(Load(80.0))
