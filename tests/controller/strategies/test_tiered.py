"""bef, sef and cloud-first: KubeDSM's baselines, with numbers worked by hand."""

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy, decide_in_turn
from leadline_controller.framework.options import build
from leadline_controller.strategies import STRATEGIES

from tests.controller.builders import node, pod, view

# Of the largest memory, 16 GiB, small has 4/16 left when it is empty, big 8/16.
NODES = (
    node("small", cores=4, gib=4, tier="edge"),
    node("big", cores=8, gib=8, tier="edge"),
    node("cloud", cores=16, gib=16, tier="cloud"),
)
NAMES = ["bef", "sef", "cloud-first"]


def make(name: str, **options: float) -> Strategy:
    strategy: Strategy = build(STRATEGIES[name], options)
    return strategy


def nodes_chosen(name: str, count: int, options: Mapping[str, float] | None = None) -> list[Any]:
    pods = [pod(f"p{i}", requests={"cpu": "1", "memory": "1Gi"}) for i in range(count)]
    turns = decide_in_turn(view(NODES), pods, Rule(make(name, **options or {}), FILTERS))
    return [decision.node for decision, _ in turns]


@pytest.mark.parametrize(
    ("name", "totals"),
    [("bef", [1.25, 1.5, 0.0]), ("sef", [1.75, 1.5, 0.0]), ("cloud-first", [0.0, 0.0, 1.0])],
)
def test_totals_of_the_three_baselines(name: str, totals: list[float]) -> None:
    scores = make(name).score(view(NODES), pod(), np.arange(3))
    assert scores.total.tolist() == pytest.approx(totals)


def test_a_total_is_the_sum_of_its_parts() -> None:
    cluster = view(NODES).with_placement(pod("there", requests={"memory": "3Gi"}), 0)
    for name in NAMES:
        scores = make(name).score(cluster, pod(requests={"memory": "1Gi"}), np.arange(3))
        assert sum(scores.parts.values()).tolist() == scores.total.tolist()  # type: ignore[union-attr]
        assert scores.total[0] < min(scores.total[1:]), "1 GiB is left, and would have to stay"


def test_what_is_left_decides_and_not_the_capacity() -> None:
    # big has 8 GiB, but 3 of them are left beside small's 4. CPU does not count.
    cluster = view(NODES).with_placement(pod("there", requests={"memory": "5Gi", "cpu": "1"}), 1)
    asks = pod(requests={"cpu": "1", "memory": "1Gi"})
    assert make("bef").score(cluster, asks, np.arange(3)).finalists.tolist() == [0]
    assert make("sef").score(cluster, asks, np.arange(3)).finalists.tolist() == [1]


@pytest.mark.parametrize(
    ("name", "edge"),
    [
        # More than 1 core and 1 GiB must stay free: small takes 2 pods, big 6. bef takes big down
        # to 4 GiB left, where both are equal.
        ("bef", ["big"] * 4),
        ("sef", ["small"] * 2 + ["big"] * 6),
    ],
)
def test_which_edge_node_fills_first_and_that_a_core_and_a_gib_stay_free(
    name: str, edge: list[str]
) -> None:
    chosen = nodes_chosen(name, 9)
    assert chosen[: len(edge)] == edge
    assert (chosen.count("small"), chosen.count("big")) == (2, 6)
    assert chosen[-1] == "cloud"


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"keep_cores": 0.0, "keep_gib": 0.0}, (4, 8)),
        ({"keep_cores": 0.0}, (2, 6)),
        ({"keep_gib": 0.0}, (2, 6)),
        ({"keep_cores": 0.5, "keep_gib": 2.5}, (1, 5)),
    ],
)
def test_how_much_stays_free_is_an_option(
    options: dict[str, float], counts: tuple[int, int]
) -> None:
    chosen = nodes_chosen("bef", 14, options)
    assert (chosen.count("small"), chosen.count("big")) == counts
    assert chosen[sum(counts) :] == ["cloud"] * (14 - sum(counts))


def test_cloud_first_uses_any_edge_node_when_the_cloud_has_too_little_free() -> None:
    nodes = nodes_chosen("cloud-first", 22)
    assert nodes[:14] == ["cloud"] * 14
    assert (nodes[14:].count("small"), nodes[14:].count("big")) == (2, 6)
    draws = {
        next(
            iter(
                decide_in_turn(
                    view(NODES[:2]), [pod()], Rule(make("cloud-first"), FILTERS, Random(i))
                )
            )
        )[0].node
        for i in range(20)
    }
    assert draws == {"small", "big"}, "the fuller one too"


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_is_placed_even_if_no_node_keeps_enough_free(name: str) -> None:
    chosen = nodes_chosen(name, 25)
    assert None not in chosen
    scores = make(name).score(view(NODES), pod(requests={"cpu": "16"}), np.array([2]))
    assert scores.why(0).endswith("; no node keeps enough free")


@pytest.mark.parametrize("name", NAMES)
def test_a_node_of_unknown_capacity_is_chosen_only_if_all_are(name: str) -> None:
    unknown = node("unknown", cores=0, gib=0, tier="edge")
    known = make(name).score(view([unknown, *NODES]), pod(), np.arange(4))
    assert np.isnan(known.total[0])
    assert 0 not in known.finalists
    alone = make(name).score(view([unknown]), pod(), np.arange(1))
    assert alone.finalists.tolist() == [0]
    assert alone.why(0) == "no candidate's capacity is known"
