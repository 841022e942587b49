"""The choice of node and victims; tests/kube/test_preemption_choice.py compares it with
kube-scheduler's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import DisruptionBudget
from leadline_controller.framework.cycle import Rule, feasible_nodes, filtered
from leadline_controller.framework.model import Pod
from leadline_controller.framework.preemption import Candidate, best_candidates, find_candidates
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.strategies.kube_default import KubeDefault

from tests.controller.builders import manifest, node, view

WEB = (Requirement("app", "In", ("web",)),)


def resident(
    name: str, on: str, priority: int = 0, *, cpu: str = "1", started: int = 0, **fields: Any
) -> Pod:
    made = manifest(name, requests={"cpu": cpu}, nodeName=on, priority=priority, **fields)
    made["metadata"]["uid"] = f"uid-{name}"
    made["status"] = {"startTime": f"2026-01-01T00:00:{started:02}Z"}
    return read_pod(made)


def preemptor(cpu: str = "1", priority: int = 10, **fields: Any) -> Pod:
    return read_pod(manifest("p", requests={"cpu": cpu}, priority=priority, **fields))


def cluster(pods: Sequence[Pod], cores: float = 2, names: Iterable[str] = "abc") -> ClusterView:
    labels = {"kubernetes.io/hostname": "", "zone": "z"}
    nodes = [
        node(name, cores=cores, ready=True, labels={**labels, "kubernetes.io/hostname": name})
        for name in names
    ]
    empty = view(nodes)
    for each in pods:
        empty = empty.with_placement(each, empty.table.index[each.node_name or ""])
    return empty


def candidates(
    wanted: Pod, pods: Sequence[Pod], budgets: Sequence[DisruptionBudget] = (), **fields: Any
) -> dict[str, tuple[list[str], int]]:
    around = cluster(pods, **fields)
    results = filtered(around, wanted, FILTERS)
    assert not feasible_nodes(around, results).size
    placed = [(each, around.table.index[each.node_name or ""]) for each in pods]
    found = find_candidates(
        around, wanted, Rule(KubeDefault(), FILTERS, Random(1)), results, placed, budgets
    )
    names = around.table.names
    return {
        names[each.node]: ([victim.name for victim in each.victims], each.violations)
        for each in found
    }


def test_the_least_important_pods_go_and_only_as_many_as_needed() -> None:
    pods = [
        resident("a-old", "a", started=1, cpu="500m"),
        resident("a-new", "a", started=2, cpu="500m"),
        resident("a-high", "a", 5),
        resident("b-equal", "b", 10, cpu="2"),
        resident("c-whole", "c", cpu="2"),
    ]
    assert candidates(preemptor("500m"), pods) == {"a": (["a-new"], 0), "c": (["c-whole"], 0)}
    assert candidates(preemptor("1"), pods)["a"] == (["a-old", "a-new"], 0)
    assert candidates(preemptor("2"), pods)["a"] == (["a-high", "a-old", "a-new"], 0)


def test_a_pod_without_a_start_is_the_newest() -> None:
    new = replace(resident("new", "a"), started_s=None)
    pods = [new, resident("old", "a", started=59)]
    assert candidates(preemptor(), pods, names="a") == {"a": (["new"], 0)}


def test_a_node_that_lacks_more_than_room_is_no_candidate() -> None:
    pods = [resident("on-a", "a", cpu="2"), resident("on-b", "b", cpu="2")]
    wanted = preemptor(nodeSelector={"kubernetes.io/hostname": "a"})
    assert set(candidates(wanted, pods, names="ab")) == {"a"}
    assert candidates(preemptor("3"), pods, names="ab") == {}


@pytest.mark.parametrize(("allowed", "victims"), [(0, (["free"], 0)), (1, (["kept"], 0))])
def test_pods_whose_budget_holds_them_come_back_first(
    allowed: int, victims: tuple[list[str], int]
) -> None:
    """Without the budget the newer pod would go, which it protects."""
    pods = [
        resident("free", "a", started=1, labels={"app": "db"}),
        resident("kept", "a", started=2, labels={"app": "web"}),
    ]
    budget = DisruptionBudget("default", "web", WEB, allowed)
    assert candidates(preemptor(), pods, [budget], names="a") == {"a": victims}


def test_a_budget_is_only_preferred() -> None:
    pods = [resident(f"web-{i}", "a", started=i, labels={"app": "web"}) for i in (1, 2)]
    budget = DisruptionBudget("default", "web", WEB, 1)
    # The newer one is beyond what the budget allows once the older one is gone.
    assert candidates(preemptor("2"), pods, [budget], names="a") == {"a": (["web-1", "web-2"], 1)}
    counted = DisruptionBudget("default", "web", WEB, 1, frozenset({"web-1"}))
    assert candidates(preemptor("2"), pods, [counted], names="a")["a"][1] == 0


def test_an_empty_selector_and_a_pod_without_labels_match_no_budget() -> None:
    pods = [resident("bare", "a", cpu="2")]
    budgets = [
        DisruptionBudget("default", "all", (), 0),
        DisruptionBudget("default", "none", (Requirement("app", "DoesNotExist"),), 0),
    ]
    assert candidates(preemptor(), pods, budgets, names="a") == {"a": (["bare"], 0)}


def test_the_pods_of_other_nodes_stay_where_a_filter_looks_at_them() -> None:
    """The pod repels `web` in the zone. Only where all of them are on one node can it go there."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    wanted = preemptor(affinity={"podAntiAffinity": required})
    one = resident("one", "a", cpu="100m", labels={"app": "web"})
    other = resident("other", "b", cpu="100m", labels={"app": "web"})
    assert candidates(wanted, [one, other]) == {}
    assert candidates(wanted, [one]) == {"a": (["one"], 0)}


