import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import VolumePlan
from leadline_controller.framework.cycle import (
    Better,
    Decision,
    Filter,
    FilterResult,
    Rule,
    Scores,
    best,
    decide,
    decide_in_turn,
)
from leadline_controller.framework.model import CPU, PODS, Pod
from leadline_controller.framework.queueing_hints import ANY_EVENT, ClusterEvent
from leadline_controller.framework.view import ClusterView, Ints

from tests.controller.builders import node, pod, view
from tests.controller.storing import claim, storage_class, using


@dataclass(frozen=True)
class Preset:
    """Returns fixed totals."""

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
    def keep(view: ClusterView, _: Pod) -> FilterResult:
        passes = np.array([name in names for name in view.table.names], dtype=np.bool_)
        return FilterResult(passes, lambda i: f"{view.table.names[i]} is not liked")

    return keep


NODES = [node("a"), node("b"), node("c")]


def run(
    totals: Mapping[str, float], filters: Mapping[str, Filter] | None = None, seed: int = 0
) -> Decision:
    return decide(view(NODES), pod(), Rule(Preset(totals), filters or {}, Random(seed)))


def test_the_best_total_wins() -> None:
    decision = run({"a": 1.0, "b": 3.0, "c": 2.0})
    assert (decision.node, decision.why) == ("b", "no. 1")
    assert decision.scores()["b"] == (3.0, {"half": 1.5})
    assert decision.rejected() == {}


def test_a_rejected_node_never_wins_and_has_a_reason() -> None:
    decision = run({"a": 1.0, "b": 3.0, "c": 2.0}, {"Like": only("a", "c"), "Love": only("a")})
    assert decision.node == "a"
    assert decision.rejected() == {
        "b": ["Like: b is not liked", "Love: b is not liked"],
        "c": ["Love: c is not liked"],
    }
    assert set(decision.scores()) == {"a"}


def test_the_reason_of_an_unschedulable_pod_counts_the_filters() -> None:
    decision = run({"a": 1.0}, {"Like": only("a", "c"), "Love": only("b"), "All": only(*"abc")})
    assert (decision.node, decision.why) == (None, "0 of 3 nodes fit: 1 Like, 2 Love")
    assert decision.scores() == {}
    assert set(decision.rejected()) == {"a", "b", "c"}


def test_without_nodes_the_pod_is_unschedulable() -> None:
    decision = decide(view([]), pod(), Rule(Preset(), {}))
    assert (decision.node, decision.why) == (None, "no nodes are known")


def test_ties_are_broken_by_the_seed_and_mentioned() -> None:
    chosen = {run({"a": 1.0, "b": 1.0, "c": 0.0}, seed=seed).node for seed in range(30)}
    assert chosen == {"a", "b"}
    first, again = (run({"a": 1.0, "b": 1.0, "c": 0.0}, seed=7) for _ in range(2))
    assert first.node == again.node
    assert first.why.endswith("; 2 nodes tied, chosen at random")


class Measuring(Preset):
    """Reads a measurement, so that it does not know of a pod before a report shows it."""

    needs = ("cpu_percent",)


def among_tied(recently: list[int], strategy: Preset, *, letter: bool = False) -> list[Decision]:
    cluster = view(NODES, recently_placed=recently)
    rules = [Rule(strategy, {}, Random(seed), letter=letter) for seed in range(30)]
    return [decide(cluster, pod(), rule) for rule in rules]


def test_of_tied_nodes_those_with_the_fewest_pods_just_placed_are_left() -> None:
    tied = Measuring(dict.fromkeys("abc", 1.0))
    (only,) = {(d.node, d.why) for d in among_tied([1, 2, 0], tied)}
    assert only == ("c", "no. 2; 3 nodes tied, fewest pods just placed")
    two = among_tied([1, 2, 1], tied)
    assert {d.node for d in two} == {"a", "c"}
    assert two[0].why.endswith("; 3 nodes tied, fewest pods just placed, then chosen at random")
    assert two[0].priorities() == {"a": 10, "b": 9, "c": 10}
    assert {d.node for d in among_tied([1, 2, 0], Measuring({"b": 1.0}))} == {"b"}


def test_chance_alone_decides_to_the_letter_and_where_nothing_measured_is_read() -> None:
    totals = dict.fromkeys("abc", 1.0)
    for found in (
        among_tied([1, 2, 0], Measuring(totals), letter=True),
        among_tied([1, 2, 0], Preset(totals)),
    ):
        assert {d.node for d in found} == {"a", "b", "c"}
        assert found[0].why.endswith("; 3 nodes tied, chosen at random")


