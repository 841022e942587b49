"""API objects of a k3s server on small boards, and invalid ones."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import HostPort, Requirement, Taint, Toleration
from leadline_controller.kube.convert import Converter

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "pi-3",
        "uid": "0f6e4d0e-5d8c-4d1b-9a55-0b6f0c1f7f44",
        "resourceVersion": "88213",
        "creationTimestamp": "2026-03-02T08:11:40Z",
        "labels": {
            "beta.kubernetes.io/arch": "arm64",
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/hostname": "pi-3",
            "kubernetes.io/os": "linux",
            "leadline.dev/bandwidth-mbps": "94.5",
            "leadline.dev/tier": "edge",
            "node.kubernetes.io/instance-type": "k3s",
        },
        "annotations": {
            "flannel.alpha.coreos.com/backend-data": '{"VNI":1,"VtepMAC":"7e:2b:1f:00:aa:01"}',
            "k3s.io/node-args": '["agent"]',
        },
        "finalizers": ["wrangler.cattle.io/node"],
        "managedFields": [{"manager": "k3s", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "podCIDR": "10.42.2.0/24",
        "podCIDRs": ["10.42.2.0/24"],
        "providerID": "k3s://pi-3",
        "taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/disk-pressure",
                "effect": "NoExecute",
                "timeAdded": "2026-03-02T09:00:00Z",
            },
        ],
        "unschedulable": True,
    },
    "status": {
        "addresses": [{"type": "InternalIP", "address": "192.168.1.23"}],
        "allocatable": {
            "cpu": "4",
            "ephemeral-storage": "29592149815",
            "hugepages-2Mi": "0",
            "memory": "3884376Ki",
            "pods": "110",
        },
        "capacity": {"cpu": "4", "memory": "3884376Ki", "pods": "110"},
        "conditions": [
            {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [{"names": ["docker.io/library/nginx@sha256:aa"], "sizeBytes": 62939286}],
        "nodeInfo": {"architecture": "arm64", "kubeletVersion": "v1.35.2+k3s1"},
    },
}

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "camera-7c9d8b6f5-x2x9q",
        "generateName": "camera-7c9d8b6f5-",
        "namespace": "factory",
        "uid": "3a3f6b43-6d02-4c7e-8b3e-2f7a8f9a1c11",
        "resourceVersion": "90210",
        "labels": {"app": "camera", "pod-template-hash": "7c9d8b6f5"},
        "annotations": {
            "leadline.dev/user-node": "pi-3",
            "leadline.dev/data-mb": "12.5",
            "leadline.dev/profile-ms": '{"pi-3": 40, "cloud": 9.5}',
        },
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "camera-7c9d8b6f5",
                "uid": "5b7c",
                "controller": True,
            }
        ],
    },
    "spec": {
        "schedulerName": "leadline",
        "priority": 1000,
        "priorityClassName": "line",
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "serviceAccountName": "default",
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "room", "operator": "In", "values": ["a", "b"]}
                            ],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "NotIn", "values": ["pi-9"]}
                            ],
                        }
                    ]
                }
            }
        },
        "containers": [
            {
                "name": "camera",
                "image": "ghcr.io/factory/camera:2.1",
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"containerPort": 8554, "hostPort": 8554, "protocol": "UDP"}],
                "resources": {
                    "requests": {"cpu": "250m", "memory": "64Mi"},
                    "limits": {"memory": "128Mi"},
                },
                "volumeMounts": [
                    {"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}
                ],
            }
        ],
        "initContainers": [
            {
                "name": "proxy",
                "image": "ghcr.io/factory/proxy:1",
                "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "50m"}},
            }
        ],
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
        ],
        "volumes": [
            {
                "name": "token",
                "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
            }
        ],
    },
    "status": {"phase": "Pending", "qosClass": "Burstable"},
}


def changed(manifest: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """`manifest` with another value at a dotted path."""
    copied = copy.deepcopy(manifest)
    inner = copied
    *parents, last = path.split(".")
    for part in parents:
        inner = inner.setdefault(part, {})
    inner[last] = value
    return copied


def test_reads_a_node_of_k3s() -> None:
    node = Converter().node(NODE)

    assert node is not None
    assert (node.name, node.tier, node.bandwidth_mbps) == ("pi-3", "edge", 94.5)
    assert (node.ready, node.unschedulable) == (True, True)
    assert node.allocatable["cpu"] == 4000
    assert node.allocatable["memory"] == 3884376 * 1024
    assert node.allocatable["pods"] == 110
    assert node.taints == (
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
        Taint("node.kubernetes.io/disk-pressure", "", "NoExecute"),
    )


def test_reads_a_pod_of_a_deployment() -> None:
    pod = Converter().pod(POD)

    assert pod is not None
    assert (pod.key, pod.uid) == (
        "factory/camera-7c9d8b6f5-x2x9q",
        "3a3f6b43-6d02-4c7e-8b3e-2f7a8f9a1c11",
    )
    assert dict(pod.requests) == {"cpu": 300, "memory": 64 * 2**20, "pods": 1}
    assert (pod.priority, pod.scheduler_name) == (1000, "leadline")
    assert pod.host_ports == (HostPort("0.0.0.0", "UDP", 8554),)
    assert pod.required_affinity == (
        (
            Requirement("room", "In", ("a", "b")),
            Requirement("metadata.name", "NotIn", ("pi-9",), on_name=True),
        ),
    )
    assert pod.tolerations == (
        Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
    )
    assert (pod.annotations.user_node, pod.annotations.data_mb) == ("pi-3", 12.5)
    assert dict(pod.annotations.profile_ms) == {"pi-3": 40, "cloud": 9.5}
    assert (pod.problem, pod.node_name) == (None, None)
    assert (pod.finished, pod.terminating, pod.gated) == (False, False, False)


def test_a_node_without_a_bandwidth_label_has_an_unknown_bandwidth() -> None:
    node = Converter().node(changed(NODE, "metadata.labels", {"leadline.dev/tier": "cloud"}))

    assert node is not None
    assert (node.tier, node.bandwidth_mbps) == ("cloud", None)


def test_an_unreadable_node_takes_no_pods_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = changed(NODE, "status.allocatable.cpu", "four")
    convert = Converter()

    first, again = convert.node(broken), convert.node(broken)

    assert first == again
    assert first is not None
    assert (first.name, first.ready, first.unschedulable) == ("pi-3", False, True)
    assert first.allocatable == {}
    (message,) = caplog.messages
    assert "pi-3" in message
    assert "status.allocatable.cpu" in message


def test_a_fixed_node_that_breaks_again_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = changed(NODE, "status.allocatable.cpu", "four")
    convert = Converter()

    for manifest in (broken, NODE, broken):
        convert.node(manifest)

    assert len(caplog.messages) == 2


def test_an_unreadable_annotation_becomes_the_pods_problem() -> None:
    pod = Converter().pod(changed(POD, "metadata.annotations", {"leadline.dev/deadline-s": "soon"}))

    assert pod is not None
    assert "leadline.dev/deadline-s" in str(pod.problem)
    assert pod.requests["cpu"] == 300


def test_an_unreadable_pod_keeps_its_identity_and_gets_a_problem(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = changed(POD, "spec.nodeSelector", ["arm64"])

    pod = Converter().pod(broken)

    assert pod is not None
    assert (pod.key, pod.uid) == ("factory/camera-7c9d8b6f5-x2x9q", POD["metadata"]["uid"])
    assert pod.scheduler_name == "leadline"
    assert "spec.nodeSelector" in str(pod.problem)
    assert caplog.messages == []  # the event on the pod says it


def test_uncounted_requests_of_an_unreadable_pod_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on_node = changed(changed(POD, "spec.nodeSelector", ["arm64"]), "spec.nodeName", "pi-3")

    pod = Converter().pod(on_node)

    assert pod is not None
    assert pod.node_name == "pi-3"
    (message,) = caplog.messages
    assert "requests on node pi-3 are not counted" in message


def test_a_pod_with_an_unreadable_constraint_still_counts_its_requests() -> None:
    terms: list[dict[str, Any]] = [{}]
    unreadable = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    spec = {"nodeName": "n", "containers": [container], "affinity": unreadable}
    found = Converter().pod({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    assert found is not None
    assert (found.node_name, found.requests["cpu"], found.affinity) == ("n", 2000, ())
    assert found.problem is not None
    assert "topologyKey: expected the name" in found.problem


def test_an_object_without_a_name_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    convert = Converter()

    assert convert.node(changed(NODE, "metadata.name", None)) is None
    assert convert.pod(changed(POD, "metadata.name", 7)) is None
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert len(caplog.records) == 2


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_PATHS = [
    *("metadata", "metadata.name", "metadata.labels", "metadata.annotations", "metadata.uid"),
    *("metadata.deletionTimestamp", "metadata.namespace", "spec", "spec.taints", "spec.priority"),
    *("spec.unschedulable", "spec.containers", "spec.initContainers", "spec.tolerations"),
    *("spec.affinity", "spec.volumes", "spec.nodeSelector", "spec.overhead", "spec.nodeName"),
    *("spec.schedulingGates", "spec.topologySpreadConstraints", "spec.resourceClaims"),
    *("spec.schedulerName", "status", "status.allocatable", "status.conditions", "status.phase"),
    *("spec.affinity.nodeAffinity", "spec.resources"),
]


@given(path=st.sampled_from(_PATHS), value=_JSON)
def test_no_object_ends_the_watch(path: str, value: object) -> None:
    convert = Converter()

    node = convert.node(changed(NODE, path, value))
    pod = convert.pod(changed(POD, path, value))

    assert node is None or isinstance(node.name, str)
    assert pod is None or isinstance(pod.name, str)
