"""Kubernetes objects as JSON -> the core's Node and Pod.

One reader for API objects and for the manifests in snapshot files. What it meets and
can't model becomes the pod's `problem`, so that the pod is refused and not guessed at.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from leadline_controller.core.amounts import (
    is_sidecar,
    pod_limits,
    pod_requests,
    read_amounts,
)
from leadline_controller.core.fields import Fields
from leadline_controller.core.hints import HintError, read_hints
from leadline_controller.core.model import (
    PODS,
    Hints,
    HostPort,
    Node,
    Pod,
    Requirement,
    Taint,
    Toleration,
)

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_PLAIN_VOLUMES = (
    "configMap",
    "secret",
    "downwardAPI",
    "projected",
    "emptyDir",
    "hostPath",
    "image",
)


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
    return Node(
        name=metadata.text("name"),
        allocatable=read_amounts(status.object("allocatable")),
        labels=labels,
        taints=read_taints(spec),
        unschedulable=spec.flag("unschedulable", default=False),
        ready=conditions.get("Ready") == "True",
        tier=labels.get("leadline.dev/tier", ""),
        bandwidth_mbps=_label_number(labels, "leadline.dev/bandwidth-mbps"),
    )


def read_pod(manifest: Mapping[str, Any], path: str = "pod") -> Pod:
    """A v1 Pod. Raises FieldError when the API server would not have taken it; annotations
    that can't be read and demands that are not modelled are said in the pod's `problem`."""
    pod = Fields(manifest, path)
    metadata, spec, status = pod.object("metadata"), pod.object("spec"), pod.object("status")
    hints, problem = _read_hints(metadata)
    containers = list(spec.objects("containers"))
    return Pod(
        namespace=metadata.text("namespace", "default"),
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        requests={**pod_requests(spec, status), PODS: 1},
        limits=pod_limits(spec),
        node_selector=spec.text_map("nodeSelector"),
        required_affinity=_required_affinity(spec),
        tolerations=tuple(_toleration(t) for t in spec.objects("tolerations")),
        host_ports=tuple(_host_ports(spec)),
        images=tuple(c.text("image", "") for c in containers),
        hints=hints,
        labels=metadata.text_map("labels"),
        scheduler_name=spec.text("schedulerName", "default-scheduler"),
        priority=spec.integer("priority", -(2**31), 2**31 - 1) or 0,
        node_name=spec.text("nodeName", "") or None,
        finished=status.text("phase", "") in ("Succeeded", "Failed"),
        terminating=metadata.has("deletionTimestamp"),
        gated=bool(spec.raw("schedulingGates")),
        problem=problem or _not_modelled(spec),
    )


def _label_number(labels: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(labels[name])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < float("inf") else None


def _read_hints(metadata: Fields) -> tuple[Hints, str | None]:
    try:
        return read_hints(metadata.text_map("annotations")), None
    except HintError as error:
        return Hints(), str(error)


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


def _required_affinity(spec: Fields) -> tuple[tuple[Requirement, ...], ...] | None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = spec.object("affinity").object("nodeAffinity")
    if not affinity.has(required):
        return None
    terms = affinity.object(required).objects("nodeSelectorTerms")
    return tuple(
        tuple(
            _requirement(expression, on_name=kind == "matchFields")
            for kind in ("matchExpressions", "matchFields")
            for expression in term.objects(kind)
        )
        for term in terms
    )


def _requirement(expression: Fields, *, on_name: bool) -> Requirement:
    key, operator = expression.text("key"), expression.text("operator")
    if operator not in _OPERATORS:
        raise expression.error("operator", f"one of {', '.join(_OPERATORS)}")
    if on_name and key != "metadata.name":
        raise expression.error("key", "metadata.name, the only field there is")
    return Requirement(key, operator, expression.texts("values"), on_name)


def _not_modelled(spec: Fields) -> str | None:
    """What this pod demands that the filters don't know yet, as one sentence."""
    affinity = spec.object("affinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        if affinity.object(kind).raw("requiredDuringSchedulingIgnoredDuringExecution"):
            return f"required {kind} is not supported yet"
    for constraint in spec.objects("topologySpreadConstraints"):
        if constraint.text("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            return "topologySpreadConstraints with DoNotSchedule are not supported yet"
    if spec.raw("resourceClaims"):
        return "resourceClaims are not supported yet"
    for volume in spec.objects("volumes"):
        for source, _ in volume.items():
            if source not in ("name", *_PLAIN_VOLUMES):
                return f"volumes of kind {source} are not supported yet"
    return None
