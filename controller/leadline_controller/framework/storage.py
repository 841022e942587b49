"""All that is known of storage, as a decision sees it, and what is to be done about it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from leadline_controller.framework.resources import (
    Attachment,
    Claim,
    CsiDriver,
    CsiNode,
    Resource,
    StorageCapacity,
    StorageClass,
    Unreadable,
    Volume,
)

Some = TypeVar("Some", bound=Resource)


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What has to be done before a pod is bound to `node`, so that its volumes are there.

    binds: (volume, claim key) of volumes to reserve: set spec.claimRef to the claim, with its
    uid, and the annotation pv.kubernetes.io/bound-by-controller=yes. selects: keys of claims
    to annotate with volume.kubernetes.io/selected-node=<node>, so that a volume is made there.
    Then all of these claims have to be bound (Claim.bound) before the pod is. A claim whose
    annotation vanishes meanwhile could not be provisioned: the pod has to be tried anew.
    """

    node: str
    binds: tuple[tuple[str, str], ...] = ()
    selects: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.binds or self.selects)


@dataclass(frozen=True, eq=False)
class Storage:
    """All that is known of storage, by key. capacities and attachments are few enough to be
    looked through. unreadable: kinds of which nothing is known, although there may be some."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    csi_nodes: Mapping[str, CsiNode] = field(default_factory=dict)
    drivers: Mapping[str, CsiDriver] = field(default_factory=dict)
    capacities: tuple[StorageCapacity, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> "Storage":
        """Storage made of these; what has nothing to do with storage is passed over."""
        known = tuple(resources)
        return cls(
            claims=_by_key(Claim, known),
            volumes=_by_key(Volume, known),
            classes=_by_key(StorageClass, known),
            csi_nodes=_by_key(CsiNode, known),
            drivers=_by_key(CsiDriver, known),
            capacities=tuple(_by_key(StorageCapacity, known).values()),
            attachments=tuple(_by_key(Attachment, known).values()),
            unreadable=tuple(_by_key(Unreadable, known).values()),
        )

    @property
    def unknown(self) -> str | None:
        """Why no pod with volumes can be placed, None where all is known."""
        if not self.unreadable:
            return None
        kinds = ", ".join(sorted(each.kind for each in self.unreadable))
        return f"Leadline may not read the cluster's {kinds}: {self.unreadable[0].why}"

    @cached_property
    def _by_class(self) -> dict[str, list[Volume]]:
        found: dict[str, list[Volume]] = {}
        for volume in sorted(self.volumes.values(), key=lambda v: (v.size_bytes, v.name)):
            found.setdefault(volume.class_name, []).append(volume)
        return found

    def volumes_of(self, class_name: str) -> list[Volume]:
        """The volumes of a class, the smallest first."""
        return self._by_class.get(class_name, [])

    @cached_property
    def attachments_by_node(self) -> Mapping[str, tuple[Attachment, ...]]:
        """Node name -> what is attached there."""
        found: dict[str, list[Attachment]] = {}
        for attachment in self.attachments:
            found.setdefault(attachment.node, []).append(attachment)
        return {node: tuple(attached) for node, attached in found.items()}

    def assuming(self, *plans: VolumePlan) -> "Storage":
        """Storage as it will be when the plans are carried out. What is settled already stays."""
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


def _by_key(kind: type[Some], resources: Iterable[Resource]) -> dict[str, Some]:
    return {resource.key: resource for resource in resources if isinstance(resource, kind)}
