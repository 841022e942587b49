"""Manifests of nodes and pods -> the framework's Node and Pod.

It reads API objects and the manifests in snapshot files. A field that is not supported becomes
the pod's `problem`, so that the pod is rejected and not scheduled by guesswork.
"""

import marshal
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
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
_NOTHING, _NO_STATUS = Fields({}, "spec"), Fields({}, "status")
# Fields of a pod's status on which its requests and images depend.
_OF_CONTAINERS = frozenset(
    ("containerStatuses", "initContainerStatuses", "resources", "allocatedResources", "resize")
)
_MAX_TEMPLATES, _MAX_KEY_BYTES = 256, 16_384
_TOKENS_FIELDS, _TOKENS_NAME = {"name", "projected"}, "kube-api-access-"
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


class PodTemplates:
    """What is read of namespace, labels and spec, once for all pods that agree in them: the
    versions of one pod, and most often the replicas of a workload. Those of the 256 last ones are
    kept, if they are short: pods determine them."""

    def __init__(self) -> None:
        self._read: OrderedDict[bytes, Pod] = OrderedDict()

    def read(self, metadata: Fields, spec: Fields) -> tuple[Pod, bool]:
        """See read_template. Raises FieldError."""
        # Marshal is the quickest of the encodings, and version 2 knows no references, so that it
        # does not depend on which objects are the same.
        try:
            key = marshal.dumps((metadata.raw("namespace"), metadata.raw("labels"), _seen(spec)), 2)
        except ValueError:  # it is nested too deeply
            key = b""
        if not 0 < len(key) <= _MAX_KEY_BYTES:
            return read_template(metadata, spec)
        known = self._read.get(key)
        if known is None:
            known, is_excessive = read_template(metadata, spec)
            if is_excessive:
                return known, True
            self._read[key] = known
            if len(self._read) > _MAX_TEMPLATES:
                self._read.popitem(last=False)
        self._read.move_to_end(key)
        return known, False


def _seen(spec: Fields) -> dict[str, Any]:
    """What of a spec its template depends on: neither the node, nor the mounts and the volume of
    the service account's token, which has a random name."""
    seen = {name: value for name, value in spec.data.items() if name != "nodeName"}
    for kind in ("containers", "initContainers"):
        seen[kind] = [
            {name: value for name, value in each.data.items() if name != "volumeMounts"}
            for each in spec.objects(kind)
        ]
    seen["volumes"] = [
        each.data
        for each in spec.objects("volumes")
        if each.data.keys() != _TOKENS_FIELDS or not each.text("name", "").startswith(_TOKENS_NAME)
    ]
    return seen


def read_template(metadata: Fields, spec: Fields) -> tuple[Pod, bool]:
    """A pod as far as its namespace, labels and spec say, without node, and whether it has more
    constraints or volumes than Leadline evaluates. Raises FieldError."""
    labels, namespace = metadata.text_map("labels"), metadata.name("namespace", "default")
    excess = find_excess(constraint_counts(metadata, spec))
    excess_volumes = find_excess(volume_counts(spec))
    # Nothing needs to be known of a pod that will not be scheduled.
    is_excessive = bool(excess or excess_volumes)
    needs = _NOTHING if is_excessive and not spec.text("nodeName", "") else spec
    # One that runs repels all pods if finding out which ones would take too long.
    repels_all = excess and spec.text("nodeName", "")
    constraints = _NOTHING if excess else spec
    affinity = constraints.object("affinity").object("nodeAffinity")
    claims, disks, unsupported_volume = read_volumes(needs)
    awaited, _ = read_image_states(spec, _NO_STATUS)
    unsupported = (f"{name} is not supported" for name in _UNSUPPORTED if spec.raw(name))
    read = Pod(
        namespace=namespace,
        name="",
        requests={**pod_requests(needs, _NO_STATUS), PODS: 1},
        limits=pod_limits(needs),
        host_ports=tuple(_host_ports(needs)),
        claims=claims,
        disks=disks,
        features=read_needed_features(spec),
        images=tuple(c.text("image", "") for c in spec.objects("containers")),
        init_images=tuple(c.text("image", "") for c in spec.objects("initContainers")),
        awaited_images=awaited,
        pull_secrets=tuple(s.name("name", "") for s in spec.objects("imagePullSecrets")),
        labels=labels,
        scheduler_name=spec.text("schedulerName", "default-scheduler"),
        priority=spec.integer("priority", -(2**31), 2**31 - 1) or 0,
        preempts=spec.text("preemptionPolicy", "") != "Never",
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
        gated=bool(spec.raw("schedulingGates")),
        stays=_local_data(spec),
        problem=unsupported_volume or excess or excess_volumes or next(unsupported, None),
    )
    return read, is_excessive


def read_pod(
    manifest: Mapping[str, Any], path: str = "pod", templates: PodTemplates | None = None
) -> Pod:
    """A v1 Pod. Raises FieldError when the API server would not accept it. Unreadable annotations
    and unsupported fields become the pod's `problem`. templates: of the pods read before."""
    pod = Fields(manifest, path)
    metadata, spec, status = pod.object("metadata"), pod.object("spec"), pod.object("status")
    read = read_template if templates is None else templates.read
    template, is_excessive = read(metadata, spec)
    texts, problem, annotations = metadata.text_map("annotations"), None, PodAnnotations()
    try:
        annotations = read_annotations(texts)
    except AnnotationError as error:
        problem = str(error)
    cost = texts.get(DELETION_COST, "")
    node_name, phase = spec.name("nodeName", "") or None, status.text("phase", "")
    needs = _NOTHING if is_excessive and node_name is None else spec
    conditions = [
        (each.text("type", ""), each.raw("status"), each.raw("reason"))
        for each in status.objects("conditions")
    ]
    requests, resize = template.requests, None
    awaited: tuple[str, ...] = template.awaited_images
    started: tuple[tuple[str, str], ...] = ()
    is_finished = phase in ("Succeeded", "Failed")
    if is_finished or not _OF_CONTAINERS.isdisjoint(status.data):
        awaited, started = read_image_states(spec, status)
        requests = {**pod_requests(needs, status), PODS: 1}
    if node_name is not None:
        resize = read_resize(needs, status)
    return replace(
        template,
        name=metadata.name("name"),
        uid=metadata.name("uid", ""),
        requests=requests,
        awaited_images=awaited,
        started_images=started,
        annotations=annotations,
        nominated_node=status.name("nominatedNodeName", "") or None,
        started_s=read_time(status, "startTime"),
        preempted=("DisruptionTarget", "True", PREEMPTED) in conditions,
        node_name=node_name,
        finished=is_finished,
        terminating=metadata.has("deletionTimestamp"),
        resize=resize,
        owner=read_owner(metadata),
        ready=any(each[:2] == ("Ready", "True") for each in conditions),
        created_s=read_time(metadata, "creationTimestamp"),
        stays=_why_it_stays(texts, template.stays),
        problem=problem or template.problem,
        ip=str(read_unicast(status.text("podIP", "")) or ""),
        deletion_cost=int(cost) if _INTEGER.fullmatch(cost) else None,
        warnings=pod_warnings(texts, template.labels),
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


def _why_it_stays(annotations: Mapping[str, str], local_data: str) -> str:
    if _MIRROR in annotations:
        return "a static pod, which its kubelet starts from a file"
    if KEEP in annotations:  # "false" says that what local volumes hold may be lost
        return "" if annotations[KEEP] == "false" else f"annotation {KEEP}"
    return local_data


def _local_data(spec: Fields) -> str:
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
