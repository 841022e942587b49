"""Manifests of nodes and pods -> the framework's Node and Pod.

It reads API objects and the manifests in snapshot files. A field that is not supported becomes
the pod's `problem`, so that the pod is rejected and not scheduled by guesswork.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from leadline_controller.framework.images import read_listed_images
from leadline_controller.framework.model import (
    PODS,
    HostPort,
    Node,
    Owner,
    Pod,
    PodAnnotations,
    Taint,
    Toleration,
)
from leadline_controller.kubeobjects.amounts import (
    lasting_containers,
    pod_limits,
    pod_requests,
    read_resize,
    read_resource_list,
)
from leadline_controller.kubeobjects.annotations import (
    AnnotationError,
    is_amount,
    node_warnings,
    pod_warnings,
    read_annotations,
)
from leadline_controller.kubeobjects.demands import (
    constraint_counts,
    find_excess,
    read_affinity,
    read_needed_features,
    read_preferences,
    read_repelling_all,
    read_spread,
    read_volumes,
    volume_counts,
)
from leadline_controller.kubeobjects.images import read_image_states
from leadline_controller.kubeobjects.selectors import read_terms
from leadline_controller.parsing.addresses import read_unicast
from leadline_controller.parsing.fields import Fields

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# The cost of a pod that a move takes away; lower than any that people set.
GOES_FIRST = -1_000_000_000
_INTEGER = re.compile("-?[0-9]{1,10}", re.ASCII)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NOTHING = Fields({}, "spec")
KEEP = "leadline.dev/keep"
# The reason of the condition DisruptionTarget by which schedulers tell each other.
PREEMPTED = "PreemptionByScheduler"
_MIRROR = "kubernetes.io/config.mirror"
# Their contents are lost, or left behind, when the pod goes to another node.
_LOCAL_VOLUMES = ("hostPath", "emptyDir")
# Fields of a pod's spec that the filters do not support.
_UNSUPPORTED = ("resourceClaims", "schedulingGroup", "workloadRef")


def read_taints(parent: Fields) -> tuple[Taint, ...]:
    """The taints of a node's spec. Raises FieldError."""
    return tuple(
        Taint(taint.text("key"), taint.text("value", ""), taint.text("effect"))
        for taint in parent.objects("taints")
    )


def read_node(manifest: Mapping[str, Any], path: str = "node") -> Node:
    """A v1 Node. Raises FieldError."""
    node = Fields(manifest, path)
    metadata, spec, status = node.object("metadata"), node.object("spec"), node.object("status")
    conditions = {c.text("type"): c.text("status") for c in status.objects("conditions")}
    labels = metadata.text_map("labels")
    images = tuple(read_listed_images(status.raw("images")))
    return Node(
        name=metadata.name("name"),
        allocatable=read_resource_list(status.object("allocatable")),
        labels=labels,
        taints=read_taints(spec),
        unschedulable=spec.flag("unschedulable", default=False),
        ready=conditions.get("Ready") == "True",
        tier=labels.get("leadline.dev/tier", ""),
        bandwidth_mbps=_label_number(labels, "leadline.dev/bandwidth-mbps"),
        image_layers=frozenset(layer.digest for image in images for layer in image.layers),
        images=images,
        features=frozenset(status.texts("declaredFeatures")),
        warnings=node_warnings(metadata.text_map("annotations"), labels),
        addresses=tuple(
            str(address)
            for entry in status.objects("addresses")
            if entry.text("type", "") in ("InternalIP", "ExternalIP")
            and (address := read_unicast(entry.text("address", "")))
        ),
    )


