"""What is said of shadows: counts, means, and a verdict only where the interval excludes zero."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.history.comparison import Comparison, comparisons, interval, t_quantile
from leadline_controller.history.shadowed import ShadowDecision

from tests.controller.history.decision_builder import Machine
from tests.controller.history.shadow_builder import shadow

HOUR_S = 3600.0


def compared(machine: Machine, *decisions: ShadowDecision) -> Comparison:
    (one,) = comparisons(decisions, machine.now())
    return one


def hours(
    machine: Machine, count: int, per_hour: int = 3, *, seed: int = 1, **fields: Any
) -> list[ShadowDecision]:
    """Decisions for n2 instead of n1, which had 70 to 90 % CPU later, and n2 20 to 60 %."""
    random, found = Random(seed), list[ShadowDecision]()
    for _ in range(count):
        for _ in range(per_hour):
            later = {"cpu_percent": (random.uniform(70, 90), random.uniform(20, 60))}
            found.append(shadow(machine, **{"later": later, **fields}))
        machine.wait(HOUR_S)
    return found


def test_how_often_and_by_how_much_a_shadow_differs() -> None:
    machine = Machine()
    found = compared(
        machine,
        *(shadow(machine, choice="n1", tied=True) for _ in range(5)),
        shadow(machine, tied=True, rank=1, total=1.5),
        shadow(machine, missed=6, rank=3, total=4.5),
        shadow(machine, choice=None, total=None, total_of_node=None, rank=None, workload="x/y"),
    )
    assert (found.decisions, found.missed) == (8, 6)
    assert (found.same, found.tied, found.different, found.pending) == (5, 1, 2, 1)
    assert (found.scored, found.gain, found.rank) == (1, 3.0, 3.0)
    assert [(x.name, x.different, x.decisions) for x in found.workloads] == [
        ("default/web", 1, 7),
        ("x/y", 1, 1),
    ]
    assert [(x.name, x.other, x.different, x.decisions) for x in found.boards] == [
        ("n1", "n2", 1, 8),
        ("n1", "", 1, 8),
    ]
    assert (found.later, found.verdicts) == ((), ())


def test_a_lower_total_is_a_gain_where_lower_is_better() -> None:
    machine = Machine()
    one = shadow(machine, better="lower", total=1.0, total_of_node=4.0)
    assert compared(machine, one).gain == 3.0


def test_each_shadow_is_compared_with_each_strategy_that_decided() -> None:
    machine = Machine()
    pairs = [("a", "dacs"), ("b", "dacs"), ("a", "tsra"), ("a", "dacs")]
    found = comparisons(
        [shadow(machine, strategy=a, decided_by=b) for a, b in pairs], machine.now()
    )
    assert [(x.strategy, x.decided_by, x.decisions) for x in found] == [
        ("a", "dacs", 2),
        ("a", "tsra", 1),
        ("b", "dacs", 1),
    ]


def test_a_clear_difference_is_a_verdict_and_the_pods_own_use_is_taken_off() -> None:
    machine = Machine()
    found = compared(machine, *hours(machine, 20))
    (cpu,) = found.later
    assert (cpu.name, cpu.decisions, cpu.hours, cpu.pods) == ("cpu_percent", 60, 20, 5.0)
    assert cpu.node == pytest.approx(80, abs=3)
    assert cpu.choice == pytest.approx(40, abs=5)
    assert cpu.difference == pytest.approx(cpu.choice - cpu.node + 5.0)
    (verdict,) = found.verdicts
    assert verdict.startswith("netsched would have chosen better boards: where it differs, its ")
    assert "less CPU in use than those that dacs chose" in verdict
    assert "the pods' own use apart" in verdict


def test_what_the_pods_themselves_use_is_no_difference() -> None:
    machine = Machine()
    busy = []
    for at in range(60):
        later = {"cpu_percent": (50.0 + at % 3, 30.0)}
        busy.append(shadow(machine, later=later, pod_cpu_percent=21.0))
        machine.wait(HOUR_S)
    found = compared(machine, *busy)
    assert found.later[0].difference == pytest.approx(0.0)
    assert found.verdicts == ()


def test_the_strategy_in_force_may_be_the_better_one() -> None:
    machine = Machine()
    later = {"rtt_ms": (2.0, 9.0), "bandwidth_mbps": (90.0, 10.0)}
    found = compared(machine, *hours(machine, 12, later=later))
    assert found.verdicts == (
        "dacs chose better boards: where netsched differs, its boards had 80 Mbit/s less bandwidth "
        "(80 to 80)",
        "dacs chose better boards: where netsched differs, its boards had 7 ms more round trip to "
        "the pods' users (7 to 7)",
    )


@pytest.mark.parametrize("count", [1, 9])
def test_few_hours_are_no_verdict_however_many_decisions_they_have(count: int) -> None:
    machine = Machine()
    found = compared(machine, *hours(machine, count, per_hour=100))
    assert found.later[0].decisions == 100 * count
    assert (found.later[0].low, found.verdicts) == (None, ())


def test_chance_alone_is_seldom_a_verdict() -> None:
    verdicts = 0
    for seed in range(100):
        machine, random = Machine(), Random(seed)
        decisions = []
        for _ in range(24):
            value = random.gauss(0.0, 10.0)  # of the hour, and so of all of its decisions
            later = {"cpu_percent": (50.0, 50.0 + value)}
            decisions += [shadow(machine, later=later, pod_cpu_percent=0.0) for _ in range(5)]
            machine.wait(HOUR_S)
        verdicts += len(compared(machine, *decisions).verdicts)
    assert verdicts <= 10  # 5 of 100 are expected


@pytest.mark.parametrize(
    ("freedom", "table"), [(9, 2.262), (10, 2.228), (20, 2.086), (30, 2.042), (120, 1.980)]
)
def test_students_t_is_that_of_the_tables(freedom: int, table: float) -> None:
    assert t_quantile(freedom) == pytest.approx(table, abs=0.001)


@given(st.lists(st.floats(-1e6, 1e6), min_size=10, max_size=40), st.floats(-1e3, 1e3))
def test_an_interval_moves_with_its_values(values: list[float], by: float) -> None:
    low, high = interval(values)
    assert low is not None
    assert high is not None
    assert low <= sum(values) / len(values) + 1e-6
    moved = [each or 0.0 for each in interval([each + by for each in values])]
    assert moved == pytest.approx([low + by, high + by], abs=1e-3)
