from typing import Any

import pytest
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    HostPort,
    Node,
    Taint,
    Toleration,
)
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.parsing.fields import FieldError

from tests.controller.builders import GIB, manifest
from tests.controller.kubeobjects.constraints import SPREAD, affinity, expressing, pod_affinity

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


@pytest.mark.parametrize(
    ("status", "ips"),
    [
        ({}, ()),
        ({"podIP": "10.42.1.5"}, ("10.42.1.5",)),
        (
            {"podIP": "10.42.1.5", "podIPs": [{"ip": "10.42.1.5"}, {"ip": "FD00:1:0::5"}]},
            ("10.42.1.5", "fd00:1::5"),
        ),
        ({"podIP": "here", "podIPs": [{"ip": "224.0.0.1"}, {}, {"ip": "fd00::5"}]}, ("fd00::5",)),
        ({"podIP": "", "podIPs": None}, ()),
    ],
)
def test_a_pod_has_all_its_addresses_in_canonical_form(
    status: dict[str, object], ips: tuple[str, ...]
) -> None:
    pod = read_pod({"metadata": {"name": "p"}, "status": status})
    assert (pod.ips, pod.ip) == (ips, ips[0] if ips else "")


def test_a_node_has_its_images_by_each_of_their_names() -> None:
    names = ["docker.io/library/web@sha256:1", "docker.io/library/web:1"]
    listed = [{"names": names, "sizeBytes": 42_000_000}, {"names": None, "sizeBytes": 7}]
    node = read_node({"metadata": {"name": "n"}, "status": {"images": listed}})
    assert [image.name for image in node.images] == names
    assert node.image_layers == {names[0]}


@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_only_ready_true_is_ready(status: str | None) -> None:
    conditions = [] if status is None else [{"type": "Ready", "status": status}]
    node = read_node({"metadata": {"name": "n"}, "status": {"conditions": conditions}})
    assert not node.ready


@pytest.mark.parametrize("label", ["fast", "nan", "inf", "-1", ""])
def test_an_invalid_bandwidth_label_is_ignored(label: str) -> None:
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
    assert found.annotations.data_mb == 5.0
    assert (found.gated, found.terminating, found.finished) == (True, True, False)
    assert found.problem is None


def test_a_minimal_pod_has_kubernetes_defaults() -> None:
    found = read_pod({"metadata": {"name": "p"}})
    assert (found.key, found.scheduler_name) == ("default/p", "default-scheduler")
    assert found.requests == {PODS: 1}
    assert found.required_affinity is None
    assert found.node_name is None


T = "2030-01-01T00:00:%02dZ"
RAN = {"terminated": {"startedAt": T % 3, "finishedAt": T % 8}}


@pytest.mark.parametrize(
    ("states", "restarts", "phase", "runs_s", "ended_s"),
    [
        ([], 0, "Pending", None, None),
        ([{"waiting": {"reason": "ContainerCreating"}}], 0, "Pending", None, None),
        ([{"running": {"startedAt": T % 4}}, {"waiting": {}}], 0, "Pending", None, None),
        ([{"running": {"startedAt": T % 4}}, RAN], 0, "Running", 4, None),
        ([{"waiting": {"reason": "CrashLoopBackOff"}}], 3, "Running", 1, None),
        ([{"running": {"startedAt": T % 40}}], 3, "Running", 1, None),
        ([{"running": {"startedAt": None}}], 0, "Running", None, None),
        ([RAN, RAN], 0, "Succeeded", 3, 8),
    ],
)
def test_it_is_known_since_when_a_pod_runs(
    states: list[Any], restarts: int, phase: str, runs_s: int | None, ended_s: int | None
) -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": T % 0}
    status = {
        "phase": phase,
        "startTime": T % 1,
        "conditions": [{"type": "Ready", "status": "False"}, bound],
        "containerStatuses": [
            {"name": str(number), "restartCount": restarts, "state": state}
            for number, state in enumerate(states)
        ],
    }
    pod = read_pod({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status})
    assert pod.bound_s is not None
    at_s = {None: None} | {each: pod.bound_s + each for each in range(60)}
    assert (pod.runs_s, pod.ended_s) == (at_s[runs_s], at_s[ended_s])
    assert read_pod({"metadata": {"name": "p"}}).bound_s is None


