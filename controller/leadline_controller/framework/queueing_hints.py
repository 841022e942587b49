"""Cluster events and queueing hints: an unschedulable pod is retried only after an event that
can make it schedulable.

A filter names these events in its result; see cycle.FilterResult.requeue_on.
"""

from collections.abc import Mapping
from enum import Flag, auto
from functools import reduce
from operator import or_

from leadline_controller.framework.cluster_objects import (
    Claim,
    ClusterObject,
    DisruptionBudget,
    NamespaceLabels,
    PodSelector,
    StorageClass,
    Unreadable,
    Volume,
)
from leadline_controller.framework.model import Node, Pod


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


def object_changed(made: ClusterObject) -> ClusterEvent:
    """The events of an object that was added, changed or deleted."""
    if isinstance(made, DisruptionBudget | PodSelector):
        return NO_EVENT
    return _KINDS.get(type(made), ClusterEvent.LIMITS)


def node_changed(before: Node | None, node: Node) -> ClusterEvent:
    """The events of a node that was added (before is None) or changed."""
    if before is None:
        return ClusterEvent.NODES
    changes: tuple[tuple[ClusterEvent, object], ...] = (
        (ClusterEvent.READY, node.ready and not before.ready),
        (ClusterEvent.UNCORDONED, before.unschedulable and not node.unschedulable),
        (ClusterEvent.UNTAINTED, set(before.taints) - set(node.taints)),
        (ClusterEvent.TAINTED, set(node.taints) - set(before.taints)),
        (ClusterEvent.LABELS, node.labels != before.labels),
        (ClusterEvent.FEATURES, node.features - before.features),
        (ClusterEvent.RESOURCES_FREED, _has_less(before.allocatable, node.allocatable)),
        (ClusterEvent.BANDWIDTH, node.bandwidth_mbps != before.bandwidth_mbps),
    )
    return reduce(or_, (event for event, happened in changes if happened), NO_EVENT)


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
    if _has_less(pod.requests, before.requests):
        events |= ClusterEvent.RESOURCES_FREED
    if (pod.annotations.bandwidth_mbps or 0.0) < (before.annotations.bandwidth_mbps or 0.0):
        events |= ClusterEvent.BANDWIDTH
    if (pod.labels, pod.terminating) != (before.labels, before.terminating):
        events |= ClusterEvent.ASSIGNED_PODS
    return events


def _has_less(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return any(one.get(name, 0) < amount for name, amount in other.items())


def _immutable(pod: Pod) -> tuple[object, ...]:
    return pod.host_ports, pod.claims, pod.disks, pod.affinity, pod.anti_affinity


def _of_mounts(pod: Pod) -> ClusterEvent:
    return ClusterEvent.MOUNTS if pod.claims or pod.disks else NO_EVENT
