"""Volumes, claims and storage classes as plain dicts, as `objects` has pods and nodes."""

from __future__ import annotations

from typing import Any

from tests.kube.objects import Object, pod

HOST = "kubernetes.io/hostname"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
SIZE = {"storage": "1Gi"}


def mounting(claim_name: str, name: str = "p", **rest: Any) -> Object:
    """Return a pod with the claim as its volume; `rest` as for `objects.pod`."""
    data = {"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}
    return pod(name, volumes=[data], **rest)


def claim(name: str, storage_class: str, *, selected_node: str | None = None) -> Object:
    """Return a claim of 1 Gi without a volume; with `selected_node` a scheduler has chosen."""
    annotations = {SELECTED_NODE: selected_node} if selected_node else {}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": SIZE},
        },
        "status": {"phase": "Pending"},
    }


def volume(name: str, storage_class: str, *, node_name: str | None = None, **spec: Any) -> Object:
    """Return a volume of 1 Gi, on one node only with `node_name`.

    `spec` holds further fields by their Kubernetes names, such as the source where it is not a
    path on the host.
    """
    source = {} if "csi" in spec or "local" in spec else {"hostPath": {"path": "/data"}}
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node_name]}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [here]}}} if node_name else {}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": SIZE,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            **source,
            **affinity,
            **spec,
        },
        "status": {"phase": "Available"},
    }


def bound(
    claim_name: str, storage_class: str = "", *, node_name: str | None = None, **spec: Any
) -> tuple[Object, Object]:
    """Return a claim and its volume bound to each other; arguments as for `volume`."""
    uid = f"uid-{claim_name}"
    reference = {"namespace": "default", "name": claim_name, "uid": uid}
    name = f"{claim_name}-volume"
    there = volume(name, storage_class, node_name=node_name, claimRef=reference, **spec)
    there["status"] = {"phase": "Bound"}
    here = claim(claim_name, storage_class)
    here["metadata"] |= {"uid": uid, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    here["spec"]["volumeName"] = name
    here["status"] = {"phase": "Bound"}
    return here, there


def storage_class(name: str, provisioner: str, *, waits: bool = True, **rest: Any) -> Object:
    """Return a storage class, whose claims wait for their first consumer or bind at once."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    metadata = {"name": name}
    return {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode, **rest}
