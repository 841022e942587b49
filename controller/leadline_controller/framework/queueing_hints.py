"""What a change in the cluster can be about, so that a pod that fits nowhere is tried again when
that can help it, and not whenever something happens.

A filter says with its verdict which news may turn it; see cycle.Verdict.hope.
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
    """Kinds of change; of those that can only be for the worse there is no news.

    PORTS, ROOM and BANDWIDTH: something came free on a node, or was added. NEIGHBOURS: which
    pods are on nodes, and with what labels. MOUNTS: which claims and disks they have. LIMITS:
    what drivers can do, and what is attached.
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


NOTHING = ClusterEvent(0)
ANYTHING = ~NOTHING
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


def of_resource(resource: Resource) -> ClusterEvent:
    """Such a thing appeared, changed or is gone."""
    return _KINDS.get(type(resource), ClusterEvent.LIMITS)


def of_node(before: Node | None, node: Node) -> ClusterEvent:
    """A node came, or changed."""
    if before is None:
        return ClusterEvent.NODES
    events = NOTHING
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


def of_arrival(pod: Pod) -> ClusterEvent:
    """A pod is on a node now."""
    return ClusterEvent.ASSIGNED_PODS | _of_mounts(pod)


def of_departure(pod: Pod) -> ClusterEvent:
    """A pod is not on its node any more, or has finished there."""
    events = ClusterEvent.ASSIGNED_PODS | ClusterEvent.RESOURCES_FREED | _of_mounts(pod)
    if pod.host_ports:
        events |= ClusterEvent.PORTS_FREED
    if pod.hints.bandwidth_mbps:
        events |= ClusterEvent.BANDWIDTH
    return events


def of_assigned_pod(before: Pod, pod: Pod) -> ClusterEvent:
    """A pod changed that is on a node, and stays there."""
    if _fixed(pod) != _fixed(before):  # Kubernetes knows no such change
        return of_departure(before) | of_arrival(pod)
    events = NOTHING
    if any(pod.requests.get(name, 0) < amount for name, amount in before.requests.items()):
        events |= ClusterEvent.RESOURCES_FREED
    if (pod.hints.bandwidth_mbps or 0.0) < (before.hints.bandwidth_mbps or 0.0):
        events |= ClusterEvent.BANDWIDTH
    if (pod.labels, pod.terminating) != (before.labels, before.terminating):
        events |= ClusterEvent.ASSIGNED_PODS
    return events


def _fixed(pod: Pod) -> tuple[object, ...]:
    return pod.host_ports, pod.claims, pod.disks, pod.affinity, pod.anti_affinity


def _of_mounts(pod: Pod) -> ClusterEvent:
    return ClusterEvent.MOUNTS if pod.claims or pod.disks else NOTHING
