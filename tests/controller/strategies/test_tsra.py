"""TSRA with numbers worked by hand."""

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from leadline_controller.framework.cycle import Scores
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.options import build
from leadline_controller.strategies.tsra import Tsra

from tests.controller.builders import node, pod, view

NODES = [
    node("n1", cores=2, bandwidth_mbps=80.0),
    node("n2", cores=1, bandwidth_mbps=40.0),
    node("n3", cores=1),
]


def score(annotations: dict[str, str], **options: float) -> Scores:
    cluster = view(
        NODES,
        requested={CPU: [1500, 0, 750]},
        bandwidth_requested_mbps=[40.0, 0.0, 0.0],
        metrics={"bandwidth_mbps": [math.nan, math.nan, 10.0]},
    )
    scores: Scores = build(Tsra, options).score(cluster, pod(annotations=annotations), np.arange(3))
    return scores


def test_a_task_runs_on_all_free_cores() -> None:
    scores = score({"data-mb": "2", "bandwidth-mbps": "8"}, rate=4.0)
    # 2 MB at 4 MB a core and second, on 0.5, 1 and 0.25 cores.
    assert scores.parts["execution_s"].tolist() == [1.0, 0.5, 2.0]
    assert scores.parts["sending_s"].tolist() == [2.0, 2.0, 2.0]
    assert scores.total.tolist() == [3.0, 2.5, 4.0]
    assert scores.finalists.tolist() == [1]
    assert scores.why(1) == "done in 2.500 s (execution 0.500, sending 2.000)"


def test_image_and_data_use_the_free_capacity_of_the_link() -> None:
    scores = score({"data-mb": "5"}, image_s=1.0)
    # 40 Mbit over 80 - 40 requested, 40, and 10 as measured.
    assert scores.parts["sending_s"].tolist() == [2.0, 2.0, 5.0]


def test_on_the_users_node_no_data_is_sent() -> None:
    scores = score({"data-mb": "5", "user-node": "n3"}, image_s=1.0)
    assert scores.parts["sending_s"].tolist() == [2.0, 2.0, 1.0]


@pytest.mark.parametrize(("deadline", "told"), [("2.5", "in time for"), ("2.4", "too late for")])
def test_says_whether_the_deadline_is_met(deadline: str, told: str) -> None:
    scores = score({"data-mb": "0.5", "bandwidth-mbps": "2", "deadline-s": deadline})
    # n2: 0.5 s of execution and 2 s of sending.
    assert scores.finalists.tolist() == [1]
    assert scores.why(1).endswith(f", {told} its deadline of {deadline} s")


def task(deadline_s: float | None, user_node: str = "", cpu: str = "100m") -> Pod:
    annotations = {"data-mb": "1", "bandwidth-mbps": "16"}
    if deadline_s is not None:
        annotations["deadline-s"] = f"{deadline_s}"
    if user_node:
        annotations["user-node"] = user_node
    return pod(requests={"cpu": cpu}, annotations=annotations)


@pytest.mark.parametrize(
    ("deadline_s", "cpu", "charged"),
    [
        (2.0, "100m", 667),  # 0.5 s for the data, 1.5 for a MB
        (2.0, "900m", 900),  # the request is more
        (1.0, "100m", 2000),
        (0.75, "100m", 4000),
        (0.7, "100m", 100),  # more than the node has: late in any case
        (0.5, "100m", 100),
        (None, "100m", 100),
    ],
)
def test_a_pod_is_charged_the_cores_that_meet_its_deadline(
    deadline_s: float | None, cpu: str, charged: int
) -> None:
    assert Tsra().charge(view([node("n", cores=4)]), task(deadline_s, cpu=cpu), 0)[CPU] == charged


def test_a_deadline_sends_the_next_task_elsewhere() -> None:
    start = view([node("big", cores=4), node("small", cores=3)])
    for deadline_s, second in ((0.8, 1), (None, 0)):
        first = task(deadline_s)
        cluster = start.with_placement(first, 0, Tsra().charge(start, first, 0))
        assert Tsra().score(cluster, task(1.0), np.arange(2)).finalists.tolist() == [second]


