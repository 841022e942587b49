"""The inputs and the decisions of KubeDSM's algorithms: quality of service, pods, edge state.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 1-6 and 11.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.kubedsm.packing import NO_NODE, Edge

_TOLERANCE = 1e-9
_MIN_SIZE = 1e-9  # of a pod that asks for nothing, so that a gain per size stays finite


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """QoS(u) (Eq. 1-5). total: pods of each service. target: Q of each service, the share that
    should be on the edge. a, b, gamma: slopes below and above the target, and the reward for
    reaching it, 0 <= b < a << gamma. Columns have shape (services,)."""

    total: Ints
    target: Floats
    a: float
    b: float
    gamma: float

    def of(self, on_edge: Ints) -> Floats:
        """QoS for these numbers of pods on the edge, shape (..., services) to (...)."""
        quality: Floats = self.each(on_edge).sum(axis=-1)
        return quality

    def each(self, on_edge: Ints) -> Floats:
        """F(Delta) of every service (Eq. 2-4), of the same shape."""
        delta = on_edge / np.maximum(self.total, 1) - self.target
        # Rounding can put a share that equals its target slightly below it.
        return np.where(delta < -_TOLERANCE, self.a * delta, self.b * delta + self.gamma)


@dataclass(frozen=True, slots=True, eq=False)
class EdgePod:
    """A pod as the algorithms see it.

    service: its index. requests: shape (resources,). feasible: the edge nodes that pass the
    filters, shape (nodes,). size: Eq. 11. cloud_feasible: whether a cloud node passes them. node:
    its edge node, or NO_NODE for a new pod and one in the cloud.
    """

    key: str
    service: int
    requests: Ints
    feasible: Bools
    size: float
    cloud_feasible: bool = True
    node: int = NO_NODE


@dataclass(frozen=True, slots=True, eq=False)
class EdgeState:
    """The state of the edge, immutable. on_edge: pods of each service on the edge, shape
    (services,). pods: the pods on the edge that may be moved."""

    edge: Edge
    quality: Quality
    on_edge: Ints
    pods: tuple[EdgePod, ...] = ()

    def without(self, pod: EdgePod) -> "EdgeState":
        """The state after a pod left the edge for the cloud."""
        return EdgeState(
            self.edge.without_pod(pod.requests, pod.node),
            self.quality,
            with_count(self.on_edge, pod, -1),
            tuple(each for each in self.pods if each is not pod),
        )

    def moved(self, pod: EdgePod, node: int) -> "EdgeState":
        """The state after a pod moved to another edge node; it does not move again."""
        edge = self.edge.without_pod(pod.requests, pod.node).with_pod(pod.requests, node)
        return replace(self, edge=edge, pods=tuple(each for each in self.pods if each is not pod))

    def with_pod(self, pod: EdgePod, node: int) -> "EdgeState":
        """The state after a new pod or one from the cloud came to an edge node; it does not move
        again."""
        return replace(
            self,
            edge=self.edge.with_pod(pod.requests, node),
            on_edge=with_count(self.on_edge, pod, 1),
        )


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """The most pods in one suggestion that move from the cloud to the edge (M_C2E) and that are
    reordered within the edge (M_ER)."""

    cloud_to_edge: int = 5
    edge_reorder: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class EdgeDecision:
    """The result of makeDecision: pods for the edge, pods that leave it for the cloud, and pods
    that move within it. exact: the search was exhaustive."""

    onto_edge: tuple[EdgePod, ...] = ()
    freed: tuple[EdgePod, ...] = ()
    reordered: tuple[tuple[EdgePod, int], ...] = ()
    exact: bool = True

    @property
    def migrations(self) -> int:
        """Eq. 6 for the running pods: each counts once."""
        return len(self.freed) + len(self.reordered)


@dataclass(frozen=True, slots=True, eq=False)
class AppliedDecision:
    """The result of applyDecision: new pods with their edge nodes, new pods for the cloud, and the
    decision's migrations. state: the state after it. exact: the search was exhaustive."""

    placed: tuple[tuple[EdgePod, int], ...]
    to_cloud: tuple[EdgePod, ...]
    freed: tuple[EdgePod, ...]
    reordered: tuple[tuple[EdgePod, int], ...]
    state: EdgeState
    exact: bool


def pod_size(requests: Ints, largest: Ints) -> float:
    """sqrt(cpu / M_CPU * mem / M_MEM) (Eq. 11). requests: CPU and memory first. largest: the
    largest capacity of an edge node, in the same order."""
    fractions = requests[:2] / np.maximum(largest[:2], 1)
    return max(float(np.sqrt(fractions.prod())), _MIN_SIZE)


def with_count(on_edge: Ints, pod: EdgePod, step: int) -> Ints:
    """Pods of each service on the edge after this one arrived (step 1) or left (step -1)."""
    on_edge = on_edge.copy()
    on_edge[pod.service] += step
    return on_edge


def total_requests(state: EdgeState, pods: Iterable[EdgePod]) -> Ints:
    """Sum of the pods' requests, shape (resources,)."""
    none = np.zeros(state.edge.capacity.shape[1], dtype=np.int64)
    return sum((pod.requests for pod in pods), start=none)


def quality_with(state: EdgeState, onto: Iterable[EdgePod], freed: Iterable[EdgePod]) -> float:
    """QoS with some more pods on the edge and without others, rounded so that ties are ties."""
    on_edge = state.on_edge.copy()
    for step, pods in ((1, onto), (-1, freed)):
        for pod in pods:
            on_edge[pod.service] += step
    return round(float(state.quality.of(on_edge)), 9)
