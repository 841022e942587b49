"""Boards that are throttled, hot, go away again and again, or report late."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import Expectations, workload_of
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cycle import Rule, decide_in_turn
from leadline_controller.framework.model import Link
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import Bools, ClusterView
from leadline_controller.strategies.leadline import Leadline

from tests.controller.builders import node, pod, view
from tests.controller.strategies.leadline.deciding import decision, scores, wanted

NAMES = ("a", "b")
SAID: list[dict[str, Any]] = [
    {},
    {"data_mb": "5"},
    {"user_node": "a"},
    {"profile_ms": {"a": 100, "b": 100}},
]
LATE_S = 1000.0


def hindered(
    cpu_percent: float = 30.0,
    memory_percent: float = 20.0,
    *,
    times: float = 1.0,
    error: float = 0.0,
    absence_ms: float = 0.0,
    age_s: float = 0.0,
) -> ClusterView:
    """Two boards alike, but for b's hindrances."""
    alike = view(
        [node(name) for name in NAMES],
        links=[Link("a", "b", 1.0)],
        metrics={
            "cpu_percent": [cpu_percent] * 2,
            "memory_percent": [memory_percent] * 2,
            "bandwidth_mbps": [100.0] * 2,
        },
    )
    at_s = np.full((2, len(METRICS)), LATE_S)
    at_s[1] -= age_s
    metrics = replace(
        alike.metrics,
        measured_at_s=at_s,
        throttling=np.array([1.0, times]),
        throttling_error=np.array([0.0, error]),
        absence_ms=np.array([0.0, absence_ms]),
    )
    return replace(alike, metrics=metrics)


def test_a_throttled_boards_work_takes_as_many_times_as_long() -> None:
    asked = wanted(profile_ms={"a": 100, "b": 100})
    found = scores(hindered(0.0, times=2.0, error=0.5), asked)
    # 0.1 and 0.2 of 4 cores are the pod's own.
    rho = np.array([0.025, 0.05])
    slower = 1 + rho ** (np.sqrt(10) - 1) / (4 * (1 - rho))
    assert found.parts["work_ms"] == pytest.approx(100 * slower)
    assert found.parts["throttling_ms"] == pytest.approx([0.0, 100 * slower[1]])
    # Half of a deviation of half of the profile.
    assert found.parts["risk_ms"] == pytest.approx([0.0, 25.0])
    assert found.total == pytest.approx(sum(found.parts.values()))


def test_a_throttled_board_takes_longer_with_data_and_with_work_that_nothing_tells() -> None:
    found = scores(hindered(0.0, times=2.5, error=0.75), wanted(data_mb="8"))
    assert found.parts["work_ms"] == pytest.approx([8000, 8000])
    assert found.parts["throttling_ms"] == pytest.approx([0.0, 12_000])
    assert found.parts["risk_ms"] == pytest.approx([0.0, 3000])
    several = replace(wanted(data_mb="8"), limits={"cpu": 4000})
    assert scores(hindered(0.0, times=2.5, error=0.75), several).parts["risk_ms"] == pytest.approx(
        [0.0, 750]
    )
    unknown = scores(hindered(0.0, times=2.0, error=0.0), wanted())
    assert unknown.parts["throttling_ms"][1] == pytest.approx(20.0, rel=0.001)


def test_a_pod_keeps_a_throttled_board_busier() -> None:
    asked = wanted()
    of = hindered(60.0, times=2.0).assuming_load(Expectations({workload_of(asked): (1.0, 1e6)}))
    found = scores(of, asked)
    assert found.parts["work_ms"][1] > found.parts["work_ms"][0]


def test_a_hot_board_costs_as_much_as_it_may_be_throttled() -> None:
    found = scores(hindered(0.0, error=0.5), wanted(profile_ms={"a": 100, "b": 100}))
    assert "throttling_ms" not in found.parts
    assert found.parts["risk_ms"] == pytest.approx([0.0, 25.0])


def test_absences_cost_what_they_did_and_half_of_a_deviation_of_half() -> None:
    found = scores(hindered(0.0, absence_ms=80.0), wanted())
    assert found.parts["absence_ms"].tolist() == [0.0, 80.0]
    assert found.parts["risk_ms"] == pytest.approx([0.0, 20.0])
    left_out = scores(hindered(0.0, absence_ms=80.0), wanted(), without="absence")
    assert left_out.total[0] == left_out.total[1]