def place_all(tasks: Sequence[Pod], cores: Sequence[float], *, is_charged: bool) -> list[int]:
    """The node of each task, -1 without one, one decision after the other."""
    cluster = view([node(f"n{at}", cores=each) for at, each in enumerate(cores)])
    nodes = []
    for each in tasks:
        candidates = np.flatnonzero(cluster.unrequested(CPU) >= each.requests[CPU])
        if not candidates.size:
            nodes.append(-1)
            continue
        scores = Tsra().score(cluster, each, candidates)
        chosen = int(candidates[scores.finalists[0]])
        charge = Tsra().charge(cluster, each, chosen) if is_charged else None
        cluster = cluster.with_placement(each, chosen, charge)
        nodes.append(chosen)
    return nodes


def in_time(tasks: Sequence[Pod], cores: Sequence[float], nodes: Sequence[int]) -> int:
    """How many tasks meet their deadline if those on a node share its cores evenly: in steps of a
    hundredth of a second."""
    left = [each.annotations.data_mb or 0.0 for each in tasks]
    met, step_s = 0, 0.01
    starts_s = [
        0.0 if each.annotations.user_node == f"n{at}" else 0.5
        for each, at in zip(tasks, nodes, strict=True)
    ]
    for tick in range(1000):
        now_s = tick * step_s
        running = [
            at
            for at, node_at in enumerate(nodes)
            if node_at >= 0 and left[at] > 0 and starts_s[at] <= now_s
        ]
        for at in running:
            beside = sum(nodes[other] == nodes[at] for other in running)
            left[at] -= cores[nodes[at]] / beside * step_s
            met += left[at] <= 0 and now_s < (tasks[at].annotations.deadline_s or math.inf)
    return met


def test_more_tasks_meet_their_deadlines_than_if_only_requests_were_charged() -> None:
    with_deadlines = without = 0
    for seed in range(20):
        draw = Random(seed)
        cores = [draw.choice([1.0, 2.0, 4.0]) for _ in range(3)]
        tasks = [
            task(draw.uniform(0.6, 4), f"n{draw.randrange(3)}")
            for _ in range(round(2 * sum(cores)))
        ]
        with_deadlines += in_time(tasks, cores, place_all(tasks, cores, is_charged=True))
        without += in_time(tasks, cores, place_all(tasks, cores, is_charged=False))
    assert with_deadlines > 1.1 * without


def test_a_pod_without_data_has_that_of_the_option() -> None:
    scores = score({"bandwidth-mbps": "8"}, data_mb=3.0)
    assert scores.parts["execution_s"].tolist() == [6.0, 3.0, 12.0]


def test_unknown_bandwidth() -> None:
    some = view([NODES[0], NODES[1], NODES[2]])
    for unknown, n3 in (("like-boards", 2 / 3), ("worst", 1.0)):
        scores = Tsra(unknown=unknown).score(some, pod(annotations={"data-mb": "5"}), np.arange(3))
        assert scores.parts["sending_s"].tolist() == [0.5, 1.0, n3]
    none = view([node("a"), node("b")])
    scores = Tsra().score(none, pod(annotations={"data-mb": "5"}), np.arange(2))
    assert scores.parts["sending_s"].tolist() == [0.0, 0.0]


def test_a_full_node_is_slow_but_finite() -> None:
    cluster = view([node("full", cores=1), node("free", cores=1)], requested={CPU: [2000, 0]})
    scores = Tsra().score(cluster, pod(), np.arange(2))
    assert scores.parts["execution_s"].tolist() == [1000.0, 1.0]


@pytest.mark.parametrize(
    ("error", "annotations", "finalists"),
    [(0.0, {}, [1]), (3.0, {}, [0, 1]), (3.0, {"deadline-s": "60"}, [1])],
)
def test_nodes_that_finish_first_within_the_error_of_their_bandwidth_are_as_good(
    error: float, annotations: dict[str, str], finalists: list[int]
) -> None:
    metrics = {"bandwidth_mbps": [90.0, 94.0, 20.0]}
    cluster = view(
        [node(name) for name in "abc"], metrics=metrics, errors={"bandwidth_mbps": error}
    )
    scores = Tsra().score(cluster, pod(annotations=annotations), np.arange(3))
    assert scores.finalists.tolist() == finalists
