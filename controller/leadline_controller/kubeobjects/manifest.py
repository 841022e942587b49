"""Manifests of nodes and pods -> the framework's Node and Pod.

It reads API objects and the manifests in snapshot files. A field that is not supported becomes
the pod's `problem`, so that the pod is rejected and not scheduled by guesswork.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from leadline_controller.framework.image_layers import listed_images
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
from leadline_controller.kubeobjects import schema
from leadline_controller.kubeobjects.amounts import (
    pod_limits,
    pod_requests,
    read_amounts,
    read_resize,
)
from leadline_controller.kubeobjects.annotations import (
    AnnotationError,
    is_amount,
    node_warnings,
    pod_warnings,
    read_annotations,
)
from leadline_controller.kubeobjects.demands import (
    find_excess,
    read_affinity,
    read_needed_features,
    read_preferences,
    read_spread,
    read_volumes,
    repelling_all,
)
from leadline_controller.kubeobjects.image_pulls import read_image_states
from leadline_controller.kubeobjects.selectors import read_terms
from leadline_controller.parsing.addresses import read_unicast
from leadline_controller.parsing.typed import decode

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# The cost of a pod that a move takes away; lower than any that people set.
GOES_FIRST = -1_000_000_000
_INTEGER = re.compile("-?[0-9]{1,10}", re.ASCII)
_NOTHING = schema.PodSpec()
KEEP = "leadline.dev/keep"
# The reason of the condition DisruptionTarget by which schedulers tell each other.
PREEMPTED = "PreemptionByScheduler"
_MIRROR = "kubernetes.io/config.mirror"
# Their contents are lost, or left behind, when the pod goes to another node.
_LOCAL_VOLUMES = ("hostPath", "emptyDir")


def read_node(manifest: object, path: str = "node") -> Node:
    """A v1 Node, as JSON or what was read from it. Raises FieldError."""
    node = decode(manifest, schema.Node, path)
    labels, spec, status = node.metadata.labels, node.spec, node.status
    images = tuple(listed_images((each.names or (), each.size_bytes) for each in status.images))
    return Node(
        name=node.metadata.name,
        allocatable=read_amounts(status.allocatable, f"{path}.status.allocatable"),
        labels=labels,
        taints=tuple(Taint(each.key, each.value, each.effect) for each in spec.taints),
        unschedulable=spec.unschedulable,
        ready=any((each.type, each.status) == ("Ready", "True") for each in status.conditions),
        tier=labels.get("leadline.dev/tier", ""),
        bandwidth_mbps=_label_number(labels, "leadline.dev/bandwidth-mbps"),
        image_layers=frozenset(layer.digest for image in images for layer in image.layers),
        images=images,
        features=frozenset(status.declared_features),
        warnings=node_warnings(node.metadata.annotations, labels),
        addresses=_addresses(
            each.get("address", "")
            for each in status.addresses
            if each.get("type") in ("InternalIP", "ExternalIP")
        ),
        pod_networks=tuple(spec.pod_cidrs or ()),
    )


def read_pod(manifest: object, path: str = "pod") -> Pod:
    """A v1 Pod, as JSON or what was read from it. Raises FieldError when the API server would not
    accept it. Unreadable annotations and unsupported fields become the pod's `problem`."""
    pod = decode(manifest, schema.Pod, path)
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    labels, namespace, texts = metadata.labels, metadata.namespace, metadata.annotations
    node_name, is_finished = spec.node_name or None, status.phase in ("Succeeded", "Failed")
    excess, excess_volumes = find_excess(labels, spec)
    # Nothing needs to be known of a pod that will not be scheduled.
    needs = _NOTHING if (excess or excess_volumes) and node_name is None else spec
    # One that runs repels all pods if finding out which ones would take too long.
    constraints = _NOTHING if excess else spec
    affinity = constraints.affinity
    anti_affinity = (
        repelling_all(spec)
        if excess and node_name
        else read_affinity(
            *(affinity.pod_anti_affinity.required, "podAntiAffinity", namespace, labels, path)
        )
    )
    claims, disks, unsupported_volume = read_volumes(needs, path)
    problem = unsupported_volume or excess or excess_volumes or spec.unsupported
    annotations = PodAnnotations()
    try:
        annotations = read_annotations(texts)
    except AnnotationError as error:
        problem = str(error)
    awaited, started = read_image_states(spec, status)
    runs_s, ended_s = _runs_and_ended_s(status)
    cost = texts.get(DELETION_COST, "")
    return Pod(
        namespace=namespace,
        name=metadata.name,
        uid=metadata.uid,
        requests={**pod_requests(needs, status, path), PODS: 1},
        limits=pod_limits(needs, path),
        node_selector=constraints.node_selector,
        required_affinity=read_terms(affinity.node_affinity.required),
        tolerations=tuple(
            Toleration(each.key, each.operator or "Equal", each.value, each.effect)
            for each in constraints.tolerations
        ),
        host_ports=tuple(_host_ports(needs)),
        affinity=read_affinity(
            *(affinity.pod_affinity.required, "podAffinity", namespace, labels, path)
        ),
        anti_affinity=anti_affinity,
        spread=read_spread(constraints, labels, "DoNotSchedule", path),
        preferences=read_preferences(constraints, namespace, labels, path),
        claims=claims,
        disks=disks,
        features=read_needed_features(spec),
        images=tuple(each.image for each in spec.containers),
        init_images=tuple(each.image for each in spec.init_containers),
        awaited_images=awaited,
        started_images=started,
        pull_secrets=tuple(each.get("name", "") for each in spec.image_pull_secrets),
        annotations=annotations,
        labels=labels,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority,
        preempts=spec.preemption_policy != "Never",
        nominated_node=status.nominated_node_name or None,
        started_s=_unix_s(status.start_time),
        bound_s=next(
            (
                _unix_s(each.last_transition_time)
                for each in status.conditions
                if (each.type, each.status) == ("PodScheduled", "True")
            ),
            None,
        ),
        runs_s=runs_s,
        ended_s=ended_s if is_finished else None,
        starting_s=_starting_s(status, runs_s),
        restarted=any(each.restart_count for each in status.container_statuses),
        preempted=any(
            (each.type, each.status, each.reason) == ("DisruptionTarget", "True", PREEMPTED)
            for each in status.conditions
        ),
        node_name=node_name,
        finished=is_finished,
        terminating=metadata.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        problem=problem,
        resize=read_resize(needs, status, path) if node_name else None,
        owner=controller_of(metadata),
        ready=any((each.type, each.status) == ("Ready", "True") for each in status.conditions),
        created_s=_unix_s(metadata.creation_timestamp),
        stays=_why_it_stays(texts, spec),
        deletion_cost=int(cost) if _INTEGER.fullmatch(cost) else None,
        ips=_addresses((status.pod_ip, *(each.get("ip", "") for each in status.pod_ips))),
        warnings=pod_warnings(texts, labels),
    )