def test_the_reason_names_both() -> None:
    asked = wanted(profile_ms={"a": 100, "b": 100})
    throttled = decision(hindered(0.0, times=3.0, error=1.0), asked)
    assert throttled.node == "a"
    assert "b would be " in throttled.why
    assert ": 200 for throttling; " in throttled.why
    away = decision(hindered(0.0, absence_ms=300.0), asked)
    assert away.node == "a"
    assert ": 300 while the board is away; " in away.why


@given(
    st.floats(0, 100),
    st.floats(0, 100),
    st.sampled_from(SAID),
    st.floats(1, 10),
    st.floats(0, 5),
    st.floats(0, 2e5),
    st.floats(0, 1e4),
)
def test_a_hindered_board_is_never_cheaper_and_its_wait_is_finite(
    cpu_percent: float,
    memory_percent: float,
    said: dict[str, Any],
    times: float,
    error: float,
    absence_ms: float,
    age_s: float,
) -> None:
    asked = wanted(**{key: each for key, each in said.items() if key != "user_node"})
    free = scores(hindered(cpu_percent, memory_percent), asked).total
    for one in (
        {"times": times},
        {"error": error},
        {"absence_ms": absence_ms},
        {"age_s": age_s},
        {"times": times, "error": error, "absence_ms": absence_ms, "age_s": age_s},
    ):
        found = scores(hindered(cpu_percent, memory_percent, **one), asked).total
        assert np.isfinite(found).all()
        assert found[1] >= free[1] * (1 - 1e-9)
        assert found[0] == pytest.approx(free[0])


@given(st.floats(0, 100), st.sampled_from(SAID))
def test_a_board_that_tells_nothing_is_as_one_that_is_well(
    cpu_percent: float, said: dict[str, Any]
) -> None:
    told = hindered(cpu_percent)
    none = np.zeros(0)
    silent = replace(
        told,
        metrics=replace(told.metrics, throttling=none, throttling_error=none, absence_ms=none),
    )
    asked = wanted(**said)
    assert scores(told, asked).total.tolist() == scores(silent, asked).total.tolist()


def test_the_later_a_report_is_the_dearer_is_its_board() -> None:
    ages_s = (0.0, 60.0, 300.0, 1500.0, 6000.0)
    totals = [float(scores(hindered(60.0, age_s=age_s), wanted()).total[1]) for age_s in ages_s]
    assert totals == sorted(totals)
    assert totals[0] < totals[1] < totals[2] < totals[3]
    # 5 % for the root of each minute, and no more than for a load without reports.
    assert totals[3] == totals[4]
    assert decision(hindered(60.0, age_s=300.0), wanted(profile_ms={"a": 99, "b": 99})).node == "a"


def on_b(of: ClusterView, count: int, **options: Any) -> int:
    """How many of so many pods, one after the other, get b."""
    rule = Rule(Leadline(**options), FILTERS, Random(0))
    asked = pod("p", requests={"cpu": "100m"}, annotations={"profile-ms": '{"a": 50, "b": 50}'})
    pods = [replace(asked, name=f"p{at}", uid=f"{at}") for at in range(count)]
    return sum(each.node == "b" for each, _ in decide_in_turn(of.assuming_load(), pods, rule))


@pytest.mark.parametrize(
    ("hindrance", "term"),
    [({"times": 2.0, "error": 0.5}, "throttling"), ({"absence_ms": 200.0}, "absence")],
)
def test_pods_go_elsewhere_and_without_the_term_they_do_not(
    hindrance: dict[str, float], term: str
) -> None:
    of = hindered(10.0, **hindrance)
    assert on_b(of, 12) == 0
    assert on_b(of, 12, without=term) == pytest.approx(6, abs=2)


def test_pods_that_come_together_go_elsewhere_too() -> None:
    asked = [
        replace(
            pod("p", annotations={"profile-ms": '{"a": 50, "b": 50}'}), name=f"p{at}", uid=f"{at}"
        )
        for at in range(4)
    ]

    def allowed(_: object) -> Bools:
        return np.ones(2, dtype=np.bool_)

    running: list[Running] = []
    for hindrance in ({"times": 2.0, "error": 0.5}, {"absence_ms": 200.0}):
        of = hindered(10.0, **hindrance)
        plan = Leadline().plan(of, asked, running, allowed)
        assert [*plan.placed.values()] == [0] * 4
