"""TSRA with numbers worked by hand."""

import math

import numpy as np
import pytest
from leadline_controller.framework.cycle import Scores
from leadline_controller.framework.model import CPU
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


def test_a_pod_without_data_has_that_of_the_option() -> None:
    scores = score({"bandwidth-mbps": "8"}, data_mb=3.0)
    assert scores.parts["execution_s"].tolist() == [6.0, 3.0, 12.0]


def test_unknown_bandwidth() -> None:
    some = view([NODES[0], NODES[1], NODES[2]])
    scores = Tsra().score(some, pod(annotations={"data-mb": "5"}), np.arange(3))
    assert scores.parts["sending_s"].tolist() == [0.5, 1.0, 1.0]  # n3: as the slowest known
    none = view([node("a"), node("b")])
    scores = Tsra().score(none, pod(annotations={"data-mb": "5"}), np.arange(2))
    assert scores.parts["sending_s"].tolist() == [0.0, 0.0]


def test_a_full_node_is_slow_but_finite() -> None:
    cluster = view([node("full", cores=1), node("free", cores=1)], requested={CPU: [2000, 0]})
    scores = Tsra().score(cluster, pod(), np.arange(2))
    assert scores.parts["execution_s"].tolist() == [1000.0, 1.0]