def test_among_many_nodes_a_tenth_is_looked_at_and_at_least_a_hundred() -> None:
    """kube-scheduler's minCandidateNodesAbsolute and minCandidateNodesPercentage."""
    names = [f"n{number}" for number in range(120)]
    pods = [resident(f"on-{name}", name, cpu="2") for name in names]
    found = candidates(preemptor(), pods, names=names)
    assert len(found) == 100
    assert set(found) < set(names)
    assert all(victims == [f"on-{name}"] for name, (victims, _) in found.items())


@pytest.mark.parametrize(("zones", "least"), [(120, 80), (210, 100)])
def test_where_a_filter_looks_at_other_nodes_many_are_still_looked_at_one_by_one(
    zones: int, least: int
) -> None:
    """Two full nodes in each zone. The pod repels `web` in the zone, which every third zone has on
    both nodes, so no eviction on one of them helps. The others have it on the first alone."""
    nodes = [
        node(f"n{zone}-{at}", cores=2, ready=True, labels={"zone": f"z{zone}"})
        for zone in range(zones)
        for at in (0, 1)
    ]
    around = view(nodes)
    pods: list[tuple[Pod, int]] = []
    helped: set[int] = set()
    for at, each in enumerate(nodes):
        pods.append((resident(f"full-{each.name}", each.name, cpu="1900m"), at))
        zone, is_second = divmod(at, 2)
        if zone % 3 == 0 or not is_second:
            web = resident(f"web-{each.name}", each.name, cpu="100m", labels={"app": "web"})
            pods.append((web, at))
        if zone % 3 and not is_second:
            helped.add(at)
    for placed in pods:
        around = around.with_placement(*placed)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    wanted = preemptor(affinity={"podAntiAffinity": required})
    results = filtered(around, wanted, FILTERS)
    found = find_candidates(
        around, wanted, Rule(KubeDefault(), FILTERS, Random(1)), results, pods, ()
    )
    assert least <= len(found) <= len(helped)
    assert {candidate.node for candidate in found} <= helped
    for candidate in found:
        name = nodes[candidate.node].name
        assert {victim.name for victim in candidate.victims} == {f"full-{name}", f"web-{name}"}


def test_the_node_that_is_nominated_already_is_among_those_looked_at() -> None:
    """Else victims that went there before the search was repeated would have gone in vain."""
    names = [f"n{number}" for number in range(300)]
    pods = [resident(f"on-{name}", name, cpu="2") for name in names]
    around = cluster(pods, names=names)
    wanted = preemptor()
    results = filtered(around, wanted, FILTERS)
    placed = [(each, around.table.index[each.node_name or ""]) for each in pods]
    for seed in range(5):
        found = find_candidates(
            around,
            wanted,
            Rule(KubeDefault(), FILTERS, Random(seed)),
            results,
            placed,
            (),
            first=250,
        )
        assert found[0].node == 250


def test_as_long_as_all_victims_are_held_by_budgets_more_nodes_are_looked_at() -> None:
    names = [f"n{number}" for number in range(250)]
    pods = [
        resident(f"on-{name}", name, cpu="2", labels={"app": "web"} if name != "n249" else {})
        for name in names
    ]
    budget = DisruptionBudget("default", "web", WEB, 0, frozenset())
    found = candidates(preemptor(), pods, [budget], names=names)
    assert found["n249"] == (["on-n249"], 0)


def test_room_for_a_nominated_pod_of_equal_priority_is_no_room() -> None:
    waiting = replace(preemptor("2"), name="w", uid="uid-w")
    pods = [resident("r", "a", cpu="2"), resident("s", "b", cpu="2")]
    around = replace(cluster(pods, names="ab"), nominated=((waiting, 0),))
    for priority, nodes in ((10, [1]), (11, [0, 1])):
        wanted = preemptor("2", priority)
        results = filtered(around, wanted, FILTERS)
        placed = list(zip(pods, (0, 1), strict=True))
        found = find_candidates(
            around, wanted, Rule(KubeDefault(), FILTERS, Random(1)), results, placed, ()
        )
        assert [each.node for each in found] == nodes


def candidate(number: int, *victims: tuple[int, int], violations: int = 0) -> Candidate:
    """Of victims as (priority, started)."""
    pods = [resident(f"v{i}", "a", p, started=s) for i, (p, s) in enumerate(victims)]
    return Candidate(number, tuple(pods), violations)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (candidate(1, (9, 0), (9, 0)), candidate(2, (0, 0), violations=1)),
        (candidate(1, (1, 0), (1, 0), (1, 0)), candidate(2, (2, 0))),
        (candidate(1, (2, 0), (0, 0)), candidate(2, (2, 0), (1, 0))),
        (candidate(1, (2, 0)), candidate(2, (2, 0), (-5, 0))),
        (candidate(1, (-5, 0)), candidate(2, (-5, 0), (-5, 0))),
        (candidate(1, (2, 9), (0, 1)), candidate(2, (2, 8), (0, 5))),
    ],
)
def test_candidates_are_compared_rule_by_rule(better: Candidate, worse: Candidate) -> None:
    assert best_candidates([worse, better]) == [better]
    tied = Candidate(3, better.victims, better.violations)
    assert best_candidates([worse, better, tied]) == [better, tied]


def test_of_no_candidates_none_is_best() -> None:
    assert best_candidates([]) == []