def _addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """In canonical form, each once, without those that no machine can use."""
    found = (read_unicast(text) for text in texts if text)
    return tuple(dict.fromkeys(str(each) for each in found if each is not None))


def _unix_s(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _runs_and_ended_s(status: schema.PodStatus) -> tuple[float | None, float | None]:
    """Since when all containers have run, and when the last one ended, seconds since 1970."""
    ran = [each.state.ran for each in status.container_statuses]
    starts_s = [_unix_s(each.started_at) for each in ran]
    if status.start_time and any(each.restart_count for each in status.container_statuses):
        starts_s = [_unix_s(status.start_time)]
    known_s = [each for each in starts_s if each is not None]
    runs_s = max(known_s) if known_s and len(known_s) == len(starts_s) else None
    ends_s = (_unix_s(each.finished_at) for each in ran)
    return runs_s, max((each for each in ends_s if each is not None), default=None)


def _starting_s(status: schema.PodStatus, runs_s: float | None) -> float | None:
    """How long a pod took to be ready beside its pulls, all by its board's clock. Kubelets before
    1.29 do not say when the sandbox was there."""
    began_s = _unix_s(status.start_time)
    at_s = {
        each.type: _unix_s(each.last_transition_time)
        for each in status.conditions
        if each.status == "True"
    }
    sandbox_s, ready_s = at_s.get("PodReadyToStartContainers"), at_s.get("Ready")
    if began_s is None or sandbox_s is None or runs_s is None or ready_s is None:
        return None
    if any(each.restart_count for each in status.container_statuses):
        return None
    is_in_order = began_s <= sandbox_s <= runs_s <= ready_s
    return (sandbox_s - began_s) + (ready_s - runs_s) if is_in_order else None


def controller_of(metadata: schema.Metadata) -> Owner | None:
    """The owner reference with controller: true, of any object."""
    for each in metadata.owner_references:
        if each.controller:
            return Owner(each.kind, each.name, each.uid, each.api_version)
    return None


def _why_it_stays(annotations: Mapping[str, str], spec: schema.PodSpec) -> str:
    if _MIRROR in annotations:
        return "a static pod, which its kubelet starts from a file"
    if KEEP in annotations:  # "false" says that what local volumes hold may be lost
        return "" if annotations[KEEP] == "false" else f"annotation {KEEP}"
    for volume in spec.volumes:
        for kind in _LOCAL_VOLUMES:
            source = volume.get(kind)
            if source is not None and getattr(source, "medium", "") != "Memory":
                name = str(volume.get("name", ""))[:80]
                return f"volume {name!r} is {kind}: its data is on the node"
    return ""


def _label_number(labels: Mapping[str, str], name: str) -> float | None:
    text = labels.get(name, "")
    return float(text) if is_amount(text) else None


def _host_ports(spec: schema.PodSpec) -> Iterator[HostPort]:
    for container in spec.lasting:
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                ip = port.host_ip or "0.0.0.0"  # noqa: S104  # Kubernetes' default, nothing binds here
                yield HostPort(ip, port.protocol or "TCP", number)
