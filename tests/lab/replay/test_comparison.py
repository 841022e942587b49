"""Means, worst values, and intervals that hold the truth as often as they say."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_lab.replay.comparison import Comparison, ComparisonError, Estimate, Finding, compare
from leadline_lab.replay.measures import MEASURES, READY
from leadline_lab.replay.outcomes import Outcome, PodOutcome

from tests.lab.replay.synthetic import DACS, KUBE_DEFAULT, NETSCHED, Trait, outcomes

DAY_S = 86400.0
TRIALS = 200
GAIN_S = -1.0  # of strategy b


def run(
    strategy: str, times_s: Sequence[Sequence[float | None]], seed: int = 0, block_s: float = DAY_S
) -> Outcome:
    """Pods with these times to ready, a sequence for each block."""
    pods = []
    for block, of_block in enumerate(times_s):
        for number, time_s in enumerate(of_block):
            at_s = block * block_s + number
            ready_s = None if time_s is None else at_s + time_s
            pods.append(PodOutcome(f"{block}/{number}", "w", at_s, "n1", at_s, ready_s))
    return Outcome(strategy, seed, block_s * len(times_s), tuple(pods))


def ready(*runs: Outcome, draws: int = 300) -> list[Finding]:
    return list(compare(runs, [READY], draws).findings)


def drawn(seed: int) -> list[Outcome]:
    """Eight days with two seeds: each day is quick or slow for all pods and both strategies, a
    seed has a little luck, and pods differ with a long tail. The true mean is 20 s."""
    random = Random(seed)
    days = [random.gauss(0, 2) for _ in range(8)]
    return [
        run(
            name,
            [
                [20 + gain_s + day + luck + random.expovariate(0.5) - 2 for _ in range(30)]
                for day in days
                for luck in (random.gauss(0, 0.5),)
            ],
            number,
        )
        for name, gain_s in (("a", 0.0), ("b", GAIN_S))
        for number in range(2)
    ]


def true_worst() -> float:
    """Of a, from many more draws."""
    random = np.random.default_rng(0)
    size = 1_000_000
    values = 18 + random.normal(0, np.hypot(2, 0.5), size) + random.exponential(2, size)
    return float(np.sort(values)[-size // 20 :].mean())


@pytest.mark.slow
def test_intervals_hold_the_truth_in_about_95_of_100_cases() -> None:
    worst_s = true_worst()
    held = np.zeros(4)
    for seed in range(TRIALS):
        a, b = ready(*drawn(seed), draws=600)
        assert b.mean_difference is not None
        assert b.worst_difference is not None
        for at, (found, truth) in enumerate(
            (
                (a.mean, 20.0),
                (a.worst, worst_s),
                (b.mean_difference.absolute, GAIN_S),
                (b.worst_difference.absolute, GAIN_S),
            )
        ):
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            held[at] += found.low <= truth <= found.high
    assert (held >= 0.9 * TRIALS).all(), held
    assert (held <= 0.99 * TRIALS).all(), held


def test_the_same_hours_make_a_difference_certain_that_the_values_alone_do_not() -> None:
    a, b = ready(*drawn(0))
    assert a.mean is not None
    assert b.mean is not None
    assert b.mean_difference is not None
    assert a.mean.low is not None
    assert b.mean.high is not None
    assert b.mean.high > a.mean.low
    assert b.mean_difference.absolute.is_certain
    assert b.mean_difference.absolute.value == pytest.approx(b.mean.value - a.mean.value)


def test_a_strategy_that_does_the_same_differs_by_nothing() -> None:
    times_s = [[1.0, 2.0, float(day)] for day in range(8)]
    _, other = ready(run("a", times_s), run("b", times_s))
    assert other.mean_difference is not None
    assert other.mean_difference.absolute == Estimate(0.0, 0.0, 0.0)
    assert not other.mean_difference.shown.is_certain


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=120))
def test_the_worst_5_percent_are_the_mean_of_the_largest_ones(times_s: list[float]) -> None:
    (found,) = ready(run("a", [times_s]), draws=1)
    ordered, left, total = sorted(times_s, reverse=True), len(times_s) * 0.05, 0.0
    for each in ordered:  # of the one at the border a part
        total += each * min(1.0, left)
        left -= min(1.0, left)
    assert found.worst is not None
    assert found.worst.value == pytest.approx(total / (len(times_s) * 0.05), abs=1e-6)


def test_unknown_values_are_counted_and_do_not_change_the_mean() -> None:
    known, gaps = ready(run("a", [[1.0, 3.0]])), ready(run("a", [[1.0, None, 3.0, None]]))
    assert (gaps[0].known, gaps[0].unknown) == (2, 2)
    assert gaps[0].mean == known[0].mean


def test_a_measure_without_data_has_no_value() -> None:
    a, b = ready(run("a", [[None]]), run("b", [[2.0]]))
    assert (a.mean, a.worst, b.mean_difference, b.worst_difference) == (None, None, None, None)
    assert b.mean is not None


@pytest.mark.parametrize(
    ("length_s", "windows", "unit", "count"),
    [
        (7 * DAY_S, 1, "day", 7),
        (1.6 * DAY_S, 3, "day", 6),
        (DAY_S, 1, "hour", 24),
        (4 * DAY_S, 1, "hour", 96),
        (3600.0, 1, "five minutes", 12),
        (600.0, 1, "five minutes", 2),
    ],
)
def test_days_are_drawn_or_hours_where_there_are_too_few(
    length_s: float, windows: int, unit: str, count: int
) -> None:
    times_s = [[1.0, 2.0] for _ in range(max(1, int(length_s / 300)))]
    one = replace(run("a", times_s, block_s=300.0), length_s=length_s)
    found = compare([replace(one, window=str(each)) for each in range(windows)], [READY], 10)
    assert (found.block, found.blocks, found.has_intervals) == (unit, count, count >= 5)
    mean = found.findings[0].mean
    assert mean is not None
    assert (mean.low is None) == (count < 5)


def test_the_worst_5_percent_of_few_pods_have_no_interval() -> None:
    (few,) = ready(run("a", [[1.0, 2.0]] * 8))
    (many,) = ready(run("a", [[1.0, 2.0] * 7] * 8))
    assert few.worst == Estimate(2.0)
    assert many.worst == Estimate(2.0, 2.0, 2.0)


def test_the_base_is_what_was_recorded_or_else_the_first() -> None:
    def base(*traits: Trait) -> Comparison:
        return compare(outcomes(traits, 1, 20), [READY], 10)

    assert base(NETSCHED, KUBE_DEFAULT).strategies == ("kube-default", "netsched")
    assert base(NETSCHED, DACS).base == "netsched"


def test_options_are_named_where_they_differ() -> None:
    one = replace(outcomes([DACS], 1, 20)[0], options={"alpha": "1", "phi": "2"})
    assert compare([one], [READY], 1).base == "dacs"
    other = replace(one, options={"alpha": "0", "phi": "2"})
    found = compare([one, other], [READY], 1)
    assert found.strategies == ("dacs (alpha=1)", "dacs (alpha=0)")


def test_what_cannot_be_compared_is_refused_in_a_line() -> None:
    a, b = run("a", [[1.0]]), run("b", [[1.0]])

    def refused(*runs: Outcome) -> str:
        with pytest.raises(ComparisonError) as error:
            compare(runs, [READY], 1)
        return str(error.value)

    assert refused() == "there is no run to compare"
    assert refused(a, a) == "a has two runs of the same hours and seed: give one"
    missing = "has no run of the recording, seed 1: give all strategies the same"
    assert refused(a, b, replace(b, seed=1)) == f"a {missing}"
    assert refused(a, replace(a, seed=1), b) == f"b {missing}"
    other = replace(b, window="w")
    assert refused(a, other).startswith("b has no run of the recording, seed 0")


def test_all_measures_of_a_realistic_day() -> None:
    found = compare(outcomes([KUBE_DEFAULT, DACS], 2, 300), draws=200)
    assert len(found.findings) == 2 * len(MEASURES)
    by_key = {each.measure.key: each for each in found.findings if each.strategy == "dacs"}
    rtt = by_key["user_rtt_ms"].mean_difference
    assert rtt is not None
    assert rtt.percent is not None
    assert rtt.percent.is_certain
    assert -35 < rtt.percent.value < -25  # its factor is 0.7
    edge = by_key["edge"].mean_difference
    assert edge is not None
    assert edge.percent is None  # points of a share
