"""The contract of every preference."""

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import Link, Pod
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.preferences import PREFERENCES, rule
from leadline_controller.strategies import STRATEGIES

from tests.contracts.clusters import fingerprint, reordered
from tests.controller.builders import view
from tests.kube.compare import view_of
from tests.kube.generator import made_preferring

every_preference = pytest.mark.parametrize("name", PREFERENCES)
SEEDS = range(40)


@cache
def drawn(name: str) -> list[tuple[ClusterView, Pod]]:
    cases = [made_preferring(seed, name) for seed in SEEDS]
    return [(view_of(case, ClusterState()), read_pod(case["pod"])) for case in cases]


@every_preference
def test_scores_are_whole_numbers_from_0_to_100_for_each_candidate(name: str) -> None:
    seen = 0
    for cluster, wanted in drawn(name):
        candidates = np.arange(0, len(cluster), 2)
        found = PREFERENCES[name][0](cluster, wanted, candidates)
        if found is not None:
            seen += 1
            for column in (found.raw, found.normalized):
                assert column.shape == candidates.shape
                assert column.dtype == np.int64
            assert found.normalized.min() >= 0
            assert found.normalized.max() <= 100
    assert seen


@every_preference
def test_it_neither_changes_the_view_nor_remembers_another_pod(name: str) -> None:
    for cluster, wanted in drawn(name):
        everyone = np.arange(len(cluster))
        before = fingerprint(cluster)
        fresh = replace(cluster, table=NodeTable(cluster.nodes))
        expected = PREFERENCES[name][0](fresh, wanted, everyone)
        for score, _ in PREFERENCES.values():
            score(cluster, replace(wanted, labels={"app": "other"}), everyone)
        again = PREFERENCES[name][0](cluster, wanted, everyone)
        assert fingerprint(cluster) == before
        assert (again is None) == (expected is None)
        if again is not None and expected is not None:
            assert again.raw.tolist() == expected.raw.tolist()
            assert again.normalized.tolist() == expected.normalized.tolist()


@every_preference
def test_the_order_of_the_nodes_does_not_matter(name: str) -> None:
    for cluster, wanted in drawn(name):
        order = list(reversed(range(len(cluster))))
        found = PREFERENCES[name][0](cluster, wanted, np.arange(len(cluster)))
        other = PREFERENCES[name][0](reordered(cluster, order), wanted, np.arange(len(cluster)))
        assert (found is None) == (other is None)
        if found is not None and other is not None:
            assert found.raw[order].tolist() == other.raw.tolist()
            assert found.normalized[order].tolist() == other.normalized.tolist()


@pytest.mark.parametrize("name", STRATEGIES)
def test_with_every_strategy_the_choice_is_nearly_as_good(name: str) -> None:
    """Or better, where a strategy does not choose its best total."""
    strategy, others, tolerance = STRATEGIES[name](), 0, 0.0
    for theme in PREFERENCES:
        for cluster, wanted in drawn_and_measured(theme):
            alone = decide(cluster, wanted, Rule(strategy, {}))
            both = decide(cluster, wanted, Rule(strategy, {}, Random(0), rule("on")))
            assert alone.node is not None
            assert both.node is not None
            scores = strategy.score(cluster, wanted, np.arange(len(cluster)))
            at = cluster.table.index[both.node]
            base = scores.total[cluster.table.index[alone.node]]
            base = base if scores.leeway.base is None else scores.leeway.base
            assert abs(scores.total[at] - base) <= scores.leeway.tolerance or np.isnan(base)
            assert scores.leeway.rivals is None or scores.leeway.rivals[at]
            assert "\n" not in both.why
            others += both.node != alone.node
            tolerance = max(tolerance, scores.leeway.tolerance)
    assert others or not tolerance, "no preference ever decided"


@cache
def drawn_and_measured(theme: str) -> list[tuple[ClusterView, Pod]]:
    """Clusters with measurements that are near to each other."""
    return [(measured(cluster, seed), pod) for seed, (cluster, pod) in enumerate(drawn(theme)[:20])]


def measured(cluster: ClusterView, seed: int) -> ClusterView:
    random, names = Random(seed), cluster.table.names
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    found = view(
        cluster.nodes,
        metrics={each: [random.uniform(49, 51) for _ in names] for each in METRICS},
        links=[Link(a, b, random.uniform(1.0, 1.2)) for a, b in pairs],
    )
    return replace(cluster, metrics=found.metrics, links=found.links)
