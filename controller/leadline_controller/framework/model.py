"""Nodes, pods and links, frozen.

Quantities are integers in base units, so that comparisons are exact: CPU in thousandths of a
core, everything else in Kubernetes' units (bytes, devices, pods).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from leadline_controller.framework.selectors import Requirement as Requirement
from leadline_controller.framework.selectors import Selector, Terms

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
SCHEDULER_NAME = "leadline"
_HARD = ("NoSchedule", "NoExecute")
# In-line disks that only one node, or only one writer, can use at a time.
_EXCLUSIVE = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")


def _empty() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str

    @property
    def is_hard(self) -> bool:
        """Whether it is more than a preference: NoSchedule or NoExecute."""
        return self.effect in _HARD


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration. An empty key (only with Exists) matches every key, an empty effect
    every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration matches `taint`, by Kubernetes' rule."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (
            self.operator == "Equal" and bool(self.key) and self.value == taint.value
        )


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port of a container. `ip` "0.0.0.0" stands for every address."""

    ip: str
    protocol: str
    port: int

    def conflicts_with(self, other: "HostPort") -> bool:
        """Whether one node cannot have both."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.ip == other.ip or "0.0.0.0" in (self.ip, other.ip)  # noqa: S104  # a wildcard to compare with, nothing binds here


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of container images."""

    digest: str
    size_mb: float  # the download, MB (10^6 bytes)


@dataclass(frozen=True, slots=True)
class Image:
    """A container image. The same digest is the same layer in every image."""

    name: str
    layers: tuple[Layer, ...]


_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


@dataclass(frozen=True, slots=True)
class Node:
    """A node. What is not stated is None."""

    name: str
    allocatable: Mapping[str, int] = field(default_factory=_empty)  # resource name -> base units
    labels: Mapping[str, str] = field(default_factory=_empty)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    tier: str = ""  # "edge", "cloud" or ""
    bandwidth_mbps: float | None = None  # stated capacity of its link, Mbit/s
    image_layers: frozenset[str] = frozenset()  # digests of the layers that it has
    images: tuple[Image, ...] = ()  # those in its status
    pulling_mb: float | None = None  # stated size of its download queue, MB
    registry_mbps: float | None = None  # stated bandwidth to the registry, Mbit/s
    features: frozenset[str] = frozenset()  # declared by its kubelet
    addresses: tuple[str, ...] = ()  # its internal and external IP addresses, in canonical form
    pod_networks: tuple[str, ...] = ()  # from which its pods get their addresses: spec.podCIDRs
    warnings: tuple[str, ...] = ()  # what its labels say to Leadline in vain

    @property
    def is_control_plane(self) -> bool:
        """Whether a label or a taint says so, by its name now or that of former versions."""
        return any(
            key in self.labels or any(taint.key == key for taint in self.taints)
            for key in _CONTROL_PLANE
        )


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A pod affinity or anti-affinity term."""

    topology_key: str  # the node label whose values are the domains
    # Matches the pods' labels; None matches none. A pod's namespace must be in `namespaces` or
    # match `namespace_selector`.
    selector: Selector | None
    namespaces: frozenset[str]
    namespace_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred pod affinity term; with a negative weight, an anti-affinity term."""

    weight: int
    term: AffinityTerm

    @property
    def topology_key(self) -> str:
        """The term's."""
        return self.term.topology_key


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint."""

    topology_key: str
    max_skew: int
    selector: Selector | None  # matches the pods that count, in the pod's own namespace
    min_domains: int = 1  # with fewer domains the global minimum is 0
    # Whether nodes count only if they match the pod's node affinity, and only if it tolerates their
    # taints.
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a pod prefers and does not require."""

    nodes: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()  # weights and node selector terms
    pods: tuple[WeightedTerm, ...] = ()  # affinity and anti-affinity
    spread: tuple[SpreadConstraint, ...] = ()  # constraints with ScheduleAnyway


