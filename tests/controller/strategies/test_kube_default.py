"""Eq. 1-2 of the DACS paper with numbers worked by hand."""

import math
from typing import Any

import numpy as np
import pytest
from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.strategies.kube_default import KubeDefault

from tests.controller.builders import GIB, node, pod, view


def test_score_is_the_mean_free_share_times_ten() -> None:
    cluster = view(
        [node("a", cores=4, gib=8), node("b", cores=2, gib=4), node("c", cores=1, gib=4)],
        requested={CPU: [1000, 0, 1500], MEMORY: [4 * GIB, 1 * GIB, 0]},
    )
    scores = KubeDefault().score(cluster, pod(), np.arange(3))
    # a: (3/4 + 4/8) / 2 * 10, b: (1 + 3/4) / 2 * 10, c overdrawn: (-0.5 + 1) / 2 * 10
    assert scores.total.tolist() == [6.25, 8.75, 2.5]
    assert scores.parts["cpu_free_share"].tolist() == [0.75, 1.0, -0.5]
    assert scores.finalists.tolist() == [1]
    assert scores.why(1) == "100% of its CPU and 75% of its memory free"


def test_the_incoming_pod_does_not_count() -> None:
    cluster = view([node("a"), node("b")])
    for wanted in (pod(), pod(requests={"cpu": "2", "memory": "3Gi"})):
        assert KubeDefault().score(cluster, wanted, np.arange(2)).total.tolist() == [10.0, 10.0]


@pytest.mark.parametrize("lacking", [{"cores": 0}, {"gib": 0}])
def test_a_node_without_a_resource_has_no_score(lacking: dict[str, Any]) -> None:
    cluster = view([node("a", **lacking), node("b")], requested={CPU: [0, 3999]})
    scores = KubeDefault().score(cluster, pod(), np.arange(2))
    assert math.isnan(scores.total[0])
    assert scores.finalists.tolist() == [1]


def test_equal_nodes_are_all_finalists() -> None:
    scores = KubeDefault().score(view([node("a"), node("b")]), pod(), np.arange(2))
    assert scores.finalists.tolist() == [0, 1]


def test_selector_spread_prefers_nodes_with_fewer_of_the_service() -> None:
    cluster = view([node("a"), node("b"), node("c")], requested={CPU: [0, 0, 400]})
    one = pod("one", labels={"app": "x"})
    for at in (0, 0, 0, 1):
        cluster = cluster.with_placement(one, at, charge={})
    another = pod("another", labels={"app": "x"})
    spread = KubeDefault(rounding="whole", spread="selector-spread")
    # LeastRequested 10, 10, 9.5 rounded down; SelectorSpread 0, 10 * 2/3 rounded down, 10.
    assert spread.score(cluster, another, np.arange(3)).total.tolist() == [10.0, 16.0, 19.0]
    # Only the candidates count: of b and c, b has the most.
    assert spread.score(cluster, another, np.array([1, 2])).total.tolist() == [10.0, 19.0]
    # Of another service, or without labels, all are equal.
    for other in (pod("other", labels={"app": "y"}), pod("bare", labels={})):
        assert spread.score(cluster, other, np.arange(3)).total.tolist() == [20.0, 20.0, 19.0]
