"""Cluster events and queueing hints: an unschedulable pod is retried only after an event that
can make it schedulable.

A filter names these events in its result; see cycle.FilterResult.requeue_on.
"""

from enum import Flag, auto

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.resources import (
    Claim,
    NamespaceLabels,
    Resource,
    StorageClass,
    Unreadable,
    Volume,
)


class ClusterEvent(Flag):
    """Changes that can make a pod schedulable.

    NODES: a node was added. RESOURCES_FREED, PORTS_FREED, BANDWIDTH: there may be more on a node.
    ASSIGNED_PODS: pods on nodes, or their labels, changed. MOUNTS: the claims and disks of pods
    on nodes changed. LIMITS: CSI drivers, their limits and capacities, or attachments changed.
    """

    NODES = auto()
    NODE_DELETED = auto()
    READY = auto()
    UNCORDONED = auto()
    UNTAINTED = auto()
    TAINTED = auto()
    LABELS = auto()
    FEATURES = auto()
    RESOURCES_FREED = auto()
    BANDWIDTH = auto()
    PORTS_FREED = auto()
    ASSIGNED_PODS = auto()
    MOUNTS = auto()
    NAMESPACES = auto()
    CLAIMS = auto()
    VOLUMES = auto()
    CLASSES = auto()
    LIMITS = auto()


NO_EVENT = ClusterEvent(0)
ANY_EVENT = ~NO_EVENT
_KINDS: dict[type, ClusterEvent] = {
    NamespaceLabels: ClusterEvent.NAMESPACES,
    Claim: ClusterEvent.CLAIMS,
    Volume: ClusterEvent.VOLUMES,
    StorageClass: ClusterEvent.CLASSES,
    Unreadable: ClusterEvent.NAMESPACES
    | ClusterEvent.CLAIMS
    | ClusterEvent.VOLUMES
    | ClusterEvent.CLASSES
    | ClusterEvent.LIMITS,
}


def resource_changed(resource: Resource) -> ClusterEvent:
    """The events of a resource that was added, changed or deleted."""
    return _KINDS.get(type(resource), ClusterEvent.LIMITS)


def node_changed(before: Node | None, node: Node) -> ClusterEvent:
    """The events of a node that was added (before is None) or changed."""
    if before is None:
        return ClusterEvent.NODES
    events = NO_EVENT
    if node.ready and not before.ready:
        events |= ClusterEvent.READY
    if before.unschedulable and not node.unschedulable:
        events |= ClusterEvent.UNCORDONED
    if set(before.taints) - set(node.taints):
        events |= ClusterEvent.UNTAINTED
    if set(node.taints) - set(before.taints):
        events |= ClusterEvent.TAINTED
    if node.labels != before.labels:
        events |= ClusterEvent.LABELS
    if node.features - before.features:
        events |= ClusterEvent.FEATURES
    if any(amount > before.allocatable.get(name, 0) for name, amount in node.allocatable.items()):
        events |= ClusterEvent.RESOURCES_FREED
    if node.bandwidth_mbps != before.bandwidth_mbps:
        events |= ClusterEvent.BANDWIDTH
    return events


def pod_assigned(pod: Pod) -> ClusterEvent:
    """The events of a pod that was assigned to a node."""
    return ClusterEvent.ASSIGNED_PODS | _of_mounts(pod)


def pod_removed(pod: Pod) -> ClusterEvent:
    """The events of an assigned pod that was deleted or has finished."""
    events = ClusterEvent.ASSIGNED_PODS | ClusterEvent.RESOURCES_FREED | _of_mounts(pod)
    if pod.host_ports:
        events |= ClusterEvent.PORTS_FREED
    if pod.annotations.bandwidth_mbps:
        events |= ClusterEvent.BANDWIDTH
    return events


def pod_changed(before: Pod, pod: Pod) -> ClusterEvent:
    """The events of an assigned pod that changed on its node."""
    if _immutable(pod) != _immutable(before):  # cannot happen in Kubernetes
        return pod_removed(before) | pod_assigned(pod)
    events = NO_EVENT
    if any(pod.requests.get(name, 0) < amount for name, amount in before.requests.items()):
        events |= ClusterEvent.RESOURCES_FREED
    if (pod.annotations.bandwidth_mbps or 0.0) < (before.annotations.bandwidth_mbps or 0.0):
        events |= ClusterEvent.BANDWIDTH
    if (pod.labels, pod.terminating) != (before.labels, before.terminating):
        events |= ClusterEvent.ASSIGNED_PODS
    return events


def _immutable(pod: Pod) -> tuple[object, ...]:
    return pod.host_ports, pod.claims, pod.disks, pod.affinity, pod.anti_affinity


def _of_mounts(pod: Pod) -> ClusterEvent:
    return ClusterEvent.MOUNTS if pod.claims or pod.disks else NO_EVENT
