"""What the core knows of a cluster: nodes, pods and links, frozen.

Quantities are in base units as integers, so that "does it fit" is exact: CPU in
thousandths of a core, everything else as Kubernetes counts it (bytes, devices, pods).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from leadline_controller.framework.demands import AffinityTerm, ClaimUse, Disk, SpreadConstraint
from leadline_controller.framework.selectors import Requirement as Requirement
from leadline_controller.framework.selectors import Terms

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
SCHEDULER_NAME = "leadline"
_HARD = ("NoSchedule", "NoExecute")


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
        """Whether it keeps pods out, rather than being a wish."""
        return self.effect in _HARD


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; an empty key (only with Exists) tolerates every key, an empty effect
    every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers `taint` (Kubernetes' rule)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (
            self.operator == "Equal" and bool(self.key) and self.value == taint.value
        )


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a container takes on its node. `ip` "0.0.0.0" collides with every address."""

    ip: str
    protocol: str
    port: int

    def collides(self, other: "HostPort") -> bool:
        """Whether both can't be held on one node."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.ip == other.ip or "0.0.0.0" in (self.ip, other.ip)  # noqa: S104  # a wildcard to compare with, nothing binds here


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of container images. size_mb: what is pulled, MB (10^6 bytes)."""

    digest: str
    size_mb: float


@dataclass(frozen=True, slots=True)
class Image:
    """A container image. The same digest is the same layer in every image."""

    name: str
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the cluster describes it.

    allocatable: resource name -> base units. bandwidth_mbps: capacity of the node's link,
    Mbit/s, None when nobody stated it. tier: "edge", "cloud" or "". features: what its kubelet
    declares that it can do. image_layers: digests of the layers that it has. images: those
    that it lists itself. pulling_mb: its download queue, MB; registry_mbps: bandwidth between
    it and the registry, Mbit/s; None when nobody stated them. addresses: its internal and
    external IP addresses, in their canonical form.
    """

    name: str
    allocatable: Mapping[str, int] = field(default_factory=_empty)
    labels: Mapping[str, str] = field(default_factory=_empty)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    tier: str = ""
    bandwidth_mbps: float | None = None
    image_layers: frozenset[str] = frozenset()
    images: tuple[Image, ...] = ()
    pulling_mb: float | None = None
    registry_mbps: float | None = None
    features: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()

    def untolerated(self, tolerations: tuple[Toleration, ...]) -> Taint | None:
        """The first hard taint (NoSchedule, NoExecute) that none of these tolerates."""
        for taint in self.taints:
            if taint.is_hard and not any(t.tolerates(taint) for t in tolerations):
                return taint
        return None


@dataclass(frozen=True, slots=True)
class PodAnnotations:
    """What a pod's `leadline.dev/` annotations say. None and empty mean: it does not say.

    user_node: where the pod's user is logged in. data_mb: data to be processed, MB (10^6
    bytes). bandwidth_mbps: link capacity that the pod asks for, Mbit/s. profile_ms: node
    name or class -> processing time measured beforehand, ms.
    """

    user_node: str | None = None
    data_mb: float | None = None
    bandwidth_mbps: float | None = None
    deadline_s: float | None = None
    response_time_ms: float | None = None
    profile_ms: Mapping[str, float] = field(default_factory=_empty)
    qos_edge_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, pending or on a node.

    requests: resource name -> base units, the pod's effective request; PODS is always 1.
    limits: the same for what it may take at most; a missing one means no limit.
    required_affinity: node selector terms, any one of which must match; None: no demand.
    affinity, anti_affinity: the required ones. features: what the node's kubelet must declare.
    preempts: whether kube-scheduler would let it push others out.
    problem: what could not be read or is not modelled; such a pod is never placed.
    """

    namespace: str
    name: str
    uid: str = ""
    requests: Mapping[str, int] = field(default_factory=_empty)
    limits: Mapping[str, int] = field(default_factory=_empty)
    node_selector: Mapping[str, str] = field(default_factory=_empty)
    required_affinity: Terms | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    features: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    hints: PodAnnotations = field(default_factory=PodAnnotations)
    labels: Mapping[str, str] = field(default_factory=_empty)
    scheduler_name: str = SCHEDULER_NAME
    priority: int = 0
    preempts: bool = True
    node_name: str | None = None
    finished: bool = False
    terminating: bool = False
    gated: bool = False
    problem: str | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    def claim_key(self, use: ClaimUse) -> str:
        """namespace/name of a claim that the pod mounts; an ephemeral volume's claim is named
        after pod and volume."""
        name = f"{self.name}-{use.name}" if use.ephemeral else use.name
        return f"{self.namespace}/{name}"


@dataclass(frozen=True, slots=True)
class Link:
    """What was measured between two nodes; None is unknown. Undirected."""

    a: str
    b: str
    rtt_ms: float | None = None
    bandwidth_mbps: float | None = None