def test_an_unknown_total_is_shown_as_unknown_and_loses() -> None:
    decision = run({"a": -5.0})
    assert decision.node == "a"
    assert decision.scores()["b"] == (None, {})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (pod(annotations={"data-mb": "?"}), "annotation leadline.dev/data-mb: expected a number"),
        (pod(schedulingGates=[{"name": "g"}]), "the pod's scheduling gates hold it back"),
    ],
    ids=["annotation", "gate"],
)
def test_a_pod_with_a_problem_is_unschedulable(wanted: Pod, why: str) -> None:
    decision = decide(view(NODES), wanted, Rule(Preset({"a": 1.0}), {}))
    assert decision.node is None
    assert decision.why.startswith(why)
    assert (decision.rejected(), decision.scores()) == ({}, {})


def test_a_user_at_an_unknown_node_counts_as_none_and_the_decision_says_so() -> None:
    wanted = pod(annotations={"user-node": "no\nwhere" + "x" * 100})
    decision = decide(view(NODES), wanted, Rule(Preset({"a": 1.0}), {}))
    assert decision.node == "a"
    assert decision.warning in decision.why
    assert decision.warning.startswith(
        "annotation leadline.dev/user-node: the cluster has no node 'no\\nwherex"
    )
    assert decision.warning.endswith("x', so the pod counts as without a user")
    assert "\n" not in decision.why
    assert len(decision.warning) < 200
    assert decision.without_basis().warning == decision.warning
    known = pod(annotations={"user-node": "a"})
    assert decide(view(NODES), known, Rule(Preset({"a": 1.0}), {})).warning == ""


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
def test_best_returns_all_positions_of_the_best_total(
    total: list[float], better: Better, expected: list[int]
) -> None:
    assert best(np.array(total), better).tolist() == expected


def test_each_pod_sees_the_placements_before_it() -> None:
    def roomy(view: ClusterView, pod: Pod) -> FilterResult:
        return FilterResult(view.free(CPU) >= pod.requests[CPU], lambda _: "full")

    pods = [pod(f"p{i}", requests={"cpu": "3"}) for i in range(4)]
    taken = list(
        decide_in_turn(
            view(NODES), pods, Rule(Preset({"a": 3.0, "b": 2.0, "c": 1.0}), {"Fit": roomy})
        )
    )
    assert [decision.node for decision, _ in taken] == ["a", "b", "c", None]
    last = taken[-1][1]
    assert last.requested_of(CPU).tolist() == [3000, 3000, 3000]
    assert last.requested_of(PODS).tolist() == [1, 1, 1]
    assert last.placed_in_run.tolist() == [1, 1, 1]
    assert last.free("charged").tolist() == [-7, -7, -7], "what the strategy charges"
    assert last.unrequested("charged").tolist() == [0, 0, 0], "which no filter counts"


def resolvable_by_preemption_on(*names: str) -> Filter:
    def full(view: ClusterView, _: Pod) -> FilterResult:
        could = np.array([name in names for name in view.table.names], dtype=np.bool_)
        return FilterResult(view.table.none(), lambda _: "full", resolvable_by_preemption=could)

    return full


def preemption_reason(wanted: Pod, priorities: Mapping[str, int], *filters: Filter) -> str:
    assigned_pods = [pod(f"on-{n}", priority=p, nodeName=n) for n, p in priorities.items()]
    cluster = view(NODES, assigned_pods=assigned_pods)
    named = {f"F{i}": test for i, test in enumerate(filters)}
    return decide(cluster, wanted, Rule(Preset(), named)).why


@pytest.mark.parametrize(
    ("wanted", "priorities", "told"),
    [
        (pod(priority=5), {"a": 0, "b": 9, "c": 4}, 2),
        (pod(priority=5), {"a": 5}, 0),
        (pod(priority=5), {}, 0),
        (pod(priority=5, preemptionPolicy="Never"), {"a": 0}, 0),
    ],
)
def test_nodes_that_preemption_might_help_are_mentioned(
    wanted: Pod, priorities: Mapping[str, int], told: int
) -> None:
    sentence = f"; {told} of them run pods of lower priority"
    why = preemption_reason(wanted, priorities, resolvable_by_preemption_on("a", "b", "c"))
    assert why == "0 of 3 nodes fit: 3 F0" + (sentence if told else "")


