"""Claims, volumes and the other storage objects, and the plan to bind a pod's claims."""

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

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """The work on claims and volumes that must precede a pod's binding to `node`.

    binds: (volume, claim key) of static bindings: set spec.claimRef to the claim, with its uid,
    and the annotation pv.kubernetes.io/bound-by-controller=yes. selects: keys of claims for
    dynamic provisioning: annotate them with volume.kubernetes.io/selected-node=<node>. Then wait
    until all of these claims are bound (Claim.bound). If a claim loses the annotation,
    provisioning has failed and the pod must be scheduled again.
    """

    node: str
    binds: tuple[tuple[str, str], ...] = ()
    selects: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any work."""
        return bool(self.binds or self.selects)


@dataclass(frozen=True, eq=False)
class Storage:
    """The storage objects, by key. capacities and attachments are few, so they have no index.
    unreadable: kinds that Leadline may not read."""

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
        """Storage with these resources; namespaces are ignored."""
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


def _by_key(kind: type[R], resources: Iterable[Resource]) -> dict[str, R]:
    return {resource.key: resource for resource in resources if isinstance(resource, kind)}
