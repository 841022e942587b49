"""The ports of the framework: clock, cluster and lease store.

`snapshot` and `kube` implement Cluster and LeaseStore and pass the same contract tests.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from leadline_controller.framework.cluster_objects import ClusterObject, VolumePlan
from leadline_controller.framework.model import ContainerResources, Node, Owner, Pod


class Clock(Protocol):
    """A monotonic clock."""

    def now_s(self) -> float:
        """The time, seconds."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait for a time on this clock."""
        ...


class ClusterError(Exception):
    """A request to the cluster failed; str() is one line for people."""


class ConflictError(ClusterError):
    """The pod is already bound, another pod has its name, or the API server could not store the
    binding (409). Only the watch can tell which."""


class NotFoundError(ClusterError):
    """The object does not exist (404), as far as the API server's answer can be trusted. Only the
    watch can tell."""


class InvalidError(ClusterError):
    """The request is refused and a retry cannot help (400, 403, 422)."""


class ForbiddenError(InvalidError):
    """The request is not authorized (403). An API server that has just started answers this, too,
    until it has loaded the roles."""


class UnavailableError(ClusterError):
    """The API server cannot answer now; a retry may help (429, 5xx, no connection)."""


class StorageChangedError(ClusterError):
    """A claim or volume changed after the decision; the pod must be scheduled again."""


class NotLeadingError(ClusterError):
    """This controller is no longer the leader. The request was not sent, or its answer is
    ignored."""


class BudgetError(ClusterError):
    """A disruption budget allows no eviction now (429)."""


class LeaseChangedError(ClusterError):
    """The Lease was written or deleted after it was read (409)."""


class Fence(Protocol):
    """Limits the time in which this controller may write to the cluster."""

    def left_s(self) -> float:
        """Seconds within which a write must take effect; at 0 or less no write is allowed."""
        ...


class Leadership(Fence, Protocol):
    """Leader election: one of several controllers decides and binds."""

    def leads(self) -> bool:
        """Whether this controller is the leader and may start new work."""
        ...

    def holder(self) -> str:
        """Identity of the leader as last observed; empty if there is none."""
        ...

    async def wait(self) -> None:
        """Wait until this controller is the leader."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The contents of the Lease."""

    holder: str  # an identity, empty if nobody holds it
    duration_s: int  # its validity after each renewal
    # Times on the holder's wall clock; other controllers can only observe that they change.
    acquired: str
    renewed: str
    transitions: int
    version: str  # the resource version, for optimistic concurrency
    strategy: str = ""  # by which whoever acquired it last decides; empty if it noted none


class LeaseStore(Protocol):
    """Reads and writes the Lease."""

    async def read(self) -> LeaseRecord | None:
        """The Lease, or None if it does not exist. Raises ClusterError, within seconds even if
        there is no answer."""
        ...

    async def write(self, holder: str, duration_s: int, over: LeaseRecord | None) -> LeaseRecord:
        """Acquire, renew or (with an empty holder) release the Lease: replace exactly `over`, or
        create the Lease if `over` is None. Raises LeaseChangedError and, within seconds,
        ClusterError."""
        ...

    def follow(self) -> AsyncGenerator[str, None]:
        """Watch the holder: yields it now and after each write, until the connection ends. The
        first values may be outdated. Raises ClusterError. Close it after use."""
        ...


