"""Pods and other objects -> minimal manifests, the inverse of the readers.

Only what decides where pods go is written: no environments, arguments, commands, secrets or
annotations of others can be in it, because the framework's objects have no place for them. Names
say what things are called; see there.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from msgspec import structs

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
from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.model import (
    CPU,
    PODS,
    AffinityTerm,
    Disk,
    Owner,
    Pod,
    PodAnnotations,
    SpreadConstraint,
    Toleration,
)
from leadline_controller.framework.selectors import Requirement, Selector
from leadline_controller.kubeobjects.annotations import PREFIX
from leadline_controller.kubeobjects.cluster_objects import BOUND, SELECTED_NODE
from leadline_controller.kubeobjects.demands import DISKS
from leadline_controller.kubeobjects.names import Names
from leadline_controller.kubeobjects.schema import PREFERRED, REQUIRED, VolumeSource

Manifest = dict[str, Any]
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # Kubernetes' wildcard, nothing binds here
_STANDARD = ("cpu", "memory", "pods", "ephemeral-storage")
_PUBLIC_PREFIXES = ("hugepages-", "attachable-volumes-", "kubernetes.io/")
_VERSIONS = ("", "v1", "apps/v1", "batch/v1")
_OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "Node")
_DISK_FIELDS = {each.name: each.encode_name for each in structs.fields(VolumeSource)}
_SOME_TIME = "2000-01-01T00:00:00Z"  # of a deletion, of which only that it is asked for counts


def without_empty(fields: Mapping[str, Any]) -> Manifest:
    """The fields that say something: none that is None, empty or false."""
    return {
        key: value
        for key, value in fields.items()
        if value is not None and value is not False and value not in ("", {}, [])
    }


def write_pod(pod: Pod, names: Names, node: str | None = None) -> Manifest:
    """A pod's manifest, from which `read_pod` reads the same as far as decisions go. node: where it
    is assumed to be, in place of its own. A `problem` is not written: what caused it is unknown."""
    node = node or pod.node_name
    preferences, owner = pod.preferences, pod.owner
    spread = [
        *(_spread(each, names) for each in pod.spread),
        *(_spread(each, names, "ScheduleAnyway") for each in preferences.spread),
    ]
    spec = without_empty(
        {
            "nodeName": node and names("node", node),
            "priority": pod.priority or None,
            "preemptionPolicy": None if pod.preempts else "Never",
            "nodeSelector": names.labels(pod.node_selector),
            "tolerations": [_toleration(each, names) for each in pod.tolerations],
            "affinity": _affinity(pod, names),
            "topologySpreadConstraints": spread,
            "schedulingGates": [{"name": "gate"}] if pod.gated else [],
            "initContainers": [{"image": _image(each, names)} for each in pod.init_images],
            "volumes": [*_volumes(pod, names)],
        }
    )
    if "UserNamespacesHostNetworkSupport" in pod.features:
        spec |= {"hostNetwork": True, "hostUsers": False}
    owners = (
        [
            {
                **_kind_of(owner, names),
                "name": names("owner", owner.name),
                "uid": names("uid", owner.uid),
                "controller": True,
            }
        ]
        if owner
        else []
    )
    metadata = {
        "name": names("pod", pod.name),
        "namespace": names("namespace", pod.namespace),
        "uid": pod.uid and names("uid", pod.uid),
        "labels": names.labels(pod.labels),
        "annotations": _annotations(pod.annotations, names),
        "ownerReferences": owners,
        "deletionTimestamp": _SOME_TIME if pod.terminating else None,
    }
    return {
        "metadata": without_empty(metadata),
        "spec": {**spec, "containers": _containers(pod, names)},
    }


def _kind_of(owner: Owner, names: Names) -> Manifest:
    """Kinds that Kubernetes does not have may be anybody's word."""
    version, kind = owner.api_version, owner.kind
    return {
        "apiVersion": version if version in _VERSIONS else names("api", version),
        "kind": kind if kind in _OWNERS else names("kind", kind),
    }


