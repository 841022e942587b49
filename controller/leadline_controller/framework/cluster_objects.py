"""Namespaces and storage objects, frozen, and the plan to bind a pod's claims. The key of a claim
is namespace/name, that of any other object its name.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from leadline_controller.framework.model import Pod
from leadline_controller.framework.selectors import Selector, Terms, selects

READ_WRITE_ONCE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
BUDGETS = "poddisruptionbudgets"
SELECTING = ("services", "replicationcontrollers", "replicasets", "statefulsets")
Mode = Literal["Filesystem", "Block"]


@dataclass(frozen=True, slots=True)
class _Named:
    name: str

    @property
    def key(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True, slots=True)
class NamespaceLabels(_Named):
    """A namespace: its labels, and the annotation for all of its pods."""

    labels: Mapping[str, str]
    deletion_order: str = ""  # of its pods that have none of their own; "" without one


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str = ""
    class_name: str = ""  # "" for none
    volume: str = ""  # spec.volumeName
    bound: bool = False  # its binding is complete
    lost: bool = False  # the phase is Lost
    terminating: bool = False
    selected_node: str | None = None  # the node for which its volume is provisioned
    size_bytes: Fraction | None = None  # None if it requests no size
    access_modes: frozenset[str] = frozenset()
    mode: Mode = "Filesystem"
    selector: Selector | None = None
    attributes_class: str = ""
    owner_uid: str | None = None  # of its controller

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Volume(_Named):
    """A PersistentVolume."""

    class_name: str = ""
    size_bytes: Fraction = Fraction(0)
    access_modes: frozenset[str] = frozenset()
    mode: Mode = "Filesystem"
    attributes_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # Its claimRef, as namespace/name and uid; None if it has none, and "" for any uid.
    claim: str | None = None
    claim_uid: str = ""
    available: bool = False  # the phase is Available
    terminating: bool = False
    affinity: Terms | None = None  # node affinity, None for all nodes
    # Of a CSI volume, else "".
    driver: str = ""
    handle: str = ""
    kind: str = ""  # the field of the manifest with its source

    def is_reserved_for(self, claim: Claim) -> bool:
        """Whether its claimRef names exactly this claim."""
        return self.claim == claim.key and self.claim_uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class StorageClass(_Named):
    """A StorageClass."""

    provisioner: str
    waits: bool = False  # volumeBindingMode is WaitForFirstConsumer
    topologies: Terms | None = None  # the allowed topologies, None for all nodes

    @property
    def provisions(self) -> bool:
        """Whether it provisions volumes dynamically."""
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class CsiNode(_Named):
    """A CSINode."""

    limits: Mapping[str, int]  # driver -> the number of its volumes that the node can attach


@dataclass(frozen=True, slots=True)
class CsiDriver(_Named):
    """A CSIDriver."""

    tracks_capacity: bool = False  # its spec.storageCapacity


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: the largest volume of a class on the nodes that match."""

    key: str
    class_name: str
    topology: Selector | None  # None matches no node
    largest_bytes: int | None  # None if unknown


@dataclass(frozen=True, slots=True)
class Attachment(_Named):
    """A VolumeAttachment: a driver's volume is attached to a node."""

    node: str
    driver: str
    volume: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A kind whose objects Leadline may not list."""

    kind: str
    why: str  # the API server's answer

    @property
    def key(self) -> str:
        """The kind."""
        return self.kind


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: Selector | None  # matches the pods of its namespace
    # How many may be disrupted now, 0 while its controller has not seen its last change.
    allowed: int = 0
    # Names of pods whose eviction it has counted already, and which are still there.
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The selector by which a Service, ReplicationController, ReplicaSet or StatefulSet has its
    pods, those of its namespace. None selects none."""

    kind: str
    namespace: str
    name: str
    selector: Selector | None

    @property
    def key(self) -> str:
        """kind/namespace/name."""
        return f"{self.kind}/{self.namespace}/{self.name}"


ClusterObject = (
    NamespaceLabels
    | Claim
    | Volume
    | StorageClass
    | CsiNode
    | CsiDriver
    | StorageCapacity
    | Attachment
    | DisruptionBudget
    | PodSelector
    | Unreadable
)


