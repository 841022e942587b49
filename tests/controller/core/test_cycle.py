import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from leadline_controller.core.cycle import (
    Better,
    Decision,
    Filter,
    Scores,
    Verdict,
    best,
    decide,
    decide_in_turn,
)
from leadline_controller.core.model import CPU, PODS, Pod
from leadline_controller.core.view import ClusterView, Ints

from tests.controller.builders import node, pod, view


@dataclass(frozen=True)
class Preset:
    """Totals as the test sets them."""

    name: ClassVar[str] = "preset"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "none"
    needs: ClassVar[tuple[str, ...]] = ()

    totals: Mapping[str, float] = field(default_factory=dict)

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        total = np.array([self.totals.get(view.table.names[i], math.nan) for i in candidates])
        parts = {"half": total / 2}
        return Scores(candidates, total, best(total, self.better), lambda at: f"no. {at}", parts)

    def charge(self, _: ClusterView, pod: Pod, __: int) -> Mapping[str, int]:
        return {**pod.requests, "charged": 7}


def only(*names: str) -> Filter:
    def keep(view: ClusterView, _: Pod) -> Verdict:
        passes = np.array([name in names for name in view.table.names], dtype=np.bool_)
        return Verdict(passes, lambda i: f"{view.table.names[i]} is not liked")

    return keep


NODES = [node("a"), node("b"), node("c")]


def run(
    totals: Mapping[str, float], filters: Mapping[str, Filter] | None = None, seed: int = 0
) -> Decision:
    return decide(view(NODES), pod(), filters or {}, Preset(totals), Random(seed))


def test_the_best_total_wins() -> None:
    decision = run({"a": 1.0, "b": 3.0, "c": 2.0})
    assert (decision.node, decision.why) == ("b", "no. 1")
    assert decision.scores()["b"] == (3.0, {"half": 1.5})
    assert decision.rejected() == {}


def test_a_rejected_node_never_wins_and_says_why() -> None:
    decision = run({"a": 1.0, "b": 3.0, "c": 2.0}, {"Like": only("a", "c"), "Love": only("a")})
    assert decision.node == "a"
    assert decision.rejected() == {
        "b": ["Like: b is not liked", "Love: b is not liked"],
        "c": ["Love: c is not liked"],
    }
    assert set(decision.scores()) == {"a"}


def test_where_nothing_fits_the_reason_counts_the_filters() -> None:
    decision = run({"a": 1.0}, {"Like": only("a", "c"), "Love": only("b"), "All": only(*"abc")})
    assert (decision.node, decision.why) == (None, "0 of 3 nodes fit: 1 Like, 2 Love")
    assert decision.scores() == {}
    assert set(decision.rejected()) == {"a", "b", "c"}


def test_no_nodes_at_all() -> None:
    decision = decide(view([]), pod(), {}, Preset(), Random(0))
    assert (decision.node, decision.why) == (None, "no nodes are known")


def test_ties_are_broken_by_the_seed_and_said() -> None:
    chosen = {run({"a": 1.0, "b": 1.0, "c": 0.0}, seed=seed).node for seed in range(30)}
    assert chosen == {"a", "b"}
    first, again = (run({"a": 1.0, "b": 1.0, "c": 0.0}, seed=7) for _ in range(2))
    assert first.node == again.node
    assert first.why.endswith("; 2 nodes tied, chosen at random")


def test_an_unknown_total_is_told_as_unknown_and_loses() -> None:
    decision = run({"a": -5.0})
    assert decision.node == "a"
    assert decision.scores()["b"] == (None, {})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (pod(annotations={"data-mb": "?"}), "annotation leadline.dev/data-mb: expected a number"),
        (pod(schedulingGates=[{"name": "g"}]), "the pod's scheduling gates hold it back"),
        (
            pod(annotations={"user-node": "nowhere"}),
            "annotation leadline.dev/user-node: the cluster has no node 'nowhere'",
        ),
    ],
    ids=["annotation", "gate", "user"],
)
def test_a_pod_with_a_problem_goes_nowhere(wanted: Pod, why: str) -> None:
    decision = decide(view(NODES), wanted, {}, Preset({"a": 1.0}), Random(0))
    assert decision.node is None
    assert decision.why.startswith(why)
    assert (decision.rejected(), decision.scores()) == ({}, {})


@pytest.mark.parametrize(
    ("total", "better", "expected"),
    [
        ([1.0, 3.0, 3.0], "higher", [1, 2]),
        ([1.0, 3.0, 1.0], "lower", [0, 2]),
        ([math.nan, 3.0], "lower", [1]),
        ([math.nan, math.nan], "higher", [0, 1]),
        ([-math.inf, 0.0], "higher", [1]),
    ],
)
def test_best(total: list[float], better: Better, expected: list[int]) -> None:
    assert best(np.array(total), better).tolist() == expected


def test_each_pod_sees_what_the_ones_before_took() -> None:
    def roomy(view: ClusterView, pod: Pod) -> Verdict:
        return Verdict(view.free(CPU) >= pod.requests[CPU], lambda _: "full")

    pods = [pod(f"p{i}", requests={"cpu": "3"}) for i in range(4)]
    taken = list(
        decide_in_turn(
            view(NODES), pods, {"Fit": roomy}, Preset({"a": 3.0, "b": 2.0, "c": 1.0}), Random(0)
        )
    )
    assert [decision.node for decision, _ in taken] == ["a", "b", "c", None]
    last = taken[-1][1]
    assert last.requested_of(CPU).tolist() == [3000, 3000, 3000]
    assert last.requested_of(PODS).tolist() == [1, 1, 1]
    assert last.placed_in_run.tolist() == [1, 1, 1]
    assert last.requested_of("charged").tolist() == [7, 7, 7], "what the strategy charges"