NO_PREFERENCES = Preferences()


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim that a pod mounts."""

    name: str
    ephemeral: bool = False  # created for this pod, which must own it


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk in the pod's manifest, without a claim."""

    kind: str  # the field of the manifest
    name: str
    monitors: frozenset[str] = frozenset()  # of an rbd image, empty for other kinds
    read_only: bool = False

    def conflicts_with(self, other: "Disk") -> bool:
        """Whether two pods on one node cannot mount both."""
        if self.kind not in _EXCLUSIVE or (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "rbd" and not self.monitors & other.monitors:
            return False
        shareable = self.kind != "awsElasticBlockStore"
        return not (shareable and self.read_only and other.read_only)


NODE_PEER = "node/"  # before the name of a node that is a peer, or an end of traffic


@dataclass(frozen=True, slots=True)
class DeclaredPeer:
    """What a pod says that it talks to."""

    # A Service or a workload of its namespace, `name.namespace` of another one, `node/name`, or an
    # address.
    name: str
    mbps: float = 1.0  # both directions together
    requests_per_s: float | None = None
    most_rtt_ms: float | None = None  # the round trip that it needs


@dataclass(frozen=True, slots=True)
class PodAnnotations:
    """A pod's `leadline.dev/` annotations; None or empty if absent."""

    user_node: str | None = None  # the node of the pod's user
    data_mb: float | None = None  # data to process, MB (10^6 bytes)
    bandwidth_mbps: float | None = None  # requested link capacity, Mbit/s
    deadline_s: float | None = None
    response_time_ms: float | None = None
    # Node name or class -> processing time measured beforehand, ms.
    profile_ms: Mapping[str, float] = field(default_factory=_empty)
    qos_edge_ratio: float | None = None
    peers: tuple[DeclaredPeer, ...] = ()
    # Whether a scale-down removes the replica in the worst place.
    deletion_order: bool | None = None


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """What a container asks for: resource name -> quantity in Kubernetes' notation."""

    container: str
    requests: Mapping[str, str] = field(default_factory=_empty)
    limits: Mapping[str, str] = field(default_factory=_empty)
    is_sidecar: bool = False


@dataclass(frozen=True, slots=True)
class PendingResize:
    """A resize in place that the kubelet cannot carry out."""

    reason: str  # "Deferred" while its node has no room, "Infeasible" if it never has
    # The effective request before and after it, in base units.
    held: Mapping[str, int]
    wanted: Mapping[str, int]
    containers: tuple[ContainerResources, ...] = ()  # what they shall get


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of a pod: its owner reference with controller: true."""

    kind: str
    name: str
    uid: str
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, pending or assigned."""

    namespace: str
    name: str
    uid: str = ""
    # Resource name -> base units, the effective request; PODS is always 1.
    requests: Mapping[str, int] = field(default_factory=_empty)
    # In the same units; a missing one means no limit.
    limits: Mapping[str, int] = field(default_factory=_empty)
    node_selector: Mapping[str, str] = field(default_factory=_empty)
    # Node selector terms, one of which must match; None means no node affinity.
    required_affinity: Terms | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    # Required pod affinity terms.
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()  # constraints with DoNotSchedule
    preferences: Preferences = NO_PREFERENCES
    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    features: tuple[str, ...] = ()  # that the node's kubelet must declare
    # Of its containers.
    images: tuple[str, ...] = ()
    init_images: tuple[str, ...] = ()
    # Those whose containers are not created yet, so the node may be pulling them.
    awaited_images: tuple[str, ...] = ()
    # Those of the others, with what the node calls them, by digest.
    started_images: tuple[tuple[str, str], ...] = ()
    pull_secrets: tuple[str, ...] = ()  # names of secrets in its namespace
    annotations: PodAnnotations = field(default_factory=PodAnnotations)
    labels: Mapping[str, str] = field(default_factory=_empty)
    scheduler_name: str = SCHEDULER_NAME
    priority: int = 0
    preempts: bool = True  # whether its preemption policy allows preemption
    nominated_node: str | None = None  # where room was made for a pending pod
    started_s: float | None = None  # when its kubelet took it up, seconds since 1970, None before
    bound_s: float | None = None  # when it was bound, seconds since 1970 on the API server's clock
    # Since when all its containers have run, and when the last one ended, seconds since 1970 on its
    # board's clock; of one that was restarted, since when its kubelet has it. None before.
    runs_s: float | None = None
    ended_s: float | None = None
    # How long it took to be ready from when its kubelet took it up, seconds, without the time
    # between its sandbox and its containers, in which images are pulled; None if unknown.
    starting_s: float | None = None
    restarted: bool = False  # one of its containers was restarted
    preempted: bool = False  # it ends, or is about to, because a scheduler preempted it
    node_name: str | None = None
    finished: bool = False
    terminating: bool = False
    gated: bool = False
    # What could not be read or is not modelled; such a pod is unschedulable.
    problem: str | None = None
    resize: PendingResize | None = None  # one that its kubelet cannot carry out, None without one
    owner: Owner | None = None
    ready: bool = False  # its condition Ready
    # Its creation, seconds since 1970 on the API server's clock, None if unknown.
    created_s: float | None = None
    stays: str = ""  # why it must never be moved, as its own manifest says; empty for nothing
    # Of the annotation controller.kubernetes.io/pod-deletion-cost, None if absent.
    deletion_cost: int | None = None
    # Its addresses in canonical form, the main one first: two where the cluster has IPv4 and IPv6,
    # none before it starts.
    ips: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # what its manifest says to Leadline in vain

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def ip(self) -> str:
        """Its main address, "" if it has none yet."""
        return self.ips[0] if self.ips else ""

    @property
    def is_pending(self) -> bool:
        """Whether it waits for a node."""
        return self.node_name is None and not (self.finished or self.terminating or self.gated)

    def claim_key(self, use: ClaimUse) -> str:
        """namespace/name of a claim that the pod mounts. The claim of an ephemeral volume is named
        after pod and volume."""
        name = f"{self.name}-{use.name}" if use.ephemeral else use.name
        return f"{self.namespace}/{name}"


@dataclass(frozen=True, slots=True)
class Link:
    """Measurements between two nodes, undirected; None is unknown."""

    a: str
    b: str
    rtt_ms: float | None = None
    bandwidth_mbps: float | None = None
