"""Manifests of namespaces and storage -> the classes of framework/cluster_objects.py.

Every reader takes JSON, or what was read from it, and the path to show in errors. It raises
FieldError for what the API server would not accept.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import floor
from typing import Any, Literal

from msgspec import field

from leadline_controller.framework.cluster_objects import (
    Attachment,
    Claim,
    ClusterObject,
    CsiDriver,
    CsiNode,
    DisruptionBudget,
    NamespaceLabels,
    PodSelector,
    StorageCapacity,
    StorageClass,
    Volume,
)
from leadline_controller.framework.quantity import MAX_AMOUNT, exact_quantity
from leadline_controller.framework.selectors import Requirement
from leadline_controller.kubeobjects.amounts import quantity_error
from leadline_controller.kubeobjects.annotations import DELETION_ORDER
from leadline_controller.kubeobjects.demands import MAX_CONSTRAINTS, MAX_VALUES
from leadline_controller.kubeobjects.schema import (
    Count,
    Generation,
    Name,
    Named,
    NodeSelector,
    Object,
    Part,
    Quantities,
    Quantity,
    Resources,
    Selector,
)
from leadline_controller.kubeobjects.selectors import read_selector, read_terms
from leadline_controller.parsing.typed import decode

_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
# The fields of a PersistentVolume's spec other than its source.
_NOT_A_SOURCE = (
    *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "volumeMode"),
    *("storageClassName", "mountOptions", "nodeAffinity", "volumeAttributesClassName"),
)
SELECTING_KINDS = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")


def read_namespace(manifest: object, path: str = "namespace") -> NamespaceLabels:
    """A v1 Namespace, with the name label that every API server adds."""
    metadata = decode(manifest, Named, path).metadata
    labels = {"kubernetes.io/metadata.name": metadata.name, **metadata.labels}
    return NamespaceLabels(metadata.name, labels, metadata.annotations.get(DELETION_ORDER, ""))


class _ClaimReference(Part):
    namespace: Name = ""
    name: Name = ""
    uid: Name = ""


class _Csi(Part):
    driver: str = ""
    volume_handle: str = ""


class _Spec(Part):
    """What is read of the specs of claims, volumes, budgets and whatever selects its pods."""

    storage_class_name: str = ""
    access_modes: frozenset[str] = frozenset()
    volume_mode: Literal["", "Filesystem", "Block"] = ""
    volume_attributes_class_name: str = ""
    volume_name: Name = ""
    resources: Resources = Resources()
    selector: Selector | None = None
    capacity: Quantities = field(default_factory=dict)
    claim_ref: _ClaimReference | None = None
    node_affinity: dict[str, NodeSelector] = field(default_factory=dict)
    csi: _Csi = _Csi()


class _Status(Part):
    phase: str = ""
    observed_generation: Generation = 0
    disruptions_allowed: Count = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)


class _Object(Named):
    spec: _Spec = _Spec()
    status: _Status = _Status()


def read_claim(manifest: object, path: str = "claim") -> Claim:
    """A v1 PersistentVolumeClaim."""
    claim = decode(manifest, _Object, path)
    metadata, spec = claim.metadata, claim.spec
    owners = (each.uid for each in metadata.owner_references if each.controller)
    requested = spec.resources.requests
    return Claim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        class_name=metadata.annotations.get(_CLASS, spec.storage_class_name),
        volume=spec.volume_name,
        bound=bool(spec.volume_name) and BOUND in metadata.annotations,
        lost=claim.status.phase == "Lost",
        terminating=metadata.deletion_timestamp is not None,
        selected_node=metadata.annotations.get(SELECTED_NODE),
        size_bytes=_size(requested.get("storage"), f"{path}.spec.resources.requests.storage"),
        access_modes=spec.access_modes,
        mode=spec.volume_mode or "Filesystem",
        selector=read_selector(spec.selector, f"{path}.spec.selector"),
        attributes_class=spec.volume_attributes_class_name,
        owner_uid=next(owners, None),
    )


class _Volume(Named):
    spec: dict[str, Any] = field(
        default_factory=dict
    )  # its source is whatever other field there is
    status: _Status = _Status()


def read_volume(manifest: object, path: str = "volume") -> Volume:
    """A v1 PersistentVolume."""
    volume = decode(manifest, _Volume, path)
    spec, claim = decode(volume.spec, _Spec, f"{path}.spec"), None
    if spec.claim_ref is not None:
        claim = f"{spec.claim_ref.namespace}/{spec.claim_ref.name}"
    sources = (
        name
        for name, source in volume.spec.items()
        if name not in _NOT_A_SOURCE and source is not None
    )
    metadata = volume.metadata
    return Volume(
        name=metadata.name,
        class_name=metadata.annotations.get(_CLASS, spec.storage_class_name),
        size_bytes=_size(spec.capacity.get("storage"), f"{path}.spec.capacity.storage")
        or Fraction(0),
        access_modes=spec.access_modes,
        mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name,
        labels=metadata.labels,
        claim=claim,
        claim_uid=spec.claim_ref.uid if spec.claim_ref else "",
        available=volume.status.phase == "Available",
        terminating=metadata.deletion_timestamp is not None,
        affinity=read_terms(spec.node_affinity.get("required")),
        driver=spec.csi.driver,
        handle=spec.csi.volume_handle,
        kind=next(sources, ""),
    )


class _TopologyExpression(Part):
    key: str
    values: tuple[str, ...] = ()


class _StorageClass(Named, kw_only=True):
    provisioner: str
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[dict[str, tuple[_TopologyExpression, ...]], ...] = ()


def read_storage_class(manifest: object, path: str = "storageClass") -> StorageClass:
    """A storage.k8s.io/v1 StorageClass."""
    found = decode(manifest, _StorageClass, path)
    topologies = tuple(
        tuple(
            Requirement(each.key, "In", each.values)
            for each in term.get("matchLabelExpressions", ())
        )
        for term in found.allowed_topologies
    )
    waits = found.volume_binding_mode == "WaitForFirstConsumer"
    return StorageClass(found.metadata.name, found.provisioner, waits, topologies or None)


class _Driver(Part):
    name: str
    allocatable: dict[str, Count] = field(default_factory=dict)


class _CsiNodeSpec(Part):
    drivers: tuple[_Driver, ...] = ()


def read_csi_node(manifest: object, path: str = "csiNode") -> CsiNode:
    """A storage.k8s.io/v1 CSINode."""
    node = decode(manifest, Object[_CsiNodeSpec], path)
    limits = ((each.name, each.allocatable.get("count")) for each in node.spec.drivers)
    return CsiNode(node.metadata.name, {name: most for name, most in limits if most is not None})


class _CsiDriverSpec(Part):
    storage_capacity: bool = False


class _CsiDriver(Named):
    spec: _CsiDriverSpec = _CsiDriverSpec()


def read_csi_driver(manifest: object, path: str = "csiDriver") -> CsiDriver:
    """A storage.k8s.io/v1 CSIDriver."""
    driver = decode(manifest, _CsiDriver, path)
    return CsiDriver(driver.metadata.name, driver.spec.storage_capacity)


class _StorageCapacity(Named, kw_only=True):
    storage_class_name: str
    node_topology: Selector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


def read_storage_capacity(manifest: object, path: str = "storageCapacity") -> StorageCapacity:
    """A storage.k8s.io/v1 CSIStorageCapacity."""
    found = decode(manifest, _StorageCapacity, path)
    largest = _size(found.maximum_volume_size, f"{path}.maximumVolumeSize")
    if largest is None:
        largest = _size(found.capacity, f"{path}.capacity")
    return StorageCapacity(
        key=f"{found.metadata.namespace}/{found.metadata.name}",
        class_name=found.storage_class_name,
        topology=read_selector(found.node_topology, f"{path}.nodeTopology"),
        largest_bytes=None if largest is None else min(floor(largest), MAX_AMOUNT),
    )


class _AttachmentSource(Part):
    persistent_volume_name: str = ""


class _AttachmentSpec(Part):
    node_name: str
    attacher: str
    source: _AttachmentSource = _AttachmentSource()


def read_attachment(manifest: object, path: str = "volumeAttachment") -> Attachment:
    """A storage.k8s.io/v1 VolumeAttachment."""
    found = decode(manifest, Object[_AttachmentSpec], path)
    volume = found.spec.source.persistent_volume_name
    return Attachment(found.metadata.name, found.spec.node_name, found.spec.attacher, volume)


def read_budget(manifest: object, path: str = "budget") -> DisruptionBudget:
    """A policy/v1 PodDisruptionBudget."""
    budget = decode(manifest, _Object, path)
    metadata, status = budget.metadata, budget.status
    is_current = status.observed_generation >= metadata.generation
    return DisruptionBudget(
        namespace=metadata.namespace,
        name=metadata.name,
        selector=read_selector(budget.spec.selector, f"{path}.spec.selector"),
        allowed=status.disruptions_allowed if is_current else 0,
        disrupted=frozenset(status.disrupted_pods),
    )


class _ByLabels(Part):
    selector: dict[str, str] = field(default_factory=dict)


def read_pod_selector(manifest: object, path: str, kind: str) -> PodSelector:
    """A v1 Service or ReplicationController, or an apps/v1 ReplicaSet or StatefulSet."""
    if kind in ("ReplicaSet", "StatefulSet"):
        made = decode(manifest, _Object, path)
        metadata = made.metadata
        selector = read_selector(made.spec.selector, f"{path}.spec.selector")
    else:
        by_labels = decode(manifest, Object[_ByLabels], path)
        metadata = by_labels.metadata
        labels = by_labels.spec.selector.items()
        selector = tuple(Requirement(name, "In", (value,)) for name, value in labels)
    if selector is not None and (
        len(selector) > MAX_CONSTRAINTS or sum(len(each.values) for each in selector) > MAX_VALUES
    ):
        selector = None  # each decision about its pods would evaluate all of it
    return PodSelector(kind, metadata.namespace, metadata.name, selector)


# The readers by kind.
READERS: Mapping[str, Callable[[object, str], ClusterObject]] = {
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


def _size(quantity: Quantity | None, path: str) -> Fraction | None:
    try:
        return None if quantity is None else exact_quantity(str(quantity))
    except ValueError as error:
        raise quantity_error(error, path) from None
