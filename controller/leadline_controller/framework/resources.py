"""The objects beside nodes and pods that decide where a pod can go: namespaces for their
labels, and everything about volumes. All frozen.

A claim is known by namespace/name, everything else by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from leadline_controller.framework.selectors import Selector, Terms

READ_WRITE_ONCE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
Mode = Literal["Filesystem", "Block"]


@dataclass(frozen=True, slots=True)
class NamespaceLabels:
    """A namespace and its labels."""

    name: str
    labels: Mapping[str, str]

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.name


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim.

    class_name: "" for none. volume: the volume it is, or is to be, bound to. bound: both sides
    agree on it. lost: its volume is gone. selected_node: where its volume is to be made.
    size_bytes: None where it asks for no size. owner_uid: of the object that controls it.
    """

    namespace: str
    name: str
    uid: str = ""
    class_name: str = ""
    volume: str = ""
    bound: bool = False
    lost: bool = False
    terminating: bool = False
    selected_node: str | None = None
    size_bytes: Fraction | None = None
    access_modes: frozenset[str] = frozenset()
    mode: Mode = "Filesystem"
    selector: Selector | None = None
    attributes_class: str = ""
    owner_uid: str | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume.

    claim, claim_uid: the claim it is kept for, as namespace/name, None where it is free; an
    empty uid is any. available: nobody has it. affinity: nodes that reach it, None for all.
    driver, handle: of a CSI volume, else "". kind: the field of the manifest that says what it is.
    """

    name: str
    class_name: str = ""
    size_bytes: Fraction = Fraction(0)
    access_modes: frozenset[str] = frozenset()
    mode: Mode = "Filesystem"
    attributes_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    claim: str | None = None
    claim_uid: str = ""
    available: bool = False
    terminating: bool = False
    affinity: Terms | None = None
    driver: str = ""
    handle: str = ""
    kind: str = ""

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.name

    def is_kept_for(self, claim: Claim) -> bool:
        """Whether it is bound, or was reserved by somebody, for exactly this claim."""
        return self.claim == claim.key and self.claim_uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass. waits: its volumes are bound when their first pod is placed
    (WaitForFirstConsumer). topologies: nodes for which it can make volumes, None for all."""

    name: str
    provisioner: str
    waits: bool = False
    topologies: Terms | None = None

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.name

    @property
    def provisions(self) -> bool:
        """Whether it can make volumes at all."""
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class CsiNode:
    """A CSINode. limits: driver -> volumes of it that the node can hold."""

    name: str
    limits: Mapping[str, int]

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.name


@dataclass(frozen=True, slots=True)
class CsiDriver:
    """A CSIDriver. tracks_capacity: it says where it has how much space left."""

    name: str
    tracks_capacity: bool = False

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.name


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: the largest volume of a class that the chosen nodes can get.
    topology None chooses no node; largest_bytes None says nothing."""

    key: str
    class_name: str
    topology: Selector | None
    largest_bytes: int | None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment: a driver holds a volume on a node."""

    name: str
    node: str
    driver: str
    volume: str

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.name


@dataclass(frozen=True, slots=True)
class Unreadable:
    """All objects of a kind, which may not be read. why: what the API server said."""

    kind: str
    why: str

    @property
    def key(self) -> str:
        """What it is known by."""
        return self.kind


Resource = (
    NamespaceLabels
    | Claim
    | Volume
    | StorageClass
    | CsiNode
    | CsiDriver
    | StorageCapacity
    | Attachment
    | Unreadable
)
