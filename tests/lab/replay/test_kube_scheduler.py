"""kube-scheduler's own scores, worked out by hand from its source."""

from __future__ import annotations

import numpy as np
import pytest
from leadline_controller.framework.model import CPU, MEMORY, PODS, Image, Layer, Node, Pod
from leadline_lab.replay.kube_scheduler import KubeScheduler, Unstated, defaults_of

from tests.controller.builders import view
from tests.lab.replay.small import board, web

MIB = 2**20


def parts(nodes: list[Node], pod: Pod, **requested: list[int]) -> dict[str, list[float]]:
    seen = view(nodes, requested=requested)
    scores = KubeScheduler().score(seen, pod, np.arange(len(nodes)))
    found = {name: column.tolist() for name, column in scores.parts.items()}
    return {**found, "total": scores.total.tolist()}


def test_free_shares_count_with_the_pod_and_are_cut_to_whole_points() -> None:
    pod = Pod("d", "p", requests={CPU: 500, MEMORY: 512 * MIB, PODS: 1})
    found = parts([board("a"), board("b")], pod, cpu=[0, 1001], memory=[0, 0])
    # 3500/4000 and 3584/4096 MiB; (4000-1501)*100//4000 = 62, and 87.
    assert found["NodeResourcesFit"] == [87, 74]
    # Shares alike before and after: 50 + 50/2; and 0.25025, 0 -> 87, 0.37525, 0.125 -> 87.
    assert found["NodeResourcesBalancedAllocation"] == [75, 75]
    assert found["total"] == [162, 149]


def test_a_pod_that_makes_shares_more_alike_is_preferred_there() -> None:
    pod = Pod("d", "p", requests={CPU: 1000, MEMORY: 0, PODS: 1})
    found = parts([board("a"), board("b")], pod, cpu=[0, 0], memory=[0, 2**30])
    # a: 100 -> 87 (0.25 and 0), so 50 + 37 // 2; b: 87 -> 100.
    assert found["NodeResourcesBalancedAllocation"] == [68, 81]


def test_a_pod_without_requests_counts_with_the_defaults_and_skips_balance() -> None:
    pod = Pod("d", "p", requests={PODS: 1}, images=("a", "b"))
    assert defaults_of(pod) == {CPU: 200, MEMORY: 400 * MIB}
    found = parts([board("a")], pod)
    assert found["NodeResourcesFit"] == [(95 + 90) // 2]
    assert found["NodeResourcesBalancedAllocation"] == [0]


def test_pods_without_requests_count_on_their_nodes_while_they_are_there() -> None:
    unstated = Unstated()
    pod = Pod("d", "p", "u", requests={PODS: 1}, node_name="a")
    unstated.put(pod)
    unstated.put(pod)
    seen = view([board("a"), board("b")])
    strategy = KubeScheduler(unstated.on_nodes)
    new = web("new", 400)
    assert strategy.score(seen, new, np.arange(2)).finalists.tolist() == [1]
    unstated.drop("u")
    assert strategy.score(seen, new, np.arange(2)).finalists.tolist() == [0, 1]


@pytest.mark.parametrize(("size_mb", "points"), [(10.0, 0), (1000.0, 46)])
def test_images_count_by_size_and_by_how_many_nodes_have_them(size_mb: float, points: int) -> None:
    image = Image("docker.io/library/a:1", (Layer("a@sha256:1", size_mb),))
    nodes = [board("a", images=(image,)), board("b")]
    found = parts(nodes, web("p", images=("a:1",)))
    # (1e9 / 2 - 23 MiB) * 100 // (1000 MiB - 23 MiB)
    assert found["ImageLocality"] == [points, 0]
