"""Pods with too many constraints are rejected before they cost time."""

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.filters.inter_pod_affinity import inter_pod_affinity
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.kubeobjects.demands import MAX_CONSTRAINTS, MAX_VALUES, MAX_VOLUMES
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.strategies.kube_default import KubeDefault

from tests.attack.hostile_pods import KINDS, largest, manifest
from tests.bench.predicates import HOST
from tests.controller.builders import node, pod, view

SIZE = 300_000  # bytes, far over every limit
VOLUMES = [kind for kind in KINDS if "claims" in kind or kind == "disks"]
VALUES = [kind for kind in KINDS if "values" in kind or kind in ("labels", "host ports")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_over_a_limit_is_rejected_with_one_sentence(kind: str) -> None:
    made = manifest(kind, SIZE if kind not in VALUES else 2 * SIZE)
    read = read_pod(made)
    limit = MAX_VOLUMES if kind in VOLUMES else MAX_VALUES if kind in VALUES else MAX_CONSTRAINTS
    assert read.problem is not None
    assert read.problem.startswith(f"the pod has more than {limit} ")
    assert read.problem.endswith(", more than Leadline evaluates")
    demands = read.affinity, read.anti_affinity, read.spread, read.required_affinity
    assert not any(demands)
    decision = decide(view([node("n1")]), read, Rule(KubeDefault(), FILTERS))
    assert (decision.node, decision.why) == (None, read.problem)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_within_the_limits_is_evaluated(kind: str) -> None:
    read = read_pod(largest(kind, 12_000))
    assert read.problem is None
    nodes = [node(f"n{i}", labels={HOST: f"n{i}"}) for i in range(3)]
    decision = decide(view(nodes), read, Rule(KubeDefault(), FILTERS))
    assert decision.node or decision.why.startswith("0 of 3 nodes fit: ")


def test_a_pod_exactly_at_the_limit_is_allowed() -> None:
    # One of them for the resource `pods`.
    fits = {f"k{i}": "v" for i in range(MAX_CONSTRAINTS)}
    assert read_pod({"metadata": {"name": "p"}, "spec": {"nodeSelector": fits}}).problem is None
    over = {**fits, "one": "more"}
    assert read_pod({"metadata": {"name": "p"}, "spec": {"nodeSelector": over}}).problem


def test_a_running_pod_over_the_limit_is_counted_and_repels_all_pods() -> None:
    made = manifest("anti-affinity terms", SIZE)
    made["spec"]["nodeName"] = "n1"
    requests = {"cpu": "2", "memory": "1Gi"}
    made["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
    resident = read_pod(made)
    assert resident.requests["cpu"] == 2000
    assert [term.topology_key for term in resident.anti_affinity] == [HOST]
    nodes = [node(name, labels={HOST: name}) for name in ("n1", "n2")]
    result = inter_pod_affinity(view(nodes, assigned_pods=[resident]), pod("any"))
    assert result.passes.tolist() == [False, True]


def test_a_running_pod_with_too_many_volumes_keeps_its_anti_affinity() -> None:
    made = manifest("disks", SIZE)
    made["spec"] |= manifest("anti-affinity, the same term", 1_000)["spec"] | {"nodeName": "n1"}
    resident = read_pod(made)
    assert len(resident.disks) > MAX_VOLUMES
    assert resident.anti_affinity[0].selector
