"""Namespaces, storage and what selects pods -> minimal manifests, the inverse of the readers in
cluster_objects.py. Names say what things are called; see there."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from leadline_controller.framework.cluster_objects import (
    Attachment,
    Claim,
    ClusterObject,
    CsiDriver,
    CsiNode,
    NamespaceLabels,
    PodSelector,
    StorageCapacity,
    StorageClass,
    Volume,
)
from leadline_controller.framework.services import TEMPLATE_HASH
from leadline_controller.kubeobjects.cluster_objects import BOUND, SELECTED_NODE
from leadline_controller.kubeobjects.names import Names
from leadline_controller.kubeobjects.pod_writer import SOME_TIME
from leadline_controller.kubeobjects.selectors import (
    Manifest,
    without_empty,
    write_selector,
    write_term,
)


def write_object(made: ClusterObject, names: Names) -> tuple[str, Manifest]:
    """The kind and the manifest of an object. Raises KeyError for what no decision reads, such as a
    disruption budget."""
    if isinstance(made, PodSelector):
        return made.kind, _pod_selector(made, names)
    kind, write = _WRITERS[type(made)]
    return kind, write(made, names)


def _namespace(space: NamespaceLabels, names: Names) -> Manifest:
    labels = names.labels(space.labels)
    return {"metadata": {"name": names("namespace", space.name), "labels": labels}}


def _claim(claim: Claim, names: Names) -> Manifest:
    annotations = {
        BOUND: "yes" if claim.bound else None,
        SELECTED_NODE: claim.selected_node and names("node", claim.selected_node),
    }
    owners = [{"uid": names("uid", claim.owner_uid), "controller": True}] if claim.owner_uid else []
    metadata = {
        "name": names.claim(claim.namespace, claim.name),
        "namespace": names("namespace", claim.namespace),
        "uid": claim.uid and names("uid", claim.uid),
        "annotations": without_empty(annotations),
        "ownerReferences": owners,
        "deletionTimestamp": SOME_TIME if claim.terminating else None,
    }
    size, selector = claim.size_bytes, claim.selector
    spec = {
        **_of_volume(claim, names),
        "volumeName": claim.volume and names("volume", claim.volume),
        "resources": None if size is None else {"requests": {"storage": _quantity(size)}},
    }
    made = without_empty(spec)
    if selector is not None:
        made["selector"] = write_selector(selector, names)
    status = {"status": {"phase": "Lost"}} if claim.lost else {}
    return {"metadata": without_empty(metadata), "spec": made, **status}


def _volume(volume: Volume, names: Names) -> Manifest:
    claim = None
    if volume.claim is not None:
        namespace, _, name = volume.claim.partition("/")
        claim = {
            "namespace": names("namespace", namespace),
            "name": names.claim(namespace, name),
            "uid": volume.claim_uid and names("uid", volume.claim_uid),
        }
    affinity = None
    if volume.affinity is not None:
        terms = [write_term(each, names) for each in volume.affinity]
        affinity = {"required": {"nodeSelectorTerms": terms}}
    spec = {
        **_of_volume(volume, names),
        "capacity": {"storage": _quantity(volume.size_bytes)},
        "claimRef": claim,
        "nodeAffinity": affinity,
    }
    made = without_empty(spec)
    if volume.driver or volume.kind == "csi":
        handle = volume.handle and names("handle", volume.handle)
        made["csi"] = {"driver": _driver(volume.driver, names), "volumeHandle": handle}
    elif volume.kind:
        made[volume.kind] = {}
    metadata = {
        "name": names("volume", volume.name),
        "labels": names.labels(volume.labels),
        "deletionTimestamp": SOME_TIME if volume.terminating else None,
    }
    status = {"status": {"phase": "Available"}} if volume.available else {}
    return {"metadata": without_empty(metadata), "spec": made, **status}


def _of_volume(made: Claim | Volume, names: Names) -> Manifest:
    attributes = made.attributes_class
    return {
        "storageClassName": made.class_name and names("class", made.class_name),
        "accessModes": sorted(made.access_modes),
        "volumeMode": made.mode if made.mode != "Filesystem" else None,
        "volumeAttributesClassName": attributes and names("attributes", attributes),
    }


def _driver(name: str, names: Names) -> str:
    """A CSI driver or provisioner; those in Kubernetes' namespace are its own words."""
    return name if not name or name.startswith("kubernetes.io/") else names("driver", name)


