"""Pods -> minimal manifests, the inverse of the reader.

Only what decides where pods go is written: no environments, arguments, commands, secrets or
annotations of others can be in it, because the framework's objects have no place for them. Names
say what things are called; see there.
"""

import json
from collections.abc import Iterable, Mapping

from msgspec import structs

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
from leadline_controller.framework.services import TEMPLATE_HASH
from leadline_controller.kubeobjects.annotations import PREFIX
from leadline_controller.kubeobjects.demands import DISKS
from leadline_controller.kubeobjects.names import Names
from leadline_controller.kubeobjects.peers import write_peers
from leadline_controller.kubeobjects.schema import PREFERRED, REQUIRED, VolumeSource
from leadline_controller.kubeobjects.selectors import (
    Manifest,
    without_empty,
    write_selector,
    write_term,
)

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # Kubernetes' wildcard, nothing binds here
_STANDARD = ("cpu", "memory", "pods", "ephemeral-storage")
_PUBLIC_PREFIXES = ("hugepages-", "attachable-volumes-", "kubernetes.io/")
_VERSIONS = ("", "v1", "apps/v1", "batch/v1")
_OWNERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "Node")
_DISK_FIELDS = {each.name: each.encode_name for each in structs.fields(VolumeSource)}
SOME_TIME = "2000-01-01T00:00:00Z"  # of a deletion, of which only that it is asked for counts


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
                "name": names.owner(owner.name, pod.labels.get(TEMPLATE_HASH, "")),
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
        "deletionTimestamp": SOME_TIME if pod.terminating else None,
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
    if given.peers:
        found[f"{PREFIX}peers"] = write_peers(given.peers, names.peer)
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
