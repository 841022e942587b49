"""A snapshot holds what decisions read, and nothing else of what the API server shows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.ports import Relisted
from leadline_controller.kube.convert import Converter
from leadline_controller.kubeobjects.cluster_objects import READERS
from leadline_controller.snapshot.capture import capture
from leadline_controller.snapshot.snapshot import read_snapshot
from leadline_controller.snapshot.writing import write_snapshot
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

SECRET = "hush"
PRIVATE: dict[str, Any] = {
    "env": [{"name": f"{SECRET}-NAME", "value": f"{SECRET}-value"}],
    "envFrom": [{"secretRef": {"name": f"{SECRET}-from"}}],
    "command": [f"{SECRET}-command"],
    "args": [f"--password={SECRET}"],
    "volumeMounts": [{"name": "s", "mountPath": f"/{SECRET}"}],
    "livenessProbe": {"exec": {"command": [f"{SECRET}-probe"]}},
    "workingDir": f"/{SECRET}",
    "lifecycle": {"preStop": {"exec": {"command": [f"{SECRET}-stop"]}}},
}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """As the API server sends it, with a secret in each field that is nobody's business."""
    container = {"name": f"{SECRET}-container", "image": "web:1", **PRIVATE}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{SECRET}"}}',
                "example.com/token": SECRET,
                "leadline.dev/user-node": "n1",
                "leadline.dev/unknown": SECRET,
            },
            "managedFields": [{"manager": SECRET}],
            "finalizers": [f"{SECRET}/finalizer"],
        },
        "spec": {
            "containers": [container],
            "initContainers": [{**container, "name": "i"}],
            "ephemeralContainers": [{**container, "name": "e"}],
            "volumes": [
                {"name": SECRET, "secret": {"secretName": f"{SECRET}-secret"}},
                {"name": f"{SECRET}-map", "configMap": {"name": f"{SECRET}-map"}},
                {"name": f"{SECRET}-path", "hostPath": {"path": f"/{SECRET}"}},
                {"name": f"{SECRET}-nfs", "nfs": {"server": SECRET, "path": SECRET}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            ],
            "imagePullSecrets": [{"name": f"{SECRET}-pull"}],
            "serviceAccountName": f"{SECRET}-account",
            "hostname": SECRET,
            "dnsConfig": {"searches": [SECRET]},
            "hostAliases": [{"ip": "10.9.9.9", "hostnames": [SECRET]}],
            "schedulingGates": [{"name": f"{SECRET}/gate"}],
            **spec,
        },
        "status": {"podIP": "10.9.9.9", "message": SECRET, "conditions": [{"type": SECRET}]},
    }


NODE: dict[str, Any] = {
    "metadata": {
        "name": "n1",
        "labels": {"kubernetes.io/hostname": "n1"},
        "annotations": {"example.com/key": SECRET, "k3s.io/node-args": SECRET},
    },
    "spec": {"podCIDR": "10.9.9.0/24", "providerID": SECRET},
    "status": {
        "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"},
        "addresses": [{"type": "InternalIP", "address": "10.9.9.9"}],
        "nodeInfo": {"machineID": SECRET},
        "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
        "images": [{"names": [f"reg.example/{SECRET}:1"], "sizeBytes": 5}],
    },
}
OBJECTS: dict[str, dict[str, Any]] = {
    "Namespace": {"metadata": {"name": "default", "annotations": {"a": SECRET}}},
    "Service": {
        "metadata": {"name": "web", "annotations": {"a": SECRET}},
        "spec": {"selector": {"app": "web"}, "clusterIP": "10.9.9.9", "externalName": SECRET},
    },
    "ReplicaSet": {
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": [PRIVATE]}},
        },
    },
    "PersistentVolumeClaim": {
        "metadata": {"name": "data", "annotations": {"a": SECRET}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "dataSource": {"name": SECRET}},
    },
    "PersistentVolume": {
        "metadata": {"name": "v", "annotations": {"a": SECRET}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "csi": {
                "driver": "d",
                "volumeHandle": "h",
                "volumeAttributes": {"server": SECRET},
                "nodePublishSecretRef": {"name": SECRET},
            },
        },
    },
    "StorageClass": {
        "metadata": {"name": "fast"},
        "provisioner": "d",
        "parameters": {"secret": SECRET},
        "mountOptions": [SECRET],
    },
    "CSINode": {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d", "nodeID": SECRET}]}},
}


@pytest.mark.parametrize("anonymous", [False, True])
def test_nothing_else_is_in_it(anonymous: bool) -> None:
    assert OBJECTS.keys() <= READERS.keys()
    converter, state = Converter(), ClusterState()
    node = converter.node(msgspec.Raw(json.dumps(NODE).encode()))
    manifests = [pod("pending"), pod("running", nodeName="n1", resourceClaims=[{"name": SECRET}])]
    pods = [converter.pod(msgspec.Raw(json.dumps(each).encode())) for each in manifests]
    made = [
        converter.cluster_object(kind, msgspec.Raw(json.dumps(each).encode()))
        for kind, each in OBJECTS.items()
    ]
    assert node is not None
    state.apply(Relisted((node,), tuple(filter(None, pods)), tuple(filter(None, made))))
    taken = capture(
        state, TelemetryState(TimesToLive()), 0.0, Rule(NetSched(), FILTERS), "default-scheduler"
    )
    text = json.dumps(write_snapshot(taken, anonymous=anonymous))
    assert SECRET not in text
    assert "10.9.9" not in text
    snapshot = read_snapshot(json.loads(text))
    assert len(snapshot.pods) == len(snapshot.running) == 1
    assert snapshot.pods[0].annotations.user_node == snapshot.view.table.names[0]
    # The file is not empty of what it should hold.
    for name in ("pending", "running", "web", "fast"):
        assert (f'"{name}"' in text) is not anonymous