# What DefaultSelector of kube-scheduler looks up, by the owner reference's version and kind.
_OWNERS = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class PodSelectors:
    """The selectors of Services and of the controllers that own pods. Views share it, also those
    with which other threads plan, because a copy for each change would cost more than a decision.

    A Service is filed under one label of its selector, the one under which the fewest are: so a
    pod asks those that may select it, and not all of its namespace.
    """

    def __init__(self, selectors: Iterable[PodSelector] = ()) -> None:
        self._services: dict[tuple[str, str, str], dict[str, Selector]] = {}
        self._filed: dict[tuple[str, str], tuple[str, str, str]] = {}
        self._owners: dict[tuple[str, str, str], Selector] = {}
        for each in selectors:
            self.put(each)

    def __iter__(self) -> Iterator[PodSelector]:
        """All selectors that select something."""
        for (namespace, _, _), services in self._services.items():
            for name, selector in services.items():
                yield PodSelector("Service", namespace, name, selector)
        for (kind, namespace, name), selector in self._owners.items():
            yield PodSelector(kind, namespace, name, selector)

    def put(self, made: PodSelector) -> bool:
        """Add or replace a selector. Whether that changed anything."""
        if not made.selector:  # selects nothing, or says nothing about the pods
            return self.remove(made)
        if made.kind != "Service":
            key = made.kind, made.namespace, made.name
            before, self._owners[key] = self._owners.get(key), made.selector
            return before != made.selector
        name = made.namespace, made.name
        labels = [(made.namespace, each.key, each.values[0]) for each in made.selector]
        old = self._filed.get(name)
        place = (
            old if old in labels else min(labels, key=lambda at: len(self._services.get(at, ())))
        )
        services = self._services.setdefault(place, {})
        before, services[made.name] = services.get(made.name), made.selector
        self._filed[name] = place
        if old is not None and old != place:
            self._take(old, made.name)
        return before != made.selector

    def remove(self, gone: PodSelector) -> bool:
        """Forget a selector. Whether it was known."""
        if gone.kind != "Service":
            before = self._owners.pop((gone.kind, gone.namespace, gone.name), None)
            return before is not None
        place = self._filed.pop((gone.namespace, gone.name), None)
        if place is not None:
            self._take(place, gone.name)
        return place is not None

    def _take(self, place: tuple[str, str, str], name: str) -> None:
        services = self._services[place]
        del services[name]
        if not services:
            del self._services[place]

    def service(self, namespace: str, name: str) -> Selector | None:
        """The selector of the Service of this name; None without one."""
        place = self._filed.get((namespace, name))
        return None if place is None else self._services.get(place, {}).get(name)

    def services_of(self, pod: Pod) -> Iterator[tuple[str, Selector]]:
        """The Services that select the pod, each with its name and selector."""
        for key, value in pod.labels.items():
            # A copy, because the watch goes on while another thread plans.
            for name, each in list(self._services.get((pod.namespace, key, value), {}).items()):
                if selects(each, pod.labels):
                    yield name, each

    def of(self, pod: Pod) -> Selector:
        """The selector of the pod's peers: the requirements of its owner, and of all Services that
        select it. Empty if it has neither. As DefaultSelector in kube-scheduler (1.36)."""
        found = [each for _, each in self.services_of(pod)]
        owner = pod.owner
        if owner is not None and (owner.api_version, owner.kind) in _OWNERS:
            found.append(self._owners.get((owner.kind, pod.namespace, owner.name), ()))
        return tuple(dict.fromkeys(requirement for each in found for requirement in each))


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """The work on claims and volumes that must precede a pod's binding to `node`. Then wait until
    all of these claims are bound (Claim.bound). If a claim loses the annotation, provisioning has
    failed and the pod must be scheduled again."""

    node: str
    # (volume, claim key) of static bindings: set spec.claimRef to the claim, with its uid, and the
    # annotation pv.kubernetes.io/bound-by-controller=yes.
    binds: tuple[tuple[str, str], ...] = ()
    # Keys of claims for dynamic provisioning: annotate them with
    # volume.kubernetes.io/selected-node=<node>.
    selects: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any work."""
        return bool(self.binds or self.selects)


@dataclass(frozen=True, eq=False)
class Storage:
    """The storage objects, by key. capacities and attachments are few, so they have no index."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    csi_nodes: Mapping[str, CsiNode] = field(default_factory=dict)
    drivers: Mapping[str, CsiDriver] = field(default_factory=dict)
    capacities: tuple[StorageCapacity, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()  # kinds that Leadline may not read

    @classmethod
    def of(cls, objects: Iterable[ClusterObject]) -> "Storage":
        """Storage with these objects; namespaces are ignored."""
        known: defaultdict[type, dict[str, Any]] = defaultdict(dict)
        for each in objects:
            known[type(each)][each.key] = each
        return cls(
            claims=known[Claim],
            volumes=known[Volume],
            classes=known[StorageClass],
            csi_nodes=known[CsiNode],
            drivers=known[CsiDriver],
            capacities=tuple(known[StorageCapacity].values()),
            attachments=tuple(known[Attachment].values()),
            unreadable=tuple(
                each
                for each in known[Unreadable].values()
                if each.kind not in (BUDGETS, *SELECTING)
            ),
        )

    @property
    def unknown(self) -> str | None:
        """Why no pod with claims can be scheduled; None if every kind is readable."""
        if not self.unreadable:
            return None
        kinds = ", ".join(sorted(each.kind for each in self.unreadable))
        return f"Leadline may not read the cluster's {kinds}: {self.unreadable[0].why}"

    @cached_property
    def volumes_by_class(self) -> Mapping[str, list[Volume]]:
        """Storage class -> its volumes, the smallest first."""
        found: dict[str, list[Volume]] = {}
        for volume in sorted(self.volumes.values(), key=lambda v: (v.size_bytes, v.name)):
            found.setdefault(volume.class_name, []).append(volume)
        return found

    @cached_property
    def attachments_by_node(self) -> Mapping[str, tuple[Attachment, ...]]:
        """Node name -> its attachments."""
        found: dict[str, list[Attachment]] = {}
        for attachment in self.attachments:
            found.setdefault(attachment.node, []).append(attachment)
        return {node: tuple(attached) for node, attached in found.items()}

    def assuming(self, *plans: VolumePlan) -> "Storage":
        """Storage after these plans. Claims and volumes that are already taken stay as they are."""
        if not any(plans):
            return self
        claims, volumes = dict(self.claims), dict(self.volumes)
        for plan in plans:
            for key in plan.selects:
                claim = claims.get(key)
                if claim is not None and not claim.volume and claim.selected_node is None:
                    claims[key] = replace(claim, selected_node=plan.node)
            for name, key in plan.binds:
                volume, claim = volumes.get(name), claims.get(key)
                if volume is not None and claim is not None and volume.claim is None:
                    volumes[name] = replace(volume, claim=key, claim_uid=claim.uid)
        return replace(self, claims=claims, volumes=volumes)