def _storage_class(made: StorageClass, names: Names) -> Manifest:
    found: Manifest = {
        "metadata": {"name": names("class", made.name)},
        "provisioner": _driver(made.provisioner, names),
    }
    if made.waits:
        found["volumeBindingMode"] = "WaitForFirstConsumer"
    if made.topologies is not None:
        found["allowedTopologies"] = [
            {
                "matchLabelExpressions": [
                    {
                        "key": names.key(each.key),
                        "values": [names.value(each.key, value) for value in each.values],
                    }
                    for each in term
                ]
            }
            for term in made.topologies
        ]
    return found


def _csi_node(node: CsiNode, names: Names) -> Manifest:
    drivers = [
        {"name": _driver(name, names), "allocatable": {"count": most}}
        for name, most in node.limits.items()
    ]
    return {"metadata": {"name": names("node", node.name)}, "spec": {"drivers": drivers}}


def _csi_driver(driver: CsiDriver, names: Names) -> Manifest:
    tracks = {"storageCapacity": driver.tracks_capacity}
    return {"metadata": {"name": _driver(driver.name, names)}, "spec": tracks}


def _capacity(made: StorageCapacity, names: Names) -> Manifest:
    namespace, _, name = made.key.partition("/")
    found: Manifest = {
        "metadata": {
            "name": names("capacity", name),
            "namespace": names("namespace", namespace),
        },
        "storageClassName": names("class", made.class_name),
    }
    if made.topology is not None:
        found["nodeTopology"] = write_selector(made.topology, names)
    if made.largest_bytes is not None:
        found["maximumVolumeSize"] = str(made.largest_bytes)
    return found


def _attachment(made: Attachment, names: Names) -> Manifest:
    spec = {
        "nodeName": names("node", made.node),
        "attacher": _driver(made.driver, names),
        "source": without_empty(
            {"persistentVolumeName": made.volume and names("volume", made.volume)}
        ),
    }
    return {"metadata": {"name": names("attachment", made.name)}, "spec": spec}


def _pod_selector(made: PodSelector, names: Names) -> Manifest:
    hashes = (each.values for each in made.selector or () if each.key == TEMPLATE_HASH)
    template_hash = "".join(next(hashes, ())[:1])
    selector: Manifest | None = None
    if made.selector is not None:
        selector = write_selector(made.selector, names)
        if made.kind in ("Service", "ReplicationController"):
            selector = selector.get("matchLabels", {})
    metadata = {
        "name": names.owner(made.name, template_hash),
        "namespace": names("namespace", made.namespace),
    }
    return {"metadata": metadata, "spec": {} if selector is None else {"selector": selector}}


def _quantity(size: Fraction) -> str:
    """Exactly, down to the billionths that Kubernetes has."""
    return str(size) if size.denominator == 1 else f"{size * 10**9:.0f}n"


_WRITERS: Mapping[type, tuple[str, Callable[[Any, Names], Manifest]]] = {
    NamespaceLabels: ("Namespace", _namespace),
    Claim: ("PersistentVolumeClaim", _claim),
    Volume: ("PersistentVolume", _volume),
    StorageClass: ("StorageClass", _storage_class),
    CsiNode: ("CSINode", _csi_node),
    CsiDriver: ("CSIDriver", _csi_driver),
    StorageCapacity: ("CSIStorageCapacity", _capacity),
    Attachment: ("VolumeAttachment", _attachment),
}
