"""Namespaces and storage objects, frozen. The key of a claim is namespace/name, that of any
other resource its name.
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
class _Named:
    name: str

    @property
    def key(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True, slots=True)
class NamespaceLabels(_Named):
    """A namespace and its labels."""

    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim.

    class_name: "" for none. volume: spec.volumeName. bound: its binding is complete. lost: the
    phase is Lost. selected_node: the node for which its volume is provisioned. size_bytes: None
    if it requests no size. owner_uid: of its controller.
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
class Volume(_Named):
    """A PersistentVolume.

    claim, claim_uid: its claimRef, as namespace/name and uid; None if it has none, and "" for any
    uid. available: the phase is Available. affinity: node affinity, None for all nodes. driver,
    handle: of a CSI volume, else "". kind: the field of the manifest with its source.
    """

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

    def is_reserved_for(self, claim: Claim) -> bool:
        """Whether its claimRef names exactly this claim."""
        return self.claim == claim.key and self.claim_uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class StorageClass(_Named):
    """A StorageClass. waits: volumeBindingMode is WaitForFirstConsumer. topologies: the allowed
    topologies, None for all nodes."""

    provisioner: str
    waits: bool = False
    topologies: Terms | None = None

    @property
    def provisions(self) -> bool:
        """Whether it provisions volumes dynamically."""
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class CsiNode(_Named):
    """A CSINode. limits: driver -> the number of its volumes that the node can attach."""

    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CsiDriver(_Named):
    """A CSIDriver. tracks_capacity: its spec.storageCapacity."""

    tracks_capacity: bool = False


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: the largest volume of a class on the nodes that match. topology: None
    matches no node. largest_bytes: None if unknown."""

    key: str
    class_name: str
    topology: Selector | None
    largest_bytes: int | None


@dataclass(frozen=True, slots=True)
class Attachment(_Named):
    """A VolumeAttachment: a driver's volume is attached to a node."""

    node: str
    driver: str
    volume: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A kind whose objects Leadline may not list. why: the API server's answer."""

    kind: str
    why: str

    @property
    def key(self) -> str:
        """The kind."""
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
