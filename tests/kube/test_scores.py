"""Leadline's preference scores against kube-scheduler's own Score plugins, on generated cases."""

from __future__ import annotations

import pytest
from leadline_controller.preferences import PREFERENCES

from tests.kube.compare_scores import Comparison, compared
from tests.kube.generator import made_preferring
from tests.kube.objects import node, pod
from tests.kube.oracle import Oracle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

# Of each plugin; each case is scored by all of them.
CASES = 1000
# In so many cases the plugin tells nodes apart.
LEAST = 300


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    with Oracle() as oracle:
        found = compared(oracle, CASES)
    print(*found.rows(), sep="\n")
    return found


def test_all_scores_and_weights_are_kube_schedulers(comparison: Comparison) -> None:
    assert comparison.differing == []


@pytest.mark.parametrize("plugin", PREFERENCES)
def test_every_plugin_tells_nodes_apart(comparison: Comparison, plugin: str) -> None:
    assert comparison.cases[plugin] >= CASES
    assert comparison.told[plugin] >= LEAST


def test_the_oracle_scores_only_nodes_that_fit(oracle: Oracle) -> None:
    nodes = [node("n1"), node("n2", unschedulable=True)]
    scores = oracle.judge({"nodes": nodes, "pod": pod("p")}).scores
    assert scores["TaintToleration"].normalized == {"n1": 100}
    assert {name: each.raw for name, each in scores.items() if each.raw} == {
        "TaintToleration": {"n1": 0}
    }


def test_a_wrong_score_is_noticed(oracle: Oracle) -> None:
    found = Comparison()
    case = made_preferring(0, "TaintToleration")
    judged = oracle.judge(case)
    for scored in judged.scores.values():
        scored.normalized.update(dict.fromkeys(scored.normalized, -1))
    found.count("changed", case, judged)
    assert found.differing
