"""What KubeDSM decides on and what it decides, as data: quality of service, pods, the edge.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 1-6 and 11.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.kubedsm.packing import NOWHERE, Edge

_ALIKE = 1e-9
_LEAST_SIZE = 1e-9  # of a pod that asks for nothing, so that a gain per size stays finite


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """QoS(u) (Eq. 1-5). total: pods of each service. target: Q of each, the share that should
    be on the edge. a, b, gamma: the slopes below and above it and the reward for reaching it,
    0 <= b < a << gamma. Columns have shape (services,)."""

    total: Ints
    target: Floats
    a: float
    b: float
    gamma: float

    def of(self, on_edge: Ints) -> Floats:
        """QoS with so many pods of each service on the edge, shape (..., services) to (...)."""
        quality: Floats = self.each(on_edge).sum(axis=-1)
        return quality

    def each(self, on_edge: Ints) -> Floats:
        """F(Delta) of every service (Eq. 2-4), of the same shape."""
        delta = on_edge / np.maximum(self.total, 1) - self.target
        # A share that should equal its target can miss it by a rounding.
        return np.where(delta < -_ALIKE, self.a * delta, self.b * delta + self.gamma)


@dataclass(frozen=True, slots=True, eq=False)
class EdgePod:
    """A pod that may be decided on.

    service: its index. wants: shape (resources,). fits: shape (nodes,), the edge nodes that
    the filters allow. size: Eq. 11. leaves: whether the cloud would have it. at: its edge
    node; NOWHERE for one that is in the cloud or new.
    """

    key: str
    service: int
    wants: Ints
    fits: Bools
    size: float
    leaves: bool = True
    at: int = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class EdgeState:
    """The cluster that is decided on. on_edge: pods of each service there, shape (services,).
    pods: those on the edge that may be moved."""

    edge: Edge
    quality: Quality
    on_edge: Ints
    pods: tuple[EdgePod, ...] = ()

    def without(self, pod: EdgePod) -> "EdgeState":
        """After a pod on the edge went to the cloud."""
        return EdgeState(
            self.edge.without_pod(pod.wants, pod.at),
            self.quality,
            counted(self.on_edge, pod, -1),
            tuple(each for each in self.pods if each is not pod),
        )

    def moved(self, pod: EdgePod, node: int) -> "EdgeState":
        """After a pod on the edge went to another node there, where it stays."""
        edge = self.edge.without_pod(pod.wants, pod.at).with_pod(pod.wants, node)
        return replace(self, edge=edge, pods=tuple(each for each in self.pods if each is not pod))

    def with_pod(self, pod: EdgePod, node: int) -> "EdgeState":
        """After a pod from elsewhere came to a node of the edge, where it stays."""
        return replace(
            self,
            edge=self.edge.with_pod(pod.wants, node),
            on_edge=counted(self.on_edge, pod, 1),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """M_C2E: pods that one suggestion takes from the cloud to the edge; M_ER: pods that it
    reorders within the edge."""

    cloud_to_edge: int = 5
    edge_reorder: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What makeDecision comes to: the pods for the edge, those that leave it for the cloud, and
    those that change their node there. exact: every possibility was weighed."""

    onto_edge: tuple[EdgePod, ...] = ()
    freed: tuple[EdgePod, ...] = ()
    reordered: tuple[tuple[EdgePod, int], ...] = ()
    exact: bool = True

    @property
    def migrations(self) -> int:
        """Eq. 6 over the pods that run already: each counts once, wherever it goes."""
        return len(self.freed) + len(self.reordered)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A decision applied: new pods with their edge nodes, new pods for the cloud, and the
    decision's migrations. board: the state after it. exact: every possibility was weighed."""

    placed: tuple[tuple[EdgePod, int], ...]
    to_cloud: tuple[EdgePod, ...]
    freed: tuple[EdgePod, ...]
    reordered: tuple[tuple[EdgePod, int], ...]
    board: EdgeState
    exact: bool


def pod_size(wants: Ints, largest: Ints) -> float:
    """sqrt(cpu / M_CPU * mem / M_MEM) (Eq. 11). wants, largest: CPU and memory first, the
    largest amounts that an edge node provides."""
    fractions = wants[:2] / np.maximum(largest[:2], 1)
    return max(float(np.sqrt(fractions.prod())), _LEAST_SIZE)


def counted(on_edge: Ints, pod: EdgePod, step: int) -> Ints:
    """The pods of each service on the edge after this one came (1) or left (-1)."""
    counted = on_edge.copy()
    counted[pod.service] += step
    return counted


def need_of(board: EdgeState, pods: Iterable[EdgePod]) -> Ints:
    """What these pods want together, shape (resources,)."""
    none = np.zeros(board.edge.capacity.shape[1], dtype=np.int64)
    return sum((pod.wants for pod in pods), start=none)


def quality_with(board: EdgeState, onto: Iterable[EdgePod], freed: Iterable[EdgePod]) -> float:
    """QoS with some pods more and some less on the edge, rounded so that equals are equal."""
    on_edge = board.on_edge.copy()
    for step, pods in ((1, onto), (-1, freed)):
        for pod in pods:
            on_edge[pod.service] += step
    return round(float(board.quality.of(on_edge)), 9)
