"""Which nodes a pod's volumes can be on, and what has to be done before it is bound there.

Kubernetes' rules for claims: a bound claim's volume says which nodes reach it; a claim that
waits for its first pod takes the smallest free volume that fits and can be reached, or has one
made; any other claim has to be bound before its pod is placed.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from leadline_controller.framework.model import Pod
from leadline_controller.framework.quantity import MAX_AMOUNT
from leadline_controller.framework.resources import Claim, Volume
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.storage import VolumePlan
from leadline_controller.framework.view import Bools, ClusterView

# Volumes of clouds whose topology Kubernetes works out with those clouds' own rules.
CLOUD_KINDS = (
    *("awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "cinder", "portworxVolume"),
    *("azureFile", "vsphereVolume"),
)
_NONE_FREE = "no available persistent volume to bind, and none can be made for this node"


class RefusedClaimError(Exception):
    """The pod can be on no node before something is done about its claims; str() says what."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A claim and the volumes it could take, by node, the smallest first; only as many as may
    be needed when the pod's other claims take some of them. everywhere: those that all reach."""

    claim: Claim
    by_node: dict[int, list[Volume]]
    everywhere: list[Volume]

    def at(self, node: int) -> list[Volume]:
        local = self.by_node.get(node)
        if local is None:
            return self.everywhere
        return sorted((*local, *self.everywhere), key=lambda v: (v.size_bytes, v.name))


class VolumeSearch:
    """Looks for volumes for one pod. Raises RefusedClaimError.

    passes: shape (n,), the nodes on which all of its volumes can be.
    """

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._view = view
        self._storage = view.storage
        self._bound: list[Volume] = []
        self._selected: list[Claim] = []
        self._alike: dict[Hashable, _Offer] = {}
        self._reaches: dict[str, list[int]] = {}
        loose: list[Claim] = []
        for claim in _claims(view, pod):
            if claim.bound:
                self._bound.append(self._volume_of(claim))
            elif claim.selected_node is not None:
                self._selected.append(claim)
            else:
                loose.append(claim)
        loose.sort(key=lambda claim: claim.size_bytes or 0)
        self._offers = [self._offer(claim, len(loose)) for claim in loose]
        self._made = {c.key: self._can_make(c) for c in (*loose, *self._selected)}

    @cached_property
    def passes(self) -> Bools:
        """See the class."""
        table = self._view.table
        passes = table.all()
        for volume in self._bound:
            if volume.affinity is not None:
                passes &= table.matching(volume.affinity)
        for claim in self._selected:
            chosen = table.index.get(claim.selected_node or "")
            only = table.none()
            if chosen is not None:
                only[chosen] = self._made[claim.key][chosen]
            passes &= only
        return self._with_offers(passes)

    def plan(self, node: int) -> VolumePlan | None:
        """What is to be done for the node with this index; None where it can't be.

        A claim that the pod mounts twice has to find two volumes, as kube-scheduler wants it,
        though it takes only the first.
        """
        binds: dict[str, str] = {}
        selects = {claim.key: None for claim in self._selected}
        taken: set[str] = set()
        for offer in self._offers:
            key = offer.claim.key
            volume = next((v for v in offer.at(node) if v.name not in taken), None)
            if volume is not None:
                taken.add(volume.name)
                binds.setdefault(key, volume.name)
            elif not self._made[key][node]:
                return None
            elif key not in binds:
                selects[key] = None
        name = self._view.table.names[node]
        return VolumePlan(name, tuple((v, k) for k, v in binds.items()), tuple(selects))

    def reason(self, node: int) -> str:
        """Why a node does not pass."""
        for volume in self._bound:
            if volume.affinity is not None and node not in self._view.table.reach(volume.affinity):
                return f"volume node affinity conflict: volume {volume.name} is not reached"
        for claim in self._selected:
            if claim.selected_node != self._view.table.names[node]:
                return f"the volume of claim {claim.name} is to be on {claim.selected_node}"
        return _NONE_FREE

    def _with_offers(self, passes: Bools) -> Bools:
        """Nodes with volumes of their own are looked at one by one, all others are alike."""
        local = list({node: None for offer in self._offers for node in offer.by_node})
        if len(self._offers) == 1:
            return passes & self._offered(self._offers[0], local)
        alike = passes.copy()
        alike[local] = False
        taken: set[str] = set()
        for offer in self._offers:
            volume = next((v for v in offer.everywhere if v.name not in taken), None)
            if volume is None:
                alike &= self._made[offer.claim.key]
            else:
                taken.add(volume.name)
        for node in local:
            alike[node] = passes[node] and self.plan(node) is not None
        return alike

    def _offered(self, offer: _Offer, local: list[int]) -> Bools:
        """Where a claim that has no rivals finds a volume, or has one made."""
        found = self._view.table.all() if offer.everywhere else self._made[offer.claim.key].copy()
        found[local] = True
        return found

    def _volume_of(self, claim: Claim) -> Volume:
        volume = self._storage.volumes.get(claim.volume)
        if volume is None:
            raise RefusedClaimError(
                f'persistentvolumeclaim "{claim.name}" is bound to volume "{claim.volume}",'
                " which does not exist"
            )
        return _modelled(volume)

    def _offer(self, claim: Claim, needed: int) -> _Offer:
        """The same where the pod mounts a claim again, or claims differ in nothing but names."""
        wants = (
            *(claim.class_name, claim.size_bytes, claim.mode, claim.attributes_class),
            *(claim.selector, claim.access_modes),
        )
        reserved = (v.is_kept_for(claim) for v in self._storage.volumes_of(claim.class_name))
        key = (*wants, claim.key if any(reserved) else None)
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self._search(claim, needed)
        return replace(found, claim=claim)

    def _search(self, claim: Claim, needed: int) -> _Offer:
        by_node: dict[int, list[Volume]] = {}
        everywhere: list[Volume] = []
        for volume in self._candidates(claim):
            _modelled(volume)
            if volume.affinity is None:
                if len(everywhere) < needed:
                    everywhere.append(volume)
                continue
            for node in self._reach(volume):
                held = by_node.setdefault(node, [])
                if len(held) < needed:
                    held.append(volume)
        return _Offer(claim, by_node, everywhere)

    def _reach(self, volume: Volume) -> list[int]:
        """Indexes of the nodes that reach the volume; looked up once for all claims."""
        found = self._reaches.get(volume.name)
        if found is None:
            found = self._view.table.reach(volume.affinity).tolist()
            self._reaches[volume.name] = found
        return found

    def _candidates(self, claim: Claim) -> Iterator[Volume]:
        """What the claim could be bound to, the smallest first; a volume that was reserved for
        it is the only one."""
        fitting = [v for v in self._storage.volumes_of(claim.class_name) if _fits(claim, v)]
        reserved = [v for v in fitting if v.is_kept_for(claim)]
        if reserved:
            yield reserved[0]
            return
        for volume in fitting:
            free = volume.claim is None and volume.available
            selected = claim.selector is None or selects(claim.selector, volume.labels)
            if free and selected and claim.access_modes <= volume.access_modes:
                yield volume

    def _can_make(self, claim: Claim) -> Bools:
        """The nodes for which a volume can be made for this claim, shape (n,)."""
        table, kind = self._view.table, self._storage.classes[claim.class_name]
        if not kind.provisions:
            return table.none()
        passes = table.all() if kind.topologies is None else table.matching(kind.topologies)
        driver = self._storage.drivers.get(kind.provisioner)
        if claim.size_bytes is None or driver is None or not driver.tracks_capacity:
            return passes
        roomy = table.none()
        size_bytes = ceil(claim.size_bytes)
        for capacity in self._storage.capacities:
            largest = capacity.largest_bytes
            if (
                capacity.class_name == kind.name
                and capacity.topology is not None
                and largest is not None
                and size_bytes <= largest
                and size_bytes < MAX_AMOUNT
            ):
                roomy |= table.selected(capacity.topology)
        return passes & roomy


