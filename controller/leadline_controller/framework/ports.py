"""The ports: what the framework needs of a clock, a cluster and a lease.

`snapshot` and `kube` implement Cluster and LeaseStore; the same contract tests run over both.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.resources import Resource
from leadline_controller.framework.storage import VolumePlan


class Clock(Protocol):
    """Time that never jumps."""

    def now_s(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait that long on this clock."""
        ...


class ClusterError(Exception):
    """The cluster did not do what was asked; str() is one line for a person."""


class ConflictError(ClusterError):
    """Somebody else bound the pod, a pod of the same name replaced it, or the API server could
    not store the binding (409): only the watch tells which."""


class NotFoundError(ClusterError):
    """The pod is no more (404), or so it seems: the watch tells."""


class InvalidError(ClusterError):
    """The cluster will not do it, and asking again won't help (400, 403, 422)."""


class ForbiddenError(InvalidError):
    """We have no right to it (403); also what an API server says for a moment after its start,
    while it does not know the roles yet."""


class UnavailableError(ClusterError):
    """The cluster can't answer now; ask again later (429, 5xx, no connection)."""


class StorageChangedError(ClusterError):
    """A claim or volume is no longer what it was when the pod's place was decided: decide anew."""


class NotLeadingError(ClusterError):
    """This controller may no longer act. Nothing was asked, or nobody waits for the answer."""


class LeaseChangedError(ClusterError):
    """Another wrote or removed the Lease since it was read."""


class Fence(Protocol):
    """Ends the right to act on the cluster."""

    def left_s(self) -> float:
        """Seconds within which what is asked for must have taken effect; 0 or less: too late."""
        ...


class Leadership(Fence, Protocol):
    """Which one of several controllers decides and binds."""

    def leads(self) -> bool:
        """Whether this controller may begin something now."""
        ...

    def holder(self) -> str:
        """Who leads as far as is known; empty when nobody does."""
        ...

    async def wait(self) -> None:
        """Wait until this controller leads."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the Lease says.

    holder: an identity, empty when nobody holds it. duration_s: for how long it holds after
    each renewal. acquired, renewed: when, by the holder's wall clock: another's can only tell
    that they changed. version: of what was read, so that a write replaces exactly that.
    """

    holder: str
    duration_s: int
    acquired: str
    renewed: str
    transitions: int
    version: str


class LeaseStore(Protocol):
    """Where the Lease is kept."""

    async def read(self) -> LeaseRecord | None:
        """The Lease; None when there is none yet. Raises ClusterError's kinds, within seconds
        also when nobody answers."""
        ...

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        """Take, renew or (with an empty holder) release the Lease: replace exactly `over`, or
        create it for None. Raises LeaseChangedError and, within seconds, ClusterError's kinds."""
        ...

    def follow(self) -> AsyncGenerator[str, None]:
        """Who holds it, now and after each write, until the connection ends. It may tell of
        what is past. Raises ClusterError's kinds. To be closed after use."""
        ...


@dataclass(frozen=True, slots=True)
class Relisted:
    """All nodes, pods and other resources there are; replaces whatever was known. Comes first,
    and again after the watch had to start afresh."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    resources: tuple[Resource, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node appeared or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod appeared or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod was removed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class ResourceChanged:
    """A namespace, or something about volumes, appeared or changed."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class ResourceDeleted:
    """It was removed; only its type and key count."""

    resource: Resource


ClusterChange = (
    Relisted
    | NodeChanged
    | NodeDeleted
    | PodChanged
    | PodDeleted
    | ResourceChanged
    | ResourceDeleted
)


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What is written on a pod for people. `reason` is CamelCase, as Kubernetes has it."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Cluster(Protocol):
    """A cluster that holds nodes and pods and carries out bindings."""

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """What there is, then every change, for ever. Reconnects by itself."""
        ...

    async def prepare(self, plan: VolumePlan) -> None:
        """Reserve the plan's volumes and annotate its claims; what is done already is left as it
        is. Does not wait for what follows from it. Raises ClusterError's kinds, of which
        StorageChangedError may leave a part of it done."""
        ...

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind exactly this pod (by uid) to a node. Raises ClusterError's kinds."""
        ...

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        """Write an event on a pod. Repeats are folded into one. Raises ClusterError's kinds."""
        ...
