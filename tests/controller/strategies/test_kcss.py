"""KCSS with numbers worked by hand."""

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import CPU, MEMORY, PODS, Image, Layer
from leadline_controller.strategies.kcss import DISK, Kcss, nearness_to_ideal

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


def test_criteria_are_the_shares_with_the_pod_the_number_of_pods_and_power() -> None:
    cluster = view(
        [node("a", cores=4, gib=8), node("b", cores=2, gib=4)],
        requested={CPU: [1000, 0], MEMORY: [GIB, 0], PODS: [3, 0]},
    )
    wanted = pod(requests={"cpu": "1", "memory": "1Gi"})
    scores = Kcss().score(cluster, wanted, np.arange(2))
    assert scores.parts["cpu_used_share"].tolist() == [0.5, 0.5]
    assert scores.parts["memory_used_share"].tolist() == [0.25, 0.25]
    assert scores.parts["disk_used_share"].tolist() == [1.0, 1.0]  # nobody knows of disks
    assert scores.parts["pods"].tolist() == [3.0, 0.0]
    # Half of a core's power for each core, and half for each core in use.
    assert scores.parts["power_cores"].tolist() == [3.0, 1.5]
    assert scores.parts["image_s"].tolist() == [0.0, 0.0]
    # a is best by pods, 1 from b; b by power, 1.5 / sqrt(3^2 + 1.5^2) from a.
    assert scores.total.tolist() == pytest.approx([1 / (1 + 0.2**0.5), 0.2**0.5 / (1 + 0.2**0.5)])
    expected = "with the pod 50% of its CPU and 25% of its memory in use, 0 s for its images"
    assert scores.why(0) == expected


def test_the_fullest_disk_wins_and_an_unknown_one_counts_as_boards_like_it() -> None:
    disks = [{DISK: 100 * GIB}, {DISK: 200 * GIB}, {}]
    nodes = [node(f"n{at}", extended=disk) for at, disk in enumerate(disks)]
    cluster = view(nodes, requested={DISK: [40 * GIB, 40 * GIB, 0]})
    wanted = pod(requests={"ephemeral-storage": "10Gi"})
    # n2: 10 of 150 GiB, or as the emptiest disk.
    for unknown, n2 in (("like-boards", 10 / 150), ("worst", 0.25)):
        scores = Kcss(unknown).score(cluster, wanted, np.arange(3))
        assert scores.parts["disk_used_share"].tolist() == [0.5, 0.25, n2]
        assert scores.finalists.tolist() == [0]


def test_images_count_by_the_time_to_send_what_is_missing() -> None:
    layers = (Layer("base", 30.0), Layer("app", 10.0))
    nodes = [
        node("none", registry_mbps=80.0),
        node("base", registry_mbps=8.0, image_layers=frozenset({"base"})),
        node("unknown", image_layers=frozenset({"base"})),
        node("all", image_layers=frozenset({"base", "app"})),
    ]
    cluster = replace(view(nodes), images=ImageTable.of([Image("app", layers)]))
    wanted = replace(pod(), images=("app",))
    # 40 MB at 80 Mbit/s; 10 MB at 8; the unknown link as boards like it, or as the slowest.
    for unknown, seconds in (("like-boards", 80 / 44), ("worst", 10.0)):
        scores = Kcss(unknown).score(cluster, wanted, np.arange(4))
        assert scores.parts["image_s"].tolist() == [4.0, 10.0, seconds, 0.0]
        assert scores.finalists.tolist() == [3]


def topsis(rows: list[list[float]], is_cost: list[bool]) -> list[float]:
    """The textbook's TOPSIS with equal weights, node by node. rows: one for each node."""
    columns = list(zip(*rows, strict=True))
    norms = [math.sqrt(sum(x * x for x in column)) or 1.0 for column in columns]
    unit = [[x / norm for x, norm in zip(row, norms, strict=True)] for row in rows]
    found = []
    for row in unit:
        to_best = to_worst = 0.0
        for x, column, cost in zip(row, zip(*unit, strict=True), is_cost, strict=True):
            best, worst = (min(column), max(column)) if cost else (max(column), min(column))
            to_best += (x - best) ** 2
            to_worst += (x - worst) ** 2
        found.append(math.sqrt(to_worst) / (math.sqrt(to_worst) + math.sqrt(to_best)))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_six_criteria_against_the_textbook(seed: int) -> None:
    draw = Random(seed)
    cores = [draw.choice([1, 2, 4]) for _ in range(4)]
    gib = [draw.choice([2, 4, 8]) for _ in range(4)]
    cpu = [draw.randrange(0, 900) for _ in range(4)]
    memory = [draw.randrange(0, GIB) for _ in range(4)]
    disk = [draw.randrange(0, 50) for _ in range(4)]
    pods = [draw.randrange(0, 9) for _ in range(4)]
    mbps = [draw.uniform(5, 100) for _ in range(4)]
    nodes = [
        node(f"n{at}", cores=cores[at], gib=gib[at], registry_mbps=mbps[at], extended={DISK: 100})
        for at in range(4)
    ]
    table = ImageTable.of([Image("app", (Layer("a", 25.0),))])
    requested = {CPU: cpu, MEMORY: memory, DISK: disk, PODS: pods}
    cluster = replace(view(nodes, requested=requested), images=table)
    wanted = replace(pod(requests={"cpu": "100m", "memory": "1Gi"}), images=("app",))
    expected = topsis(
        [
            [
                (cpu[at] + 100) / (1000 * cores[at]),
                (memory[at] + GIB) / (gib[at] * GIB),
                disk[at] / 100,
                pods[at],
                cores[at] / 2 + (cpu[at] + 100) / 2000,
                25 * 8 / mbps[at],
            ]
            for at in range(4)
        ],
        [False, False, False, False, True, True],
    )
    assert Kcss().score(cluster, wanted, np.arange(4)).total.tolist() == pytest.approx(expected)


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
