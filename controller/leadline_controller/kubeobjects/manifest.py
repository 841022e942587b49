"""Kubernetes objects as JSON -> the core's Node and Pod.

One reader for API objects and for the manifests in snapshot files. What it meets and
can't model becomes the pod's `problem`, so that the pod is refused and not guessed at.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from leadline_controller.framework.images import read_listed_images
from leadline_controller.framework.model import (
    PODS,
    HostPort,
    Node,
    Pod,
    PodAnnotations,
    Taint,
    Toleration,
)
from leadline_controller.framework.selectors import Terms
from leadline_controller.kubeobjects.amounts import (
    is_sidecar,
    pod_limits,
    pod_requests,
    read_amounts,
)
from leadline_controller.kubeobjects.annotations import AnnotationError, read_annotations
from leadline_controller.kubeobjects.demands import (
    read_affinity,
    read_needed_features,
    read_spread,
    read_volumes,
)
from leadline_controller.kubeobjects.limits import excess, excess_volumes, read_aversions
from leadline_controller.kubeobjects.selectors import read_terms
from leadline_controller.parsing.addresses import read_unicast
from leadline_controller.parsing.fields import Fields

_IP_ADDRESSES = ("InternalIP", "ExternalIP")
# Demands that only a scheduler that knows more than the filters do can meet.
_NOT_MODELLED = ("resourceClaims", "schedulingGroup", "workloadRef")


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
        allocatable=read_amounts(status.object("allocatable")),
        labels=labels,
        taints=read_taints(spec),
        unschedulable=spec.flag("unschedulable", default=False),
        ready=conditions.get("Ready") == "True",
        tier=labels.get("leadline.dev/tier", ""),
        bandwidth_mbps=_label_number(labels, "leadline.dev/bandwidth-mbps"),
        image_layers=frozenset(layer.digest for image in images for layer in image.layers),
        images=images,
        features=frozenset(status.texts("declaredFeatures")),
        addresses=tuple(_addresses(status)),
    )


def read_pod(manifest: Mapping[str, Any], path: str = "pod") -> Pod:
    """A v1 Pod. Raises FieldError when the API server would not have taken it; annotations
    that can't be read and demands that are not modelled are said in the pod's `problem`."""
    pod = Fields(manifest, path)
    metadata, spec, status = pod.object("metadata"), pod.object("spec"), pod.object("status")
    hints, problem = _read_hints(metadata)
    containers = list(spec.objects("containers"))
    too_much, too_many_volumes = excess(metadata, spec), excess_volumes(spec)
    # It is placed nowhere, so what it demands and takes need not be known.
    is_left_out = bool(too_much or too_many_volumes) and not spec.text("nodeName", "")
    claims, disks, unknown_volume = ((), (), None) if is_left_out else read_volumes(spec)
    return Pod(
        namespace=metadata.name("namespace", "default"),
        name=metadata.name("name"),
        uid=metadata.name("uid", ""),
        requests={PODS: 1} if is_left_out else {**pod_requests(spec, status), PODS: 1},
        limits={} if is_left_out else pod_limits(spec),
        host_ports=() if is_left_out else tuple(_host_ports(spec)),
        claims=claims,
        disks=disks,
        features=read_needed_features(spec),
        images=tuple(c.text("image", "") for c in containers),
        hints=hints,
        labels=metadata.text_map("labels"),
        scheduler_name=spec.text("schedulerName", "default-scheduler"),
        priority=spec.integer("priority", -(2**31), 2**31 - 1) or 0,
        preempts=spec.text("preemptionPolicy", "") != "Never",
        node_name=spec.name("nodeName", "") or None,
        finished=status.text("phase", "") in ("Succeeded", "Failed"),
        terminating=metadata.has("deletionTimestamp"),
        gated=bool(spec.raw("schedulingGates")),
        problem=problem or unknown_volume or too_much or too_many_volumes or _not_modelled(spec),
        **(_demands(metadata, spec) if too_much is None else _demands_too_large(spec)),
    )


def _addresses(status: Fields) -> Iterator[str]:
    for entry in status.objects("addresses"):
        if entry.text("type", "") in _IP_ADDRESSES:
            address = read_unicast(entry.text("address", ""))
            if address is not None:
                yield str(address)


def _demands(metadata: Fields, spec: Fields) -> dict[str, Any]:
    """The fields of a Pod that say which nodes and neighbours it wants."""
    namespace, labels = metadata.name("namespace", "default"), metadata.text_map("labels")
    return {
        "node_selector": spec.text_map("nodeSelector"),
        "required_affinity": _required_affinity(spec),
        "tolerations": tuple(_toleration(t) for t in spec.objects("tolerations")),
        "affinity": read_affinity(spec, "podAffinity", namespace, labels),
        "anti_affinity": read_affinity(spec, "podAntiAffinity", namespace, labels),
        "spread": read_spread(spec, labels),
    }


def _demands_too_large(spec: Fields) -> dict[str, Any]:
    """The same where there are too many. The pod is placed nowhere; one that is on a node keeps
    all others out of its domains, as which of them it minds would take too long to find out."""
    return {"anti_affinity": read_aversions(spec)} if spec.text("nodeName", "") else {}


def _label_number(labels: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(labels[name])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < float("inf") else None


def _read_hints(metadata: Fields) -> tuple[PodAnnotations, str | None]:
    try:
        return read_annotations(metadata.text_map("annotations")), None
    except AnnotationError as error:
        return PodAnnotations(), str(error)


def _toleration(toleration: Fields) -> Toleration:
    return Toleration(
        key=toleration.text("key", ""),
        operator=toleration.text("operator", "") or "Equal",
        value=toleration.text("value", ""),
        effect=toleration.text("effect", ""),
    )


def _host_ports(spec: Fields) -> Iterable[HostPort]:
    on_host = spec.flag("hostNetwork", default=False)
    for kind in ("containers", "initContainers"):
        for container in spec.objects(kind):
            if kind == "initContainers" and not is_sidecar(container):
                continue
            for port in container.objects("ports"):
                number = port.integer("hostPort", 0, 65535)
                if not number and on_host:
                    number = port.integer("containerPort", 1, 65535)
                if number:
                    ip = port.text("hostIP", "") or "0.0.0.0"  # noqa: S104  # Kubernetes' default, nothing binds here
                    yield HostPort(ip, port.text("protocol", "") or "TCP", number)


def _required_affinity(spec: Fields) -> Terms | None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = spec.object("affinity").object("nodeAffinity")
    return read_terms(affinity.object(required)) if affinity.has(required) else None


def _not_modelled(spec: Fields) -> str | None:
    """What this pod demands that the filters don't know, as one sentence."""
    demanded = next((name for name in _NOT_MODELLED if spec.raw(name)), None)
    return f"{demanded} is not supported" if demanded else None
