"""What starts tell of a workload on a class of board."""

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.services import Service
from leadline_controller.framework.starts import Start, Starts, learn

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
    return {name: round(each.seconds, 2) for name, each in starts.of(workload).items()}


def test_nothing_is_known_before_a_pod_has_started() -> None:
    assert learn({}).of(WEB) == {}


def test_a_workload_seen_on_one_class_takes_as_long_on_all() -> None:
    found = learn({(WEB, "pi4"): [3.0] * 4})
    assert shown(found, WEB) == {"": 3.0, "pi4": 3.0}
    assert shown(found, NEW) == {"": 3.0, "pi4": 3.0}


def test_of_many_starts_the_middle_half_counts() -> None:
    found = learn({(WEB, "pi4"): [500.0, 3.0, 0.0, 2.0, 4.0, 3.0, 2.0, 300.0]})
    assert shown(found, WEB)["pi4"] == 3.0


def test_a_class_that_is_slow_for_some_is_slow_for_all() -> None:
    samples = {(app(name), "pi5"): [2.0] * 8 for name in "abcd"}
    samples |= {(app(name), "pi3"): [8.0] * 8 for name in "abcd"}
    found = learn(samples | {(WEB, "pi5"): [10.0] * 8})
    assert found.of(app("a"))["pi3"].seconds == pytest.approx(8.0, rel=0.15)
    assert found.of(WEB)["pi3"].seconds == pytest.approx(40.0, rel=0.25)  # it never ran there
    assert found.of(NEW)["pi3"].seconds > 3 * found.of(NEW)["pi5"].seconds


def test_a_workload_may_differ_from_the_others() -> None:
    samples = {(app(name), kind): [2.0] * 8 for name, kind in product("abcd", ("pi3", "pi5"))}
    found = learn(samples | {(WEB, "pi5"): [3.0] * 8, (WEB, "pi3"): [30.0] * 8})
    assert found.of(WEB)["pi3"].seconds > 6 * found.of(WEB)["pi5"].seconds
    assert found.of(NEW)["pi3"].seconds < 2 * found.of(NEW)["pi5"].seconds


def test_what_may_be_chance_is_no_difference() -> None:
    """Starts that take 0.5 to 3 s by chance, as in the recordings of faults and home."""
    random, wrong = Random(1), 0
    for _ in range(100):
        samples = {
            (app(str(number)), kind): [random.uniform(0.5, 3.0) for _ in range(8)]
            for number, kind in product(range(6), ("pi3", "pi4", "pi5"))
        }
        found = learn(samples).of(app("0"))
        quick, slow = sorted((found["pi3"].seconds, found["pi5"].seconds))
        wrong += slow > 1.02 * quick
    assert wrong <= 20


@given(drawn, st.randoms(use_true_random=False))
def test_no_order_matters(samples: Samples, random: Random) -> None:
    again = {pair: random.sample(samples[pair], len(samples[pair])) for pair in samples}
    pairs = random.sample(list(again), len(again))
    found, other = learn(samples), learn({pair: again[pair] for pair in pairs})
    for workload in [*(workload for workload, _ in samples), NEW]:
        assert found.of(workload) == other.of(workload)


@given(drawn)
def test_a_class_without_starts_is_not_better_known(samples: Samples) -> None:
    found = learn(samples)

    def doubt(start: Start) -> float:
        return start.error_s / start.seconds

    for workload in {workload for workload, _ in samples}:
        of_class = found.of(workload)
        for name, start in of_class.items():
            assert 0 < start.seconds < 1e5
            if (workload, name) in samples:
                assert doubt(start) < doubt(of_class[""])
            else:
                assert doubt(start) == pytest.approx(doubt(of_class[""]))


def test_a_label_on_each_board_leaves_few_classes() -> None:
    found = learn({(WEB, f"n{number}"): [2.0] for number in range(200)})
    assert len(found.of(WEB)) <= 33
