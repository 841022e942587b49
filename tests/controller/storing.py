"""Short ways to claims, volumes and classes, from Kubernetes' own manifests."""

from collections.abc import Mapping
from typing import Any

from leadline_controller.framework.cluster_objects import Claim, StorageClass, Volume
from leadline_controller.framework.model import Pod
from leadline_controller.kubeobjects.cluster_objects import (
    read_claim,
    read_storage_class,
    read_volume,
)

from tests.controller.builders import pod

HOST = "kubernetes.io/hostname"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
CSI = "csi.example.com"


def claim(
    name: str = "c",
    class_name: str | None = "wait",
    *,
    volume: str = "",
    size: str = "1Gi",
    annotations: Mapping[str, str] | None = None,
    phase: str = "Pending",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Claim:
    """A claim; one with a volume is bound to it unless `annotations` say otherwise."""
    bound = BOUND if volume and annotations is None else annotations or {}
    return read_claim(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "annotations": dict(bound),
                **(metadata or {}),
            },
            "spec": {
                "storageClassName": class_name,
                "volumeName": volume,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                **spec,
            },
            "status": {"phase": phase},
        }
    )


def volume(
    name: str = "v",
    class_name: str = "wait",
    *,
    size: str = "1Gi",
    nodes: tuple[str, ...] | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Available",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Volume:
    """A volume that these nodes reach, by their host names; None is all nodes."""
    if nodes is not None:
        expression = {"key": HOST, "operator": "In", "values": list(nodes)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["nodeAffinity"] = {"required": terms}
    return read_volume(
        {
            "metadata": {"name": name, "labels": dict(labels or {}), **(metadata or {})},
            "spec": {
                "storageClassName": class_name,
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                **({} if "csi" in spec else {"local": {"path": "/data"}}),
                **spec,
            },
            "status": {"phase": phase},
        }
    )


def storage_class(name: str = "wait", provisioner: str = CSI, **fields: Any) -> StorageClass:
    """A class whose claims wait for their first pod."""
    waiting = {"volumeBindingMode": "WaitForFirstConsumer"}
    return read_storage_class(
        {"metadata": {"name": name}, "provisioner": provisioner, **waiting, **fields}
    )


def using(*claims: str, name: str = "p", **fields: Any) -> Pod:
    """A pod that mounts these claims."""
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return pod(name, volumes=volumes, **fields)
