"""SelectorSpread against kube-scheduler's rule, node by node."""

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import Pod
from leadline_controller.strategies.shared.spreading import selector_spread

from tests.controller.builders import node, pod, view


@cache
def replica(at: int, number: int) -> Pod:
    labels = {"app": "x", "pod-template-hash": str(number)}
    return pod(f"p{at}-{number}", labels=labels, nodeName=f"n{at}")


@given(st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_whole_points_fall_with_the_replicas_of_the_service(replicas: list[int]) -> None:
    assigned = [replica(at, i) for at, count in enumerate(replicas) for i in range(count)]
    others = [pod("other", labels={"app": "y"}, nodeName="n0")]
    cluster = view([node(f"n{at}") for at in range(len(replicas))], assigned_pods=assigned + others)
    points = selector_spread(cluster, pod("new", labels={"app": "x"}), np.arange(len(replicas)))
    most = max(replicas)
    # kubernetes: pkg/scheduler/algorithm/priorities/selector_spreading.go (until 1.17).
    expected = [10 * (most - count) // most if most else 10 for count in replicas]
    assert points.tolist() == expected
