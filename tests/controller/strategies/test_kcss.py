"""KCSS with numbers worked by hand."""

import math
from typing import Any

import numpy as np
import pytest
from leadline_controller.framework.model import CPU, MEMORY, PODS
from leadline_controller.strategies.kcss import Kcss, nearness_to_ideal

from tests.controller.builders import GIB, node, pod, view

NAN = math.nan


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        # Norm 5: 0.6 and 0.8; the second is the ideal, the first the worst.
        ([[3, 4]], [0.0, 1.0]),
        # Each is best in one: norms 5 and 5, both 0.2 from the best and from the worst.
        ([[3, 4], [4, 3]], [0.5, 0.5]),
        # Norms 3 and 1: (1/3, 0), (2/3, 0), (2/3, 1). To the best sqrt(1/9 + 1), 1, 0; to the
        # worst 0, 1/3, sqrt(1/9 + 1).
        ([[1, 2, 2], [0, 0, 1]], [0.0, (1 / 3) / (1 + 1 / 3), 1.0]),
        ([[2, 2], [0, 0]], [1.0, 1.0]),  # all alike
        ([[3, NAN, 4], [1, 1, 1]], [0.0, NAN, 1.0]),
        ([[NAN, NAN]], [NAN, NAN]),
    ],
)
def test_topsis(criteria: list[list[float]], expected: list[float]) -> None:
    found = nearness_to_ideal(np.array(criteria, dtype=np.float64))
    assert found.tolist() == pytest.approx(expected, nan_ok=True)


def test_criteria_are_the_shares_with_the_pod_and_the_number_of_pods() -> None:
    cluster = view(
        [node("a", cores=4, gib=8), node("b", cores=2, gib=4)],
        requested={CPU: [1000, 0], MEMORY: [GIB, 0], PODS: [3, 0]},
    )
    wanted = pod(requests={"cpu": "1", "memory": "1Gi"})
    scores = Kcss().score(cluster, wanted, np.arange(2))
    assert scores.parts["cpu_used_share"].tolist() == [0.5, 0.5]
    assert scores.parts["memory_used_share"].tolist() == [0.25, 0.25]
    assert scores.parts["pods"].tolist() == [3.0, 0.0]
    assert scores.total.tolist() == [1.0, 0.0]
    assert scores.why(0) == "with the pod 50% of its CPU and 25% of its memory in use"


def test_a_small_node_goes_before_a_large_one_from_the_first_pod_on() -> None:
    cluster = view([node("large", cores=4, gib=8), node("small", cores=1, gib=4)])
    wanted = pod(requests={"cpu": "500m", "memory": "1Gi"})
    assert Kcss().score(cluster, wanted, np.arange(2)).finalists.tolist() == [1]


@pytest.mark.parametrize("lacking", [{"cores": 0}, {"gib": 0}])
def test_a_node_without_a_resource_has_no_score(lacking: dict[str, Any]) -> None:
    cluster = view([node("a", **lacking), node("b")], requested={PODS: [9, 0]})
    scores = Kcss().score(cluster, pod(), np.arange(2))
    assert math.isnan(scores.total[0])
    assert scores.finalists.tolist() == [1]


def test_an_overcommitted_node_counts_as_full() -> None:
    cluster = view([node("a", cores=1)], requested={CPU: [5000]})
    assert Kcss().score(cluster, pod(), np.arange(1)).parts["cpu_used_share"].tolist() == [1.0]