def read_pod(manifest: Mapping[str, Any], path: str = "pod") -> Pod:
    """A v1 Pod. Raises FieldError when the API server would not accept it. Unreadable annotations
    and unsupported fields become the pod's `problem`."""
    pod = Fields(manifest, path)
    metadata, spec, status = pod.object("metadata"), pod.object("spec"), pod.object("status")
    labels = metadata.text_map("labels")
    annotations, problem = PodAnnotations(), None
    try:
        annotations = read_annotations(metadata.text_map("annotations"))
    except AnnotationError as error:
        problem = str(error)
    cost = metadata.text_map("annotations").get(DELETION_COST, "")
    namespace, node_name = metadata.name("namespace", "default"), spec.name("nodeName", "") or None
    excess = find_excess(constraint_counts(metadata, spec))
    excess_volumes = find_excess(volume_counts(spec))
    # Nothing needs to be known of a pod that will not be scheduled.
    needs = _NOTHING if (excess or excess_volumes) and node_name is None else spec
    # One that runs repels all pods if finding out which ones would take too long.
    repels_all = excess and node_name
    constraints = _NOTHING if excess else spec
    affinity = constraints.object("affinity").object("nodeAffinity")
    claims, disks, unsupported_volume = read_volumes(needs)
    awaited, started = read_image_states(spec, status)
    unsupported = (f"{name} is not supported" for name in _UNSUPPORTED if spec.raw(name))
    return Pod(
        namespace=namespace,
        name=metadata.name("name"),
        uid=metadata.name("uid", ""),
        requests={**pod_requests(needs, status), PODS: 1},
        limits=pod_limits(needs),
        host_ports=tuple(_host_ports(needs)),
        claims=claims,
        disks=disks,
        features=read_needed_features(spec),
        images=tuple(c.text("image", "") for c in spec.objects("containers")),
        init_images=tuple(c.text("image", "") for c in spec.objects("initContainers")),
        awaited_images=awaited,
        started_images=started,
        pull_secrets=tuple(s.name("name", "") for s in spec.objects("imagePullSecrets")),
        annotations=annotations,
        labels=labels,
        scheduler_name=spec.text("schedulerName", "default-scheduler"),
        priority=spec.integer("priority", -(2**31), 2**31 - 1) or 0,
        preempts=spec.text("preemptionPolicy", "") != "Never",
        nominated_node=status.name("nominatedNodeName", "") or None,
        started_s=read_time(status, "startTime"),
        preempted=any(
            each.text("type", "") == "DisruptionTarget"
            and each.text("status", "") == "True"
            and each.text("reason", "") == PREEMPTED
            for each in status.objects("conditions")
        ),
        node_name=node_name,
        node_selector=constraints.text_map("nodeSelector"),
        required_affinity=(
            read_terms(affinity.object(_REQUIRED)) if affinity.has(_REQUIRED) else None
        ),
        tolerations=tuple(
            Toleration(
                key=toleration.text("key", ""),
                operator=toleration.text("operator", "") or "Equal",
                value=toleration.text("value", ""),
                effect=toleration.text("effect", ""),
            )
            for toleration in constraints.objects("tolerations")
        ),
        affinity=read_affinity(constraints, "podAffinity", namespace, labels),
        anti_affinity=(
            read_repelling_all(spec)
            if repels_all
            else read_affinity(constraints, "podAntiAffinity", namespace, labels)
        ),
        spread=read_spread(constraints, labels, "DoNotSchedule"),
        preferences=read_preferences(constraints, namespace, labels),
        finished=status.text("phase", "") in ("Succeeded", "Failed"),
        terminating=metadata.has("deletionTimestamp"),
        gated=bool(spec.raw("schedulingGates")),
        resize=read_resize(needs, status) if node_name is not None else None,
        owner=read_owner(metadata),
        ready=any(
            each.text("type", "") == "Ready" and each.text("status", "") == "True"
            for each in status.objects("conditions")
        ),
        created_s=read_time(metadata, "creationTimestamp"),
        stays=_why_it_stays(metadata, spec),
        problem=problem
        or unsupported_volume
        or excess
        or excess_volumes
        or next(unsupported, None),
        ip=str(read_unicast(status.text("podIP", "")) or ""),
        deletion_cost=int(cost) if _INTEGER.fullmatch(cost) else None,
        warnings=pod_warnings(metadata.text_map("annotations"), labels),
    )


def read_owner(metadata: Fields) -> Owner | None:
    """The owner reference with controller: true, of any object. Raises FieldError."""
    for each in metadata.objects("ownerReferences"):
        if each.flag("controller", default=False):
            names = ("kind", "name", "uid", "apiVersion")
            return Owner(*(each.text(name, "") for name in names))
    return None


def read_time(parent: Fields, name: str) -> float | None:
    """A time of the API server, seconds since 1970; None without one. Raises FieldError."""
    text = parent.text(name, "")
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise parent.error(name, "a time such as 2030-01-01T00:00:00Z") from None


def _why_it_stays(metadata: Fields, spec: Fields) -> str:
    annotations = metadata.text_map("annotations")
    if _MIRROR in annotations:
        return "a static pod, which its kubelet starts from a file"
    if KEEP in annotations:  # "false" says that what local volumes hold may be lost
        return "" if annotations[KEEP] == "false" else f"annotation {KEEP}"
    for volume in spec.objects("volumes"):
        for kind in _LOCAL_VOLUMES:
            if volume.has(kind) and volume.object(kind).text("medium", "") != "Memory":
                return f"volume {volume.text('name', '')[:80]!r} is {kind}: its data is on the node"
    return ""


def _label_number(labels: Mapping[str, str], name: str) -> float | None:
    text = labels.get(name, "")
    return float(text) if is_amount(text) else None


def _host_ports(spec: Fields) -> Iterable[HostPort]:
    on_host = spec.flag("hostNetwork", default=False)
    for container in lasting_containers(spec):
        for port in container.objects("ports"):
            number = port.integer("hostPort", 0, 65535)
            if not number and on_host:
                number = port.integer("containerPort", 1, 65535)
            if number:
                ip = port.text("hostIP", "") or "0.0.0.0"  # noqa: S104  # Kubernetes' default, nothing binds here
                yield HostPort(ip, port.text("protocol", "") or "TCP", number)
