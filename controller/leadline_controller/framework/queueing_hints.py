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


class News(Flag):
    """Kinds of change; of those that can only be for the worse there is no news.

    PORTS, ROOM and BANDWIDTH: something came free on a node, or was added. NEIGHBOURS: which
    pods are on nodes, and with what labels. MOUNTS: which claims and disks they have. LIMITS:
    what drivers can do, and what is attached.
    """

    NODES = auto()
    NODE_GONE = auto()
    READY = auto()
    UNCORDONED = auto()
    UNTAINTED = auto()
    TAINTED = auto()
    LABELS = auto()
    FEATURES = auto()
    ROOM = auto()
    BANDWIDTH = auto()
    PORTS = auto()
    NEIGHBOURS = auto()
    MOUNTS = auto()
    NAMESPACES = auto()
    CLAIMS = auto()
    VOLUMES = auto()
    CLASSES = auto()
    LIMITS = auto()


NOTHING = News(0)
ANYTHING = ~NOTHING
_KINDS: dict[type, News] = {
    NamespaceLabels: News.NAMESPACES,
    Claim: News.CLAIMS,
    Volume: News.VOLUMES,
    StorageClass: News.CLASSES,
    Unreadable: News.NAMESPACES | News.CLAIMS | News.VOLUMES | News.CLASSES | News.LIMITS,
}


def of_resource(resource: Resource) -> News:
    """Such a thing appeared, changed or is gone."""
    return _KINDS.get(type(resource), News.LIMITS)


def of_node(before: Node | None, node: Node) -> News:
    """A node came, or changed."""
    if before is None:
        return News.NODES
    news = NOTHING
    if node.ready and not before.ready:
        news |= News.READY
    if before.unschedulable and not node.unschedulable:
        news |= News.UNCORDONED
    if set(before.taints) - set(node.taints):
        news |= News.UNTAINTED
    if set(node.taints) - set(before.taints):
        news |= News.TAINTED
    if node.labels != before.labels:
        news |= News.LABELS
    if node.features - before.features:
        news |= News.FEATURES
    if any(amount > before.allocatable.get(name, 0) for name, amount in node.allocatable.items()):
        news |= News.ROOM
    if node.bandwidth_mbps != before.bandwidth_mbps:
        news |= News.BANDWIDTH
    return news


def of_arrival(pod: Pod) -> News:
    """A pod is on a node now."""
    return News.NEIGHBOURS | _of_mounts(pod)


def of_departure(pod: Pod) -> News:
    """A pod is not on its node any more, or has finished there."""
    news = News.NEIGHBOURS | News.ROOM | _of_mounts(pod)
    if pod.host_ports:
        news |= News.PORTS
    if pod.hints.bandwidth_mbps:
        news |= News.BANDWIDTH
    return news


def of_resident(before: Pod, pod: Pod) -> News:
    """A pod changed that is on a node, and stays there."""
    if _fixed(pod) != _fixed(before):  # Kubernetes knows no such change
        return of_departure(before) | of_arrival(pod)
    news = NOTHING
    if any(pod.requests.get(name, 0) < amount for name, amount in before.requests.items()):
        news |= News.ROOM
    if (pod.hints.bandwidth_mbps or 0.0) < (before.hints.bandwidth_mbps or 0.0):
        news |= News.BANDWIDTH
    if (pod.labels, pod.terminating) != (before.labels, before.terminating):
        news |= News.NEIGHBOURS
    return news


def _fixed(pod: Pod) -> tuple[object, ...]:
    return pod.host_ports, pod.claims, pod.disks, pod.affinity, pod.anti_affinity


def _of_mounts(pod: Pod) -> News:
    return News.MOUNTS if pod.claims or pod.disks else NOTHING