def _containers(pod: Pod, names: Names) -> list[Manifest]:
    """One for each image. The first has the pod's effective requests, limits and host ports; where
    there are limits, the others are limited to nothing more."""
    limits = write_amounts(pod.limits, names)
    requests = {name: amount for name, amount in pod.requests.items() if name != PODS}
    # What is limited and not requested would else be requested.
    asked = {**requests, **{name: 0 for name in pod.limits if name not in requests}}
    ports = [
        without_empty(
            {
                "hostPort": port.port,
                "protocol": port.protocol if port.protocol != "TCP" else None,
                "hostIP": names("address", port.ip) if port.ip != _EVERY_ADDRESS else None,
            }
        )
        for port in pod.host_ports
    ]
    first = {
        "image": pod.images[0] and _image(pod.images[0], names) if pod.images else "",
        "resources": without_empty({"requests": write_amounts(asked, names), "limits": limits}),
        "ports": ports,
    }
    if "RestartAllContainersOnContainerExits" in pod.features:
        first["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    if not (pod.images or any(first.values())):
        return []
    no_more = {"resources": {"limits": dict.fromkeys(limits, "0")}} if limits else {}
    return [
        without_empty(first),
        *({**without_empty({"image": _image(each, names)}), **no_more} for each in pod.images[1:]),
    ]


def _image(name: str, names: Names) -> str:
    """The same image has the same name, in whatever way it is written."""
    made = names("image", full_name(name))
    return name if made == full_name(name) else made


def write_amounts(amounts: Mapping[str, int], names: Names) -> dict[str, str]:
    """Base units as quantities, exactly."""
    return {
        resource_name(name, names): f"{amount}m" if name == CPU else str(amount)
        for name, amount in amounts.items()
    }


def resource_name(name: str, names: Names) -> str:
    """A resource; that of a vendor may be anybody's word."""
    is_public = name in _STANDARD or name.startswith(_PUBLIC_PREFIXES)
    return name if is_public else names("resource", name)


def _annotations(given: PodAnnotations, names: Names) -> dict[str, str]:
    numbers = {
        f"{PREFIX}{name.replace('_', '-')}": value
        for name in ("data_mb", "bandwidth_mbps", "deadline_s", "response_time_ms")
        if (value := getattr(given, name)) is not None
    }
    if given.qos_edge_ratio is not None:
        numbers[f"{PREFIX}qos-edge-ratio"] = given.qos_edge_ratio
    found = {key: f"{value!r}" for key, value in numbers.items()}
    if given.user_node is not None:
        found[f"{PREFIX}user-node"] = names("node", given.user_node)
    if given.profile_ms:
        profile = {names.board(name): ms for name, ms in given.profile_ms.items()}
        found[f"{PREFIX}profile-ms"] = json.dumps(profile)
    return found


def _toleration(each: Toleration, names: Names) -> Manifest:
    return without_empty(
        {
            "key": names.key(each.key),
            "operator": each.operator if each.operator != "Equal" else None,
            "value": names.value(each.key, each.value),
            "effect": each.effect,
        }
    )


def _affinity(pod: Pod, names: Names) -> Manifest:
    preferred = pod.preferences.pods
    of_node = {
        REQUIRED: None
        if pod.required_affinity is None
        else {"nodeSelectorTerms": [write_term(each, names) for each in pod.required_affinity]},
        PREFERRED: [
            {"weight": weight, "preference": write_term(term, names)}
            for weight, term in pod.preferences.nodes
        ],
    }

    def of_pods(required: Iterable[AffinityTerm], sign: int) -> Manifest:
        weighted = [
            {
                "weight": sign * each.weight,
                "podAffinityTerm": _affinity_term(each.term, pod.namespace, names),
            }
            for each in preferred
            if sign * each.weight > 0
        ]
        terms = [_affinity_term(each, pod.namespace, names) for each in required]
        return without_empty({REQUIRED: terms, PREFERRED: weighted})

    return without_empty(
        {
            "nodeAffinity": without_empty(of_node),
            "podAffinity": of_pods(pod.affinity, +1),
            "podAntiAffinity": of_pods(pod.anti_affinity, -1),
        }
    )


def _affinity_term(term: AffinityTerm, namespace: str, names: Names) -> Manifest:
    made: Manifest = {"topologyKey": names.key(term.topology_key)}
    if term.selector is not None:
        made["labelSelector"] = write_selector(term.selector, names)
    if term.namespace_selector is not None:
        made["namespaceSelector"] = write_selector(term.namespace_selector, names)
    if term.namespace_selector is not None or term.namespaces != {namespace}:
        made["namespaces"] = [names("namespace", each) for each in sorted(term.namespaces)]
    return made


def _spread(each: SpreadConstraint, names: Names, action: str = "DoNotSchedule") -> Manifest:
    made: Manifest = {
        "topologyKey": names.key(each.topology_key),
        "maxSkew": each.max_skew,
        "whenUnsatisfiable": action,
    }
    if each.selector is not None:
        made["labelSelector"] = write_selector(each.selector, names)
    if each.min_domains != 1:
        made["minDomains"] = each.min_domains
    if not each.honor_affinity:
        made["nodeAffinityPolicy"] = "Ignore"
    if each.honor_taints:
        made["nodeTaintsPolicy"] = "Honor"
    return made


def _volumes(pod: Pod, names: Names) -> Iterable[Manifest]:
    for number, claim in enumerate(pod.claims):
        if claim.ephemeral:
            yield {"name": names("claim", claim.name), "ephemeral": {}}
        else:
            source = {"claimName": names.claim(pod.namespace, claim.name)}
            yield {"name": f"claim-{number}", "persistentVolumeClaim": source}
    for number, disk in enumerate(pod.disks):
        yield {"name": f"disk-{number}", disk.kind: _disk(disk, names)}


def _disk(disk: Disk, names: Names) -> Manifest:
    made: Manifest = {_DISK_FIELDS[DISKS[disk.kind]]: names("disk", disk.name)}
    if disk.kind == "rbd":
        pool, _, image = disk.name.partition("/")
        monitors = [names("address", each) for each in sorted(disk.monitors)]
        made = {"pool": names("disk", pool), "image": names("disk", image), "monitors": monitors}
    return without_empty({**made, "readOnly": disk.read_only})


def write_selector(selector: Selector, names: Names) -> Manifest:
    """A label selector. One value that must be comes under matchLabels, as far as that keeps the
    order."""
    labels: dict[str, str] = {}
    rest = list(selector)
    while rest and rest[0].operator == "In" and len(rest[0].values) == 1:
        if rest[0].key in labels:
            break
        first = rest.pop(0)
        labels[first.key] = first.values[0]
    expressions = [_requirement(each, names) for each in rest]
    return without_empty({"matchLabels": names.labels(labels), "matchExpressions": expressions})


def write_term(term: Iterable[Requirement], names: Names) -> Manifest:
    """A term of a node selector."""
    each = list(term)
    return without_empty(
        {
            "matchExpressions": [_requirement(r, names) for r in each if not r.on_name],
            "matchFields": [_requirement(r, names) for r in each if r.on_name],
        }
    )


def _requirement(each: Requirement, names: Names) -> Manifest:
    if each.on_name:
        values = [names("node", value) for value in each.values]
        return {"key": each.key, "operator": each.operator, "values": values}
    if each.operator in ("Gt", "Lt"):
        names.compared(each.key)
    values = [names.value(each.key, value) for value in each.values]
    made = {"key": names.key(each.key), "operator": each.operator, "values": values}
    return made if values else {"key": made["key"], "operator": each.operator}


# Objects of the cluster.


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
        "deletionTimestamp": _SOME_TIME if claim.terminating else None,
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
        "deletionTimestamp": _SOME_TIME if volume.terminating else None,
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
    kind = "service" if made.kind == "Service" else "owner"
    selector: Manifest | None = None
    if made.selector is not None:
        selector = write_selector(made.selector, names)
        if made.kind in ("Service", "ReplicationController"):
            selector = selector.get("matchLabels", {})
    metadata = {
        "name": names(kind, made.name),
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
