"""Manifests of namespaces and storage -> the classes of framework/resources.py.

Every reader raises FieldError for a manifest that the API server would not accept.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import floor
from typing import Any

from leadline_controller.framework.quantity import MAX_AMOUNT, exact_quantity
from leadline_controller.framework.resources import (
    Attachment,
    Claim,
    CsiDriver,
    CsiNode,
    DisruptionBudget,
    Mode,
    NamespaceLabels,
    PodSelector,
    Resource,
    StorageCapacity,
    StorageClass,
    Volume,
)
from leadline_controller.framework.selectors import Requirement
from leadline_controller.kubeobjects.amounts import read_quantity
from leadline_controller.kubeobjects.demands import MAX_CONSTRAINTS, MAX_VALUES
from leadline_controller.kubeobjects.selectors import read_selector, read_terms
from leadline_controller.parsing.fields import Fields

_CLASS = "volume.beta.kubernetes.io/storage-class"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BOUND = "pv.kubernetes.io/bind-completed"
_MAX_INT32 = 2**31 - 1
# The fields of a PersistentVolume's spec other than its source.
_NOT_A_SOURCE = (
    *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "volumeMode"),
    *("storageClassName", "mountOptions", "nodeAffinity", "volumeAttributesClassName"),
)
Manifest = Mapping[str, Any]
SELECTING_KINDS = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")


def read_namespace(manifest: Manifest, path: str = "namespace") -> NamespaceLabels:
    """A v1 Namespace, with the name label that every API server adds."""
    metadata = Fields(manifest, path).object("metadata")
    name = metadata.name("name")
    return NamespaceLabels(
        name, {"kubernetes.io/metadata.name": name, **metadata.text_map("labels")}
    )


def read_claim(manifest: Manifest, path: str = "claim") -> Claim:
    """A v1 PersistentVolumeClaim."""
    claim = Fields(manifest, path)
    metadata, spec, status = claim.object("metadata"), claim.object("spec"), claim.object("status")
    annotations, volume = metadata.text_map("annotations"), spec.name("volumeName", "")
    owners = metadata.objects("ownerReferences")
    return Claim(
        namespace=metadata.name("namespace", "default"),
        name=metadata.name("name"),
        uid=metadata.name("uid", ""),
        class_name=annotations.get(_CLASS, spec.text("storageClassName", "")),
        volume=volume,
        bound=bool(volume) and _BOUND in annotations,
        lost=status.text("phase", "") == "Lost",
        terminating=metadata.has("deletionTimestamp"),
        selected_node=annotations.get(_SELECTED_NODE),
        size_bytes=_size(spec.object("resources").object("requests"), "storage"),
        access_modes=frozenset(spec.texts("accessModes")),
        mode=_mode(spec),
        selector=read_selector(spec, "selector"),
        attributes_class=spec.text("volumeAttributesClassName", ""),
        owner_uid=next((o.text("uid") for o in owners if o.flag("controller", False)), None),
    )


def read_volume(manifest: Manifest, path: str = "volume") -> Volume:
    """A v1 PersistentVolume."""
    volume = Fields(manifest, path)
    metadata, spec, status = (
        volume.object("metadata"),
        volume.object("spec"),
        volume.object("status"),
    )
    csi, claim = spec.object("csi"), spec.object("claimRef")
    affinity = spec.object("nodeAffinity")
    sources = (name for name in spec.data if name not in _NOT_A_SOURCE and spec.has(name))
    return Volume(
        name=metadata.name("name"),
        class_name=metadata.text_map("annotations").get(_CLASS, spec.text("storageClassName", "")),
        size_bytes=_size(spec.object("capacity"), "storage") or Fraction(0),
        access_modes=frozenset(spec.texts("accessModes")),
        mode=_mode(spec),
        attributes_class=spec.text("volumeAttributesClassName", ""),
        labels=metadata.text_map("labels"),
        claim=f"{claim.name('namespace', '')}/{claim.name('name', '')}"
        if spec.has("claimRef")
        else None,
        claim_uid=claim.name("uid", ""),
        available=status.text("phase", "") == "Available",
        terminating=metadata.has("deletionTimestamp"),
        affinity=read_terms(affinity.object("required")) if affinity.has("required") else None,
        driver=csi.text("driver", ""),
        handle=csi.text("volumeHandle", ""),
        kind=next(sources, ""),
    )


def read_storage_class(manifest: Manifest, path: str = "storageClass") -> StorageClass:
    """A storage.k8s.io/v1 StorageClass."""
    storage_class = Fields(manifest, path)
    mode = storage_class.text("volumeBindingMode", "Immediate")
    topologies = tuple(
        tuple(
            Requirement(expression.text("key"), "In", expression.texts("values"))
            for expression in term.objects("matchLabelExpressions")
        )
        for term in storage_class.objects("allowedTopologies")
    )
    return StorageClass(
        name=storage_class.object("metadata").name("name"),
        provisioner=storage_class.text("provisioner"),
        waits=mode == "WaitForFirstConsumer",
        topologies=topologies or None,
    )


def read_csi_node(manifest: Manifest, path: str = "csiNode") -> CsiNode:
    """A storage.k8s.io/v1 CSINode."""
    node = Fields(manifest, path)
    limits = {
        driver.text("name"): driver.object("allocatable").integer("count", 0, _MAX_INT32)
        for driver in node.object("spec").objects("drivers")
    }
    name = node.object("metadata").name("name")
    return CsiNode(name, {driver: count for driver, count in limits.items() if count is not None})


def read_csi_driver(manifest: Manifest, path: str = "csiDriver") -> CsiDriver:
    """A storage.k8s.io/v1 CSIDriver."""
    driver = Fields(manifest, path)
    return CsiDriver(
        name=driver.object("metadata").name("name"),
        tracks_capacity=driver.object("spec").flag("storageCapacity", default=False),
    )


def read_storage_capacity(manifest: Manifest, path: str = "storageCapacity") -> StorageCapacity:
    """A storage.k8s.io/v1 CSIStorageCapacity."""
    capacity = Fields(manifest, path)
    metadata = capacity.object("metadata")
    largest = _size(
        capacity, "maximumVolumeSize" if capacity.has("maximumVolumeSize") else "capacity"
    )
    return StorageCapacity(
        key=f"{metadata.name('namespace', 'default')}/{metadata.name('name')}",
        class_name=capacity.text("storageClassName"),
        topology=read_selector(capacity, "nodeTopology"),
        largest_bytes=None if largest is None else min(floor(largest), MAX_AMOUNT),
    )


def read_attachment(manifest: Manifest, path: str = "volumeAttachment") -> Attachment:
    """A storage.k8s.io/v1 VolumeAttachment."""
    attachment = Fields(manifest, path)
    spec = attachment.object("spec")
    return Attachment(
        name=attachment.object("metadata").name("name"),
        node=spec.text("nodeName"),
        driver=spec.text("attacher"),
        volume=spec.object("source").text("persistentVolumeName", ""),
    )


def read_budget(manifest: Manifest, path: str = "budget") -> DisruptionBudget:
    """A policy/v1 PodDisruptionBudget."""
    budget = Fields(manifest, path)
    metadata, spec, status = (budget.object(part) for part in ("metadata", "spec", "status"))
    observed = status.integer("observedGeneration", 0, 2**62) or 0
    is_current = observed >= (metadata.integer("generation", 0, 2**62) or 0)
    allowed = status.integer("disruptionsAllowed", 0, _MAX_INT32) or 0
    return DisruptionBudget(
        namespace=metadata.name("namespace", "default"),
        name=metadata.name("name"),
        selector=read_selector(spec, "selector"),
        allowed=allowed if is_current else 0,
        disrupted=frozenset(status.text_map("disruptedPods")),
    )


def read_pod_selector(manifest: Manifest, path: str, kind: str) -> PodSelector:
    """A v1 Service or ReplicationController, or an apps/v1 ReplicaSet or StatefulSet."""
    made = Fields(manifest, path)
    metadata, spec = made.object("metadata"), made.object("spec")
    if kind in ("ReplicaSet", "StatefulSet"):
        selector = read_selector(spec, "selector")
    else:
        labels = spec.text_map("selector")
        selector = tuple(Requirement(name, "In", (value,)) for name, value in labels.items())
    if selector is not None and (
        len(selector) > MAX_CONSTRAINTS or sum(len(each.values) for each in selector) > MAX_VALUES
    ):
        selector = None  # each decision about its pods would evaluate all of it
    namespace = metadata.name("namespace", "default")
    return PodSelector(kind, namespace, metadata.name("name"), selector)


# The readers by kind.
READERS: Mapping[str, Callable[[Manifest, str], Resource]] = {
    "Namespace": read_namespace,
    "PersistentVolumeClaim": read_claim,
    "PersistentVolume": read_volume,
    "StorageClass": read_storage_class,
    "CSINode": read_csi_node,
    "CSIDriver": read_csi_driver,
    "CSIStorageCapacity": read_storage_capacity,
    "VolumeAttachment": read_attachment,
    "PodDisruptionBudget": read_budget,
    **{kind: partial(read_pod_selector, kind=kind) for kind in SELECTING_KINDS},
}


def _size(amounts: Fields, name: str) -> Fraction | None:
    if not amounts.has(name):
        return None
    return read_quantity(amounts, name, exact_quantity, "a quantity like 4Gi")


def _mode(spec: Fields) -> Mode:
    if spec.raw("volumeMode") in (None, ""):
        return "Filesystem"
    return spec.choice("volumeMode", "Filesystem", "Block")
