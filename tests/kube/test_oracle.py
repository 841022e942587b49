"""The oracle's results for small cases whose answer is in Kubernetes' documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.kube.objects import Object, node, pod
from tests.kube.oracle import Oracle, OracleError, fitting
from tests.kube.oracle_cases import ExpectedPods, check, container, resident

pytestmark = pytest.mark.cluster


def node_affinity(key: str, operator: str, *values: str) -> Object:
    wanted = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_an_empty_pod_fits_all_nodes_and_every_plugin_ran(oracle: Oracle) -> None:
    verdicts = oracle.verdicts({"nodes": [node("n1"), node("n2")], "pod": pod("p")})
    assert fitting(verdicts) == {"n1", "n2"}
    assert set(verdicts["n1"]) == {
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeName",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "SchedulingGates",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }


def test_unschedulable_and_taints(oracle: Oracle) -> None:
    taint = {"key": "dedicated", "value": "radio", "effect": "NoSchedule"}
    soft = {"key": "slow", "effect": "PreferNoSchedule"}
    nodes = [node("n1", unschedulable=True), node("n2", taints=[taint]), node("n3", taints=[soft])]
    expected: dict[str, set[str]] = {"n1": {"NodeUnschedulable"}, "n2": set(), "n3": set()}
    tolerates = [{"key": "dedicated", "operator": "Exists"}]
    check(oracle, expected, nodes=nodes, pod=pod("p", tolerations=tolerates))
    expected["n2"] = {"TaintToleration"}
    check(oracle, expected, nodes=nodes, pod=pod("p"))


def test_a_scheduling_gate_rejects_every_node(oracle: Oracle) -> None:
    gated = pod("p", schedulingGates=[{"name": "example.com/wait"}])
    expected = {"n1": {"SchedulingGates"}, "n2": {"SchedulingGates"}}
    check(oracle, expected, nodes=[node("n1"), node("n2")], pod=gated)


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("Gt", ["4"], {"n8"}),
        ("Lt", ["8"], {"n4"}),
        ("In", ["4", "5"], {"n4"}),
        ("NotIn", ["4"], {"n8", "none"}),
        ("Exists", [], {"n4", "n8"}),
        ("DoesNotExist", [], {"none"}),
    ],
)
def test_node_affinity(
    oracle: Oracle, operator: str, values: Sequence[str], fits: set[str]
) -> None:
    nodes = [node("n4", labels={"cores": "4"}), node("n8", labels={"cores": "8"}), node("none")]
    wanting = pod("p", affinity=node_affinity("cores", operator, *values))
    expected = {n: set() if n in fits else {"NodeAffinity"} for n in ("n4", "n8", "none")}
    check(oracle, expected, nodes=nodes, pod=wanting)


def test_a_node_name_rejects_all_other_nodes(oracle: Oracle) -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    affinity = {"nodeAffinity": requiring_nodes({"matchFields": [field]})}
    expected: ExpectedPods = {"n1": {"NodeAffinity"}, "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pod=pod("p", affinity=affinity))


def requiring_nodes(*terms: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def port(number: int, host_ip: str | None = None, protocol: str | None = None) -> Object:
    given = {"hostIP": host_ip, "protocol": protocol}
    ports = {"containerPort": number, "hostPort": number, **{k: v for k, v in given.items() if v}}
    return container("main", "1m", ports=[ports])


@pytest.mark.parametrize(
    ("taken", "wanted", "conflict"),
    [
        (port(80), port(80), True),
        (port(80), port(81), False),
        (port(80), port(80, protocol="UDP"), False),
        (port(80, "127.0.0.1"), port(80, "127.0.0.2"), False),
        (port(80, "127.0.0.1"), port(80), True),
        (port(80, "0.0.0.0"), port(80, "127.0.0.1"), True),
    ],
)
def test_host_ports(oracle: Oracle, taken: Object, wanted: Object, conflict: bool) -> None:
    there = resident("r", "n1", containers=[taken])
    expected = {"n1": {"NodePorts"} if conflict else set(), "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pods=[there], pod=pod("p", containers=[wanted]))


@pytest.mark.parametrize(
    ("asking", "cpu"),
    [
        (pod("p", cpu="2"), 2),
        (pod("p", containers=[container("a", "1"), container("b", "1")]), 2),
        (pod("p", initContainers=[container("i", "3")], containers=[container("a", "1")]), 3),
        # A sidecar adds to the containers and to the later init containers.
        (
            pod(
                "p",
                initContainers=[
                    container("side", "1", restartPolicy="Always"),
                    container("i", "3"),
                ],
                containers=[container("a", "2")],
            ),
            4,
        ),
        (pod("p", cpu="2", overhead={"cpu": "1"}, runtimeClassName="vm"), 3),
        # A limit is the default for a missing request.
        (
            pod("p", containers=[{**container("a", "0"), "resources": {"limits": {"cpu": "2"}}}]),
            2,
        ),
        (pod("p", resources={"requests": {"cpu": "3"}}, containers=[container("a", "1")]), 3),
    ],
)
def test_effective_requests_of_a_pod(oracle: Oracle, asking: Object, cpu: int) -> None:
    nodes = [node("enough", cpu=str(cpu)), node("less", cpu=f"{cpu * 1000 - 1}m")]
    check(oracle, {"enough": set(), "less": {"NodeResourcesFit"}}, nodes=nodes, pod=asking)


def test_pods_on_a_node_count_until_they_end(oracle: Oracle) -> None:
    ended = {**resident("r2", "n2", cpu="3"), "status": {"phase": "Succeeded"}}
    assigned_pods = [resident("r1", "n1", cpu="3"), ended]
    expected: ExpectedPods = {"n1": {"NodeResourcesFit"}, "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pods=assigned_pods, pod=pod("p", cpu="2"))


def test_a_pod_in_a_resize_counts_the_larger_amount(oracle: Oracle) -> None:
    """It now requests 1 CPU, but its node still allocates 3."""
    shrinking = resident("r", "n1", cpu="1")
    shrinking["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "image": "test",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": {"cpu": "3"},
                "resources": {"requests": {"cpu": "2"}},
            }
        ],
    }
    for asked, refused in (("1", False), ("2", True)):
        expected = {"n1": {"NodeResourcesFit"} if refused else set()}
        check(oracle, expected, nodes=[node("n1")], pods=[shrinking], pod=pod("p", cpu=asked))


def test_the_number_of_pods_and_extended_resources(oracle: Oracle) -> None:
    with_gpu = node("gpu")
    with_gpu["status"]["allocatable"] = {**with_gpu["status"]["allocatable"], "example.com/gpu": 1}
    gpu = {"limits": {"example.com/gpu": 1}}
    wanting = pod("p", containers=[{"name": "main", "image": "test", "resources": gpu}])
    expected: ExpectedPods = {"gpu": set(), "plain": {"NodeResourcesFit"}}
    check(oracle, expected, nodes=[with_gpu, node("plain")], pod=wanting)
    full = [resident("r", "n1")]
    check(oracle, {"n1": {"NodeResourcesFit"}}, nodes=[node("n1", pods=1)], pods=full, pod=pod("p"))


def test_a_pod_fits_only_nodes_that_declare_its_features(oracle: Oracle) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    restarting = container("main", "1m", restartPolicy="Never", restartPolicyRules=[rule])
    able = node("able")
    able["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    expected: ExpectedPods = {"able": set(), "plain": {"NodeDeclaredFeatures"}}
    asking = pod("p", containers=[restarting], restartPolicy="Never")
    check(oracle, expected, nodes=[able, node("plain")], pod=asking)


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"nodes": []}, 'no "pod"'),
        ({"knots": []}, 'no "knots"'),
        ({"pod": pod("p", colour="red")}, "colour"),
        ({"pod": pod("Not a name")}, "metadata.name"),
        ({"pod": resident("p", "n1")}, "on a node already"),
        ({"pod": pod("p"), "nodes": [{"metadata": 7}]}, r"nodes\[0\]"),
        ({"pod": pod("p"), "nodes": {}}, "nodes"),
    ],
)
def test_an_impossible_case_is_rejected(
    oracle: Oracle, case: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(OracleError, match=complaint):
        oracle.verdicts(case)