def _claims(view: ClusterView, pod: Pod) -> Iterator[Claim]:
    """The pod's claims, all of them fit to be used, in its order."""
    if pod.claims and view.storage.unknown:
        raise RefusedClaimError(view.storage.unknown)
    for use in pod.claims:
        key = pod.claim_key(use)
        claim = view.storage.claims.get(key)
        shown = f'persistentvolumeclaim "{key.partition("/")[2]}"'
        if claim is None and use.ephemeral:
            raise RefusedClaimError(f"{shown} of an ephemeral volume is not there yet")
        if claim is None:
            raise RefusedClaimError(f"{shown} not found")
        if claim.lost:
            raise RefusedClaimError(f'{shown} has lost its volume "{claim.volume}"')
        if claim.terminating:
            raise RefusedClaimError(f"{shown} is being deleted")
        if use.ephemeral and not (pod.uid and claim.owner_uid == pod.uid):
            raise RefusedClaimError(f"{shown} was not made for this pod")
        storage_class = view.storage.classes.get(claim.class_name)
        waits = storage_class is not None and storage_class.waits and not claim.volume
        if not claim.bound and not waits:
            raise RefusedClaimError(f"{shown} is not bound, and is not to wait for its first pod")
        yield claim


def _modelled(volume: Volume) -> Volume:
    if volume.kind in CLOUD_KINDS:
        raise RefusedClaimError(
            f'persistentvolume "{volume.name}" is of kind {volume.kind}, which Leadline does not'
            " model"
        )
    return volume


def _fits(claim: Claim, volume: Volume) -> bool:
    return (
        volume.size_bytes >= (claim.size_bytes or 0)
        and volume.mode == claim.mode
        and volume.attributes_class == claim.attributes_class
        and not volume.terminating
    )
