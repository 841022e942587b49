"""bef, sef and cloud-first: KubeDSM's baselines, with numbers worked by hand."""

from random import Random
from typing import Any

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy, decide_in_turn
from leadline_controller.framework.options import build
from leadline_controller.strategies import STRATEGIES

from tests.controller.builders import node, pod, view

# Largest: 16 cores, 16 GiB. Sizes: small sqrt(2/16 * 2/16) = 0.125, big sqrt(4/16 * 4/16) = 0.25,
# cloud 1.
NODES = (
    node("small", cores=2, gib=2, tier="edge"),
    node("big", cores=4, gib=4, tier="edge"),
    node("cloud", cores=16, gib=16, tier="cloud"),
)


def make(name: str) -> Strategy:
    strategy: Strategy = build(STRATEGIES[name], {})
    return strategy


def nodes_chosen(name: str, count: int, **fields: Any) -> list[str | None]:
    pods = [pod(f"p{i}", requests={"cpu": "1", "memory": "1Gi"}, **fields) for i in range(count)]
    turns = decide_in_turn(view(NODES), pods, FILTERS, make(name), Random(0))
    return [decision.node for decision, _ in turns]


@pytest.mark.parametrize(
    ("name", "totals"),
    [
        ("bef", [1.125, 1.25, 1.0]),
        ("sef", [0.125, 0.25, 2.0]),
        ("cloud-first", [1.0, 1.0, 2.0]),  # all of each is free
    ],
)
def test_totals_of_the_three_baselines(name: str, totals: list[float]) -> None:
    scores = make(name).score(view(NODES), pod(), np.arange(3))
    assert scores.total.tolist() == pytest.approx(totals)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("bef", ["big"] * 4 + ["small"] * 2 + ["cloud"]),
        ("sef", ["small"] * 2 + ["big"] * 4 + ["cloud"]),
        ("cloud-first", ["cloud"] * 7),
    ],
)
def test_which_node_fills_first(name: str, nodes: list[str]) -> None:
    assert nodes_chosen(name, 7) == nodes


def test_cloud_first_uses_the_edge_when_the_cloud_is_full() -> None:
    nodes = nodes_chosen("cloud-first", 18)
    assert nodes[:16] == ["cloud"] * 16
    # Both edge nodes are empty, so chance takes one; then the other has the larger share free.
    assert sorted(map(str, nodes[16:])) == ["big", "small"]


@pytest.mark.parametrize("name", ["bef", "sef", "cloud-first"])
def test_a_node_of_unknown_capacity_is_chosen_only_if_all_are(name: str) -> None:
    unknown = node("unknown", cores=0, gib=0, tier="edge")
    known = make(name).score(view([unknown, *NODES]), pod(), np.arange(4))
    assert np.isnan(known.total[0])
    assert 0 not in known.finalists
    alone = make(name).score(view([unknown]), pod(), np.arange(1))
    assert alone.finalists.tolist() == [0]
    assert alone.why(0) == "no candidate's capacity is known"