def test_preemption_is_mentioned_only_if_it_resolves_every_filter() -> None:
    priorities = {"a": 0, "b": 0, "c": 0}
    why = preemption_reason(
        pod(priority=1), priorities, resolvable_by_preemption_on("a", "b"), only("b", "c")
    )
    assert why.endswith("; 1 of them run pods of lower priority")
    assert "priority" not in preemption_reason(pod(priority=1), priorities, only())


def test_an_unresolvable_reason_is_shown_instead_of_counts() -> None:
    def refusing(view: ClusterView, _: Pod) -> FilterResult:
        return FilterResult.none_pass(view, "the claim is gone")

    found = run({"a": 1.0}, {"Claims": refusing, "Other": only("a")})
    assert found.why == "0 of 3 nodes fit: Claims: the claim is gone"
    assert found.rejected()["a"] == ["Claims: the claim is gone"]


def test_an_unschedulable_pod_is_requeued_on_the_events_of_its_failing_filters() -> None:
    def hoping(requeue_on: ClusterEvent, *, unresolvable: bool = False, passing: int = 0) -> Filter:
        def test(view: ClusterView, _: Pod) -> FilterResult:
            if unresolvable:
                return FilterResult.none_pass(view, "no claim", requeue_on)
            return FilterResult(
                np.arange(len(view)) < passing, lambda _: "no", requeue_on=requeue_on
            )

        return test

    def requeue_on(**filters: Filter) -> ClusterEvent:
        return run({"a": 1.0}, filters).requeue_on

    some, most = (
        hoping(ClusterEvent.RESOURCES_FREED, passing=2),
        hoping(ClusterEvent.PORTS_FREED, passing=1),
    )
    assert (
        requeue_on(
            a=hoping(ClusterEvent.RESOURCES_FREED), b=hoping(ClusterEvent.PORTS_FREED, passing=3)
        )
        == ClusterEvent.RESOURCES_FREED
    )
    assert (
        requeue_on(a=some, b=most, c=hoping(ClusterEvent.LABELS))
        == ClusterEvent.RESOURCES_FREED | ClusterEvent.PORTS_FREED | ClusterEvent.LABELS
    )
    assert (
        requeue_on(
            a=hoping(ClusterEvent.RESOURCES_FREED), b=hoping(ClusterEvent.CLAIMS, unresolvable=True)
        )
        == ClusterEvent.CLAIMS
    )
    assert requeue_on(a=only()) == ANY_EVENT  # one that does not say


def test_without_nodes_a_pod_is_requeued_on_a_new_node() -> None:
    assert decide(view([]), pod(), Rule(Preset(), FILTERS)).requeue_on == ClusterEvent.NODES


def test_a_decision_has_the_volume_plan_of_its_claims() -> None:
    cluster = view(NODES, objects=[storage_class(), claim()])
    found = decide(cluster, using("c"), Rule(Preset({"b": 1.0}), FILTERS))
    assert (found.node, found.volumes()) == ("b", VolumePlan("b", selects=("default/c",)))
    assert decide(cluster, pod(), Rule(Preset(), FILTERS)).volumes() is None
    unresolvable = decide(cluster, using("gone"), Rule(Preset(), FILTERS))
    assert (unresolvable.node, unresolvable.volumes()) == (None, None)
    assert (
        unresolvable.why
        == '0 of 3 nodes fit: VolumeBinding: persistentvolumeclaim "gone" not found'
    )


def test_pods_placed_one_after_the_other_see_each_other_and_their_volumes() -> None:
    zone, nodes = "zone", [node(n, labels={"zone": n}) for n in "abc"]
    terms = {"topologyKey": zone, "labelSelector": {"matchLabels": {"app": "web"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [terms]}
    shy = [
        pod(f"p{i}", labels={"app": "web"}, affinity={"podAntiAffinity": required})
        for i in range(4)
    ]
    decisions = decide_in_turn(view(nodes), shy, Rule(Preset(), FILTERS))
    assert sorted(str(d.node) for d, _ in decisions) == ["None", "a", "b", "c"]
    cluster = view(nodes, objects=[storage_class(), claim()])
    sharing = [using("c", name="first"), using("c", name="second")]
    found = [
        d.node for d, _ in decide_in_turn(cluster, sharing, Rule(Preset(), FILTERS, Random(1)))
    ]
    assert found[0] == found[1]
