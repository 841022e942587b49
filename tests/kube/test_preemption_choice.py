"""Leadline's choice of node and victims against kube-scheduler's DefaultPreemption, on generated
cases."""

from __future__ import annotations

import pytest

from tests.kube.compare_preemption import PreemptionTally, compared
from tests.kube.generator import PREEMPTION, made_preempting
from tests.kube.oracle import Oracle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

CASES = 300
# Of the cases about a predicate, preemption helps in at least so many.
LEAST = 20
LEAST_TIES = 10


@pytest.fixture(scope="module")
def tally() -> PreemptionTally:
    with Oracle(preemption=True) as oracle:
        found = compared(oracle, CASES)
    print(*found.rows(), sep="\n")
    return found


def test_each_candidate_has_the_plugins_victims_and_the_choice_is_one_of_its_best(
    tally: PreemptionTally,
) -> None:
    assert tally.differences == []


@pytest.mark.parametrize("theme", PREEMPTION)
def test_preemption_helps_in_cases_about_each_predicate(tally: PreemptionTally, theme: str) -> None:
    assert tally.helped[theme] >= LEAST


def test_budgets_and_ties_are_met(tally: PreemptionTally) -> None:
    assert sum(tally.violating.values()) >= LEAST
    assert sum(tally.ties.values()) >= LEAST_TIES


def test_a_seed_reproduces_its_case() -> None:
    assert made_preempting(7, "NodePorts") == made_preempting(7, "NodePorts")
    assert made_preempting(7, "NodePorts") != made_preempting(8, "NodePorts")