def started(at_s: dict[str, int], began_s: int = 1, runs_s: int = 30, restarts: int = 0) -> Any:
    """A pod with these conditions."""
    status = {
        "startTime": T % began_s,
        "conditions": [
            {"type": each, "status": "True", "lastTransitionTime": T % at}
            for each, at in at_s.items()
        ],
        "containerStatuses": [
            {"name": "c", "restartCount": restarts, "state": {"running": {"startedAt": T % runs_s}}}
        ],
    }
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status}


SANDBOX = "PodReadyToStartContainers"


@pytest.mark.parametrize(
    ("manifest", "starting_s"),
    [
        (started({SANDBOX: 3, "Ready": 34}), 6.0),  # 27 s are those of its pulls
        (started({"Ready": 34}), None),  # a kubelet before 1.29
        (started({SANDBOX: 3}), None),  # not ready yet
        (started({SANDBOX: 3, "Ready": 34}, restarts=1), None),
        (started({SANDBOX: 3, "Ready": 29}), None),  # its board's clock was set meanwhile
        (started({SANDBOX: 3, "Ready": 34}, began_s=4), None),
    ],
)
def test_it_is_known_how_long_a_pod_took_to_start(manifest: Any, starting_s: float | None) -> None:
    pod = read_pod(manifest)
    assert pod.starting_s == starting_s
    assert pod.restarted == bool(manifest["status"]["containerStatuses"][0]["restartCount"])


@pytest.mark.parametrize(("phase", "finished"), [("Succeeded", True), ("Failed", True)])
def test_succeeded_and_failed_pods_are_finished(phase: str, finished: bool) -> None:
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
        # An init container frees its ports when it ends; a sidecar keeps them.
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


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims is not supported"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "schedulingGroup is not supported"),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]}, None),
        ({"volumes": [{"name": "data", "nfs": {"server": "s", "path": "/"}}]}, None),
        (
            {"volumes": [{"name": "d", "hologram": {}}]},
            "volumes of kind hologram are not supported",
        ),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, None),
    ],
)
def test_an_unsupported_field_is_a_problem_of_the_pod(
    spec: dict[str, Any], problem: str | None
) -> None:
    found = read_pod(manifest(**spec)).problem
    assert found is None if problem is None else problem in (found or "")


def test_an_invalid_annotation_is_a_problem_of_the_pod() -> None:
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
            {"affinity": pod_affinity({"labelSelector": {}})},
            "topologyKey: expected the name of a node label, got nothing",
        ),
        (
            {"affinity": pod_affinity({"topologyKey": ""})},
            "topologyKey: expected the name of a node label",
        ),
        (
            {
                "affinity": pod_affinity(
                    {"topologyKey": "z", "labelSelector": expressing("Gt", "1")}
                )
            },
            "labelSelector: expected a label selector, got the invalid requirement app Gt ['1']",
        ),
        (
            {"affinity": pod_affinity({"topologyKey": "z", "labelSelector": expressing("In")})},
            "labelSelector: expected a label selector, got the invalid requirement app In []",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z"}]},
            "maxSkew: expected a whole number",
        ),
        (
            {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "Sometimes"}]},
            "whenUnsatisfiable: expected DoNotSchedule or ScheduleAnyway",
        ),
        (
            {"topologySpreadConstraints": [{**SPREAD, "nodeTaintsPolicy": "Maybe"}]},
            "nodeTaintsPolicy: expected Honor or Ignore",
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
            "claimName: expected text, got nothing",
        ),
        (
            {"affinity": affinity({"matchFields": [{"key": "spec.x", "operator": "In"}]})},
            "key: expected metadata.name, the only field there is",
        ),
    ],
)
def test_what_the_api_server_would_reject_is_an_error_that_names_the_field(
    spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(FieldError) as caught:
        read_pod({"metadata": {"name": "p"}, "spec": spec})
    assert str(caught.value).startswith("pod.")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "networks"),
    [
        ({"podCIDR": "10.42.1.0/24", "podCIDRs": ["10.42.1.0/24"]}, ("10.42.1.0/24",)),
        ({"podCIDRs": None}, ()),
        ({}, ()),
    ],
)
def test_a_node_has_the_networks_of_its_pods(
    spec: dict[str, Any], networks: tuple[str, ...]
) -> None:
    assert read_node({"metadata": {"name": "n1"}, "spec": spec}).pod_networks == networks
