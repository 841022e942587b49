"""What starts tell of a workload on a class of board."""

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.services import Service
from leadline_controller.framework.starts import Starts, learn

Samples = Mapping[tuple[Service, str], Sequence[float]]


def app(name: str) -> Service:
    return "default", frozenset({("app", name)})


WEB, NEW = app("web"), app("new")
drawn = st.dictionaries(
    st.sampled_from([(app(name), kind) for name, kind in product("abcde", ("pi3", "pi4", "pi5"))]),
    st.lists(st.integers(0, 600).map(float), min_size=1, max_size=8),
    min_size=1,
)


def shown(starts: Starts, workload: Service) -> dict[str, float]:
    return {name: round(each, 2) for name, each in starts.of(workload).items()}


def test_nothing_is_known_before_a_pod_has_started() -> None:
    assert learn({}).of(WEB) == {}


def test_a_workload_seen_on_one_class_takes_as_long_on_all() -> None:
    found = learn({(WEB, "pi4"): [3.0] * 4})
    assert shown(found, WEB) == shown(found, NEW) == {"": 3.0}


def test_of_many_starts_the_middle_half_counts() -> None:
    found = learn({(WEB, "pi4"): [500.0, 3.0, 0.0, 2.0, 4.0, 3.0, 2.0, 300.0]})
    assert shown(found, WEB) == {"": 3.0}


def test_a_class_that_is_slow_for_some_is_slow_for_all() -> None:
    samples = {(app(name), "pi5"): [2.0] * 8 for name in "abcd"}
    samples |= {(app(name), "pi3"): [8.0] * 8 for name in "abcd"}
    found = learn(samples | {(WEB, "pi5"): [10.0] * 8})
    assert found.of(app("a")) == pytest.approx({"": 4.0, "pi3": 8.0, "pi5": 2.0})
    assert found.of(WEB) == pytest.approx({"": 20.0, "pi3": 40.0, "pi5": 10.0})  # never on a pi3
    assert found.of(NEW) == pytest.approx({"": 4.0, "pi3": 8.0, "pi5": 2.0})


def test_workloads_on_one_class_alone_tell_nothing_of_it() -> None:
    slow = {(app(name), "pi3"): [30.0] * 8 for name in "abcd"}
    assert shown(learn(slow | {(WEB, "pi5"): [1.0] * 8}), WEB) == {"": 1.0}


def test_what_may_be_chance_is_no_difference() -> None:
    """Starts that take 0.5 to 3 s by chance, as in the recordings of faults and home."""
    random, wrong = Random(1), 0
    for _ in range(100):
        samples = {
            (app(str(number)), kind): [random.uniform(0.5, 3.0) for _ in range(8)]
            for number, kind in product(range(6), ("pi3", "pi4", "pi5"))
        }
        found = learn(samples).of(app("0"))
        wrong += len(found) > 1
    assert wrong <= 20


@given(drawn, st.randoms(use_true_random=False))
def test_no_order_matters(samples: Samples, random: Random) -> None:
    again = {pair: random.sample(samples[pair], len(samples[pair])) for pair in samples}
    pairs = random.sample(list(again), len(again))
    found, other = learn(samples), learn({pair: again[pair] for pair in pairs})
    for workload in [*(workload for workload, _ in samples), NEW]:
        assert found.of(workload) == other.of(workload)


@given(drawn)
def test_starts_stay_within_what_was_seen(samples: Samples) -> None:
    seen = [max(each, 0.5) for seconds in samples.values() for each in seconds]
    for workload in [*(workload for workload, _ in samples), NEW]:
        for seconds in learn(samples).of(workload).values():
            assert min(seen) ** 3 / max(seen) ** 2 <= seconds * 1.001
            assert seconds <= 1.001 * max(seen) ** 3 / min(seen) ** 2


def test_a_label_on_each_board_leaves_few_classes() -> None:
    seconds = {f"n{number}": [1.0 + 99.0 * (number % 2)] * 8 for number in range(200)}
    found = learn({(WEB, name): each for name, each in seconds.items()})
    assert len(found.of(WEB)) == 33
