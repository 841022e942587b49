"""Kubernetes objects as JSON -> the core's Node and Pod.

One reader for API objects and for the manifests in snapshot files. What it meets and
can't model becomes the pod's `problem`, so that the pod is refused and not guessed at.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from leadline_controller.core.fields import FieldError, Fields
from leadline_controller.core.hints import HintError, read_hints
from leadline_controller.core.model import (
    CPU,
    PODS,
    Hints,
    HostPort,
    Node,
    Pod,
    Requirement,
    Taint,
    Toleration,
)
from leadline_controller.core.quantity import QuantityError, parse_quantity

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


def read_amounts(amounts: Fields) -> dict[str, int]:
    """A resource list ("cpu": "500m") in base units. Raises FieldError."""
    found = {}
    for name, value in amounts.items():
        try:
            found[name] = parse_quantity(str(value), per_unit=1000 if name == CPU else 1)
        except QuantityError as error:
            raise FieldError(f"{amounts.at(name)}: {error}") from None
        if found[name] < 0:
            raise FieldError(f"{amounts.at(name)}: expected 0 or more, got {value}")
    return found


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
    """A v1 Pod. Raises FieldError when it is no pod at all; whatever else can't be read or
    modelled is said in the pod's `problem`."""
    pod = Fields(manifest, path)
    metadata, spec, status = pod.object("metadata"), pod.object("spec"), pod.object("status")
    hints, problem = _read_hints(metadata)
    containers = list(spec.objects("containers"))
    return Pod(
        namespace=metadata.text("namespace", "default"),
        name=metadata.text("name"),
        uid=metadata.text("uid", ""),
        requests={**_effective(spec, "requests"), PODS: 1},
        limits=_limits(spec),
        node_selector=spec.text_map("nodeSelector"),
        required_affinity=_required_affinity(spec),
        tolerations=tuple(_toleration(t) for t in spec.objects("tolerations")),
        host_ports=tuple(_host_ports(spec)),
        images=tuple(c.text("image", "") for c in containers),
        hints=hints,
        labels=metadata.text_map("labels"),
        scheduler_name=spec.text("schedulerName", "default-scheduler"),
        priority=int(spec.raw("priority") or 0),
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


def _container_amounts(container: Fields, which: str) -> Counter[str]:
    resources = container.object("resources")
    amounts = read_amounts(resources.object(which))
    if which == "requests":
        # As the API server defaults it: who states only a limit asks for that much.
        amounts = {**read_amounts(resources.object("limits")), **amounts}
    return Counter(amounts)


def _effective(spec: Fields, which: str) -> dict[str, int]:
    """The pod's effective amounts: its containers and sidecars together, or the peak while
    an init container runs beside the sidecars started before it; plus overhead."""
    total: Counter[str] = Counter()
    for container in spec.objects("containers"):
        total += _container_amounts(container, which)
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in spec.objects("initContainers"):
        amounts = _container_amounts(container, which)
        if container.text("restartPolicy", "") == "Always":
            sidecars += amounts
            peak |= sidecars
        else:
            peak |= amounts + sidecars
    total = (total + sidecars) | peak
    total = Counter({**total, **_container_amounts(spec, which)})  # pod-level resources win
    return dict(total + Counter(read_amounts(spec.object("overhead"))))


def _limits(spec: Fields) -> dict[str, int]:
    """Limits of the whole pod: only a resource that every container limits is limited."""
    pod_level = read_amounts(spec.object("resources").object("limits"))
    each = [
        read_amounts(c.object("resources").object("limits")) for c in spec.objects("containers")
    ]
    shared = set.intersection(*(set(limits) for limits in each)) if each else set()
    summed = {name: sum(limits[name] for limits in each) for name in shared}
    return {**summed, **pod_level}


def _toleration(toleration: Fields) -> Toleration:
    return Toleration(
        key=toleration.text("key", ""),
        operator=toleration.text("operator", "Equal"),
        value=toleration.text("value", ""),
        effect=toleration.text("effect", ""),
    )


def _host_ports(spec: Fields) -> Iterable[HostPort]:
    on_host = spec.flag("hostNetwork", default=False)
    for kind in ("containers", "initContainers"):
        for container in spec.objects(kind):
            if kind == "initContainers" and container.text("restartPolicy", "") != "Always":
                continue
            for port in container.objects("ports"):
                number = port.number("hostPort")
                if not number and on_host:
                    number = port.number("containerPort")
                if number:
                    ip = port.text("hostIP", "") or "0.0.0.0"  # noqa: S104  # Kubernetes' default, nothing binds here
                    yield HostPort(ip, port.text("protocol", "TCP"), int(number))


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
    operator = expression.text("operator")
    if operator not in _OPERATORS:
        raise FieldError(
            f"{expression.at('operator')}: expected one of {', '.join(_OPERATORS)}, "
            f"got {operator!r}"
        )
    return Requirement(expression.text("key"), operator, expression.texts("values"), on_name)


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