@dataclass(frozen=True, slots=True)
class Relisted:
    """All nodes, pods and other objects; replaces the known state. It is the first change of a
    watch, and follows each new list request."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    objects: tuple[ClusterObject, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node was added or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod was added or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod was deleted."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class ObjectChanged:
    """A namespace or a storage object was added or changed."""

    object: ClusterObject


@dataclass(frozen=True, slots=True)
class ObjectDeleted:
    """A namespace or a storage object was deleted; only its type and key count."""

    object: ClusterObject


ClusterChange = (
    Relisted | NodeChanged | NodeDeleted | PodChanged | PodDeleted | ObjectChanged | ObjectDeleted
)


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on a pod or a node. `reason` is in CamelCase."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    once: bool = False  # repeats, also after a restart, say nothing new and are not counted


@dataclass(frozen=True, slots=True)
class Workload:
    """The Deployment of a pod's ReplicaSet."""

    namespace: str
    name: str
    uid: str
    version: str  # the resource version that was read
    replicas: int  # wanted
    rolled_out: bool = False  # its rollout is over and all its replicas are available
    autoscaled: bool = False  # a HorizontalPodAutoscaler sets its replicas, or that is unknown
    extra: str | None = None  # its annotation leadline.dev/extra-replica
    recreates: bool = False  # by its strategy Recreate: its pods must not run beside each other

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ImagePull:
    """A kubelet began to pull an image, or has pulled it, for the pod with this uid."""

    node: str
    pod_uid: str
    image: str  # its full name
    # How long the download and unpacking took, seconds, without the wait for other images; None
    # when it began.
    took_s: float | None = None
    size_mb: float | None = None  # of the whole image, None if unknown
    is_old: bool = False  # it was listed after a (re)start, so nobody knows what else was going on


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a running pod used when it was last measured, seconds since 1970 on its node's clock."""

    namespace: str
    name: str
    cpu_cores: float
    memory_bytes: float
    measured_s: float


class UsageSource(Protocol):
    """Kubernetes' metrics API, which a cluster may lack."""

    async def pod_usage(self) -> Sequence[PodUsage]:
        """What each running pod uses. Raises ClusterError."""
        ...


class Cluster(Protocol):
    """A cluster to list, watch and write to."""

    def watch(self) -> AsyncGenerator[ClusterChange, None]:
        """List, then watch: yields Relisted, then every change, forever. Reconnects by itself."""
        ...

    async def prepare(self, plan: VolumePlan) -> None:
        """Reserve the plan's volumes and annotate its claims; skip what is already done. Does not
        wait for the claims to be bound. Raises ClusterError; after StorageChangedError a part of
        the plan may be done."""
        ...

    async def bind(self, pod: Pod, node: str) -> None:
        """Bind exactly this pod (by uid) to a node. Raises ClusterError."""
        ...

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        """Write an event. Repeated events are aggregated. Raises ClusterError."""
        ...

    async def evict(self, pod: Pod) -> None:
        """Evict exactly this pod (by uid), if its disruption budgets allow it. The pod then
        terminates; its owner makes another. Raises BudgetError and other ClusterErrors."""
        ...

    async def nominate(self, pod: Pod, node: str | None) -> None:
        """Say in the status of exactly this pod (by uid) for which node it is nominated; None for
        none. Raises ClusterError."""
        ...

    async def preempt(self, pod: Pod, message: str) -> None:
        """Say in the status of exactly this pod (by uid) that it is preempted, and delete it. It
        ends gracefully; disruption budgets do not hold it. Raises NotFoundError and ConflictError
        if it is gone already, and other ClusterErrors."""
        ...

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:
        """The Deployment of this ReplicaSet, or the one of this name; None if the owner is
        something else. Raises ClusterError."""
        ...

    async def scale(self, over: Workload, replicas: int, extra: str | None) -> Workload:
        """Set replicas and the annotation leadline.dev/extra-replica (None removes it) together,
        if the Deployment is still as in `over`. Raises ConflictError if it is not, and other
        ClusterErrors."""
        ...

    async def resize(self, pod: Pod, containers: Sequence[ContainerResources]) -> None:
        """Ask for other resources of exactly this pod's containers (by uid), in place. Raises
        ClusterError."""
        ...

    async def read_notes(self) -> Mapping[str, str]:
        """What this cluster's controllers keep for the next leader: key -> text; empty if nothing.
        Raises ClusterError."""
        ...

    async def write_note(self, key: str, text: str | None) -> None:
        """Replace one note, or remove it. Raises ClusterError."""
        ...

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of exactly this pod (by uid), remove those that are None, and leave the
        others. Raises ClusterError."""
        ...
