from typing import Any

import pytest
from leadline_controller.core.fields import FieldError
from leadline_controller.core.manifest import read_node, read_pod
from leadline_controller.core.model import (
    CPU,
    MEMORY,
    PODS,
    HostPort,
    Node,
    Requirement,
    Taint,
    Toleration,
)

from tests.controller.builders import GIB, manifest

NODE = {
    "metadata": {
        "name": "pi-1",
        "labels": {"leadline.dev/tier": "edge", "leadline.dev/bandwidth-mbps": "100"},
    },
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "e", "effect": "x"}],
    },
    "status": {
        "allocatable": {"cpu": "3900m", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_reads_a_node() -> None:
    assert read_node(NODE) == Node(
        name="pi-1",
        allocatable={CPU: 3900, MEMORY: 8 * GIB, PODS: 110},
        labels={"leadline.dev/tier": "edge", "leadline.dev/bandwidth-mbps": "100"},
        taints=(Taint("k", "v", "NoSchedule"), Taint("e", "", "x")),
        unschedulable=True,
        ready=True,
        tier="edge",
        bandwidth_mbps=100.0,
    )


@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_only_ready_true_is_ready(status: str | None) -> None:
    conditions = [] if status is None else [{"type": "Ready", "status": status}]
    node = read_node({"metadata": {"name": "n"}, "status": {"conditions": conditions}})
    assert not node.ready


@pytest.mark.parametrize("label", ["fast", "nan", "inf", "-1", ""])
def test_a_bandwidth_label_that_is_no_number_says_nothing(label: str) -> None:
    labels = {"leadline.dev/bandwidth-mbps": label}
    assert read_node({"metadata": {"name": "n", "labels": labels}}).bandwidth_mbps is None


def test_reads_a_pod() -> None:
    found = read_pod(
        {
            "metadata": {
                "name": "web-1",
                "namespace": "shop",
                "uid": "u1",
                "labels": {"app": "web"},
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"leadline.dev/data-mb": "5"},
            },
            "spec": {
                "schedulerName": "leadline",
                "priority": -5,
                "nodeName": "n1",
                "nodeSelector": {"disk": "ssd"},
                "schedulingGates": [{"name": "g"}],
                "tolerations": [{"key": "k", "operator": ""}, {"operator": "Exists"}],
                "containers": [
                    {"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}
                ],
            },
            "status": {"phase": "Running"},
        }
    )
    assert (found.key, found.uid, found.labels) == ("shop/web-1", "u1", {"app": "web"})
    assert found.requests == {CPU: 1000, PODS: 1}
    assert found.limits == {}
    assert (found.scheduler_name, found.priority, found.node_name) == ("leadline", -5, "n1")
    assert found.node_selector == {"disk": "ssd"}
    assert found.tolerations == (Toleration("k", "Equal"), Toleration("", "Exists"))
    assert found.images == ("web:1",)
    assert found.hints.data_mb == 5.0
    assert (found.gated, found.terminating, found.finished) == (True, True, False)
    assert found.problem is None


def test_a_bare_pod_has_kubernetes_defaults() -> None:
    found = read_pod({"metadata": {"name": "p"}})
    assert (found.key, found.scheduler_name) == ("default/p", "default-scheduler")
    assert found.requests == {PODS: 1}
    assert found.required_affinity is None
    assert found.node_name is None


@pytest.mark.parametrize(("phase", "finished"), [("Succeeded", True), ("Failed", True)])
def test_ended_pods_are_finished(phase: str, finished: bool) -> None:
    assert read_pod({"metadata": {"name": "p"}, "status": {"phase": phase}}).finished is finished


def ports(**spec: Any) -> tuple[HostPort, ...]:
    return read_pod({"metadata": {"name": "p"}, "spec": spec}).host_ports


def port(**fields: Any) -> dict[str, Any]:
    return {"name": "c", "ports": [fields]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [port(containerPort=80)]}, ()),
        ({"containers": [port(hostPort=80)]}, (HostPort("0.0.0.0", "TCP", 80),)),
        (
            {"containers": [port(hostPort=53, protocol="UDP", hostIP="10.0.0.1")]},
            (HostPort("10.0.0.1", "UDP", 53),),
        ),
        ({"containers": [port(hostPort=80, hostIP="")]}, (HostPort("0.0.0.0", "TCP", 80),)),
        # On the host's network every container port is a host port.
        (
            {"hostNetwork": True, "containers": [port(containerPort=80)]},
            (HostPort("0.0.0.0", "TCP", 80),),
        ),
        # An init container gives its ports back; a sidecar holds them.
        ({"containers": [], "initContainers": [port(hostPort=80)]}, ()),
        (
            {
                "containers": [],
                "initContainers": [{**port(hostPort=80), "restartPolicy": "Always"}],
            },
            (HostPort("0.0.0.0", "TCP", 80),),
        ),
    ],
)
def test_host_ports(spec: dict[str, Any], expected: tuple[HostPort, ...]) -> None:
    assert ports(**spec) == expected


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_required_node_affinity_is_a_list_of_terms() -> None:
    terms = affinity(
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    )
    assert read_pod(manifest(affinity=terms)).required_affinity == (
        (Requirement("zone", "In", ("a", "b")),),
        (Requirement("metadata.name", "In", ("n1",), on_name=True),),
        (),
    )


def test_preferred_affinity_demands_nothing() -> None:
    preferred: dict[str, Any] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}
    }
    found = read_pod(manifest(affinity=preferred))
    assert (found.required_affinity, found.problem) == (None, None)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, None),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, None),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
    ],
)
def test_what_is_not_modelled_is_a_problem_and_never_guessed(
    spec: dict[str, Any], problem: str | None
) -> None:
    found = read_pod(manifest(**spec)).problem
    assert found is None if problem is None else problem in (found or "")


def test_an_annotation_that_cannot_be_read_is_a_problem() -> None:
    problem = read_pod(manifest(annotations={"data-mb": "much"})).problem
    assert problem is not None
    assert problem.startswith("annotation leadline.dev/data-mb: expected a number")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": [{"resources": {"requests": {"cpu": "x"}}}]}, "requests.cpu: 'x' is no"),
        ({"containers": {}}, "pod.spec.containers: expected a list"),
        ({"priority": "high"}, "pod.spec.priority: expected a whole number"),
        ({"containers": [port(hostPort=70000)]}, "hostPort: expected a whole number from 0"),
        ({"containers": [port(hostPort=80.5)]}, "hostPort: expected a whole number from 0"),
        ({"nodeSelector": {"a": 1}}, "pod.spec.nodeSelector.a: expected text, got 1"),
        (
            {"affinity": affinity({"matchExpressions": [{"key": "a", "operator": "Like"}]})},
            "operator: expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, got text 'Like'",
        ),
        (
            {"affinity": affinity({"matchFields": [{"key": "spec.x", "operator": "In"}]})},
            "key: expected metadata.name, the only field there is",
        ),
    ],
)
def test_what_the_api_server_would_refuse_is_an_error_with_its_place(
    spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(FieldError) as caught:
        read_pod({"metadata": {"name": "p"}, "spec": spec})
    assert str(caught.value).startswith("pod.")
    assert message in str(caught.value)
