"""Volume binding: the nodes on which a pod's claims can be satisfied, and the work to do before
the pod is bound.

Kubernetes has three cases. The volume of a bound claim has a node affinity. An unbound claim with
volumeBindingMode WaitForFirstConsumer takes the smallest available volume that matches and that
the node can reach, or has one provisioned. Any other claim must be bound before its pod is
scheduled.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

import numpy as np

from leadline_controller.framework.cluster_objects import Claim, Volume, VolumePlan
from leadline_controller.framework.model import Pod
from leadline_controller.framework.quantity import MAX_AMOUNT
from leadline_controller.framework.selectors import selects
from leadline_controller.framework.view import Bools, ClusterView

# Kubernetes derives the topology of these in-tree cloud volumes by rules of their providers.
_CLOUD_KINDS = (
    *("awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "cinder", "portworxVolume"),
    *("azureFile", "vsphereVolume"),
)
_NONE_FREE = "no available persistent volume to bind, and none can be made for this node"


class UnresolvableClaimError(Exception):
    """No node is feasible until the pod's claims change; str() gives the reason."""


@dataclass(frozen=True, slots=True)
class _Candidates:
    """A claim and the volumes that match it, the smallest first, and no more than the pod's claims
    can use."""

    claim: Claim
    local: dict[int, list[Volume]]  # volumes with node affinity, by node
    shared: list[Volume]  # volumes that all nodes reach

    def on(self, node: int) -> list[Volume]:
        local = self.local.get(node)
        if local is None:
            return self.shared
        return sorted((*local, *self.shared), key=lambda v: (v.size_bytes, v.name))


class VolumeBinder:
    """Finds volumes for one pod's claims. Raises UnresolvableClaimError."""

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._view = view
        self._storage = view.storage
        self._bound: list[Volume] = []
        self._provisioning: list[Claim] = []  # claims with a selected node
        self._cached: dict[Hashable, _Candidates] = {}
        self._reachable: dict[str, list[int]] = {}
        delayed: list[Claim] = []
        for claim in _claims(view, pod):
            if claim.bound:
                volume = self._storage.volumes.get(claim.volume)
                if volume is None:
                    raise UnresolvableClaimError(
                        f'persistentvolumeclaim "{claim.name}" is bound to volume'
                        f' "{claim.volume}", which does not exist'
                    )
                self._bound.append(_modelled(volume))
            elif claim.selected_node is not None:
                self._provisioning.append(claim)
            else:
                delayed.append(claim)
        delayed.sort(key=lambda claim: claim.size_bytes or 0)
        self._candidates = [self._candidates_of(claim, len(delayed)) for claim in delayed]
        self._provisionable = {
            claim.key: self._can_provision(claim) for claim in (*delayed, *self._provisioning)
        }

    @cached_property
    def passes(self) -> Bools:
        """The nodes on which all of the pod's claims can be satisfied, shape (n,)."""
        table = self._view.table
        passes = table.all()
        for volume in self._bound:
            if volume.affinity is not None:
                passes &= table.matching(volume.affinity)
        for claim in self._provisioning:
            selected = table.index.get(claim.selected_node or "", -1)
            passes &= self._provisionable[claim.key] & (np.arange(len(table)) == selected)
        return self._with_delayed_claims(passes)

    def _with_delayed_claims(self, passes: Bools) -> Bools:
        """Nodes with local volumes are searched one by one; all other nodes are alike."""
        local = list({node: None for candidates in self._candidates for node in candidates.local})
        if len(self._candidates) == 1:
            (one,) = self._candidates
            found = passes if one.shared else passes & self._provisionable[one.claim.key]
            found[local] = passes[local]
            return found
        result = passes.copy()
        result[local] = False
        taken: set[str] = set()
        for candidates in self._candidates:
            volume = next((v for v in candidates.shared if v.name not in taken), None)
            if volume is None:
                result &= self._provisionable[candidates.claim.key]
            else:
                taken.add(volume.name)
        for node in local:
            result[node] = passes[node] and self.plan(node) is not None
        return result

    def plan(self, node: int) -> VolumePlan | None:
        """The plan for the node with this index; None if the claims cannot be satisfied there.

        A claim that the pod mounts twice must find two volumes, as in kube-scheduler, but takes
        only the first.
        """
        binds: dict[str, str] = {}
        selects = {claim.key: None for claim in self._provisioning}
        taken: set[str] = set()
        for candidates in self._candidates:
            key = candidates.claim.key
            volume = next((v for v in candidates.on(node) if v.name not in taken), None)
            if volume is not None:
                taken.add(volume.name)
                binds.setdefault(key, volume.name)
            elif not self._provisionable[key][node]:
                return None
            elif key not in binds:
                selects[key] = None
        name = self._view.table.names[node]
        return VolumePlan(name, tuple((v, k) for k, v in binds.items()), tuple(selects))

    def reason(self, node: int) -> str:
        """Why a node does not pass."""
        table = self._view.table
        for volume in self._bound:
            if volume.affinity is not None and node not in table.indexes_matching(volume.affinity):
                return f"volume node affinity conflict: volume {volume.name} is not reached"
        for claim in self._provisioning:
            if claim.selected_node != table.names[node]:
                return f"the volume of claim {claim.name} is to be on {claim.selected_node}"
        return _NONE_FREE

    def _candidates_of(self, claim: Claim, needed: int) -> _Candidates:
        """Searched once for all claims that differ only in their names."""
        spec = (
            *(claim.class_name, claim.size_bytes, claim.mode, claim.attributes_class),
            *(claim.selector, claim.access_modes),
        )
        volumes = self._storage.volumes_by_class.get(claim.class_name, ())
        reserved = (volume.is_reserved_for(claim) for volume in volumes)
        key = (*spec, claim.key if any(reserved) else None)
        found = self._cached.get(key)
        if found is None:
            found = self._cached[key] = self._search(claim, needed)
        return replace(found, claim=claim)

    def _search(self, claim: Claim, needed: int) -> _Candidates:
        local: dict[int, list[Volume]] = {}
        shared: list[Volume] = []
        for volume in self._matching_volumes(claim):
            _modelled(volume)
            if volume.affinity is None:
                if len(shared) < needed:
                    shared.append(volume)
                continue
            nodes = self._reachable.get(volume.name)
            if nodes is None:
                nodes = self._view.table.indexes_matching(volume.affinity).tolist()
                self._reachable[volume.name] = nodes
            for node in nodes:
                found = local.setdefault(node, [])
                if len(found) < needed:
                    found.append(volume)
        return _Candidates(claim, local, shared)

    def _matching_volumes(self, claim: Claim) -> Iterator[Volume]:
        """The available volumes that match the claim, the smallest first; if one is reserved for
        the claim, only that one."""
        fitting = [
            volume
            for volume in self._storage.volumes_by_class.get(claim.class_name, ())
            if volume.size_bytes >= (claim.size_bytes or 0)
            and volume.mode == claim.mode
            and volume.attributes_class == claim.attributes_class
            and not volume.terminating
        ]
        reserved = [v for v in fitting if v.is_reserved_for(claim)]
        if reserved:
            yield reserved[0]
            return
        for volume in fitting:
            free = volume.claim is None and volume.available
            selected = claim.selector is None or selects(claim.selector, volume.labels)
            if free and selected and claim.access_modes <= volume.access_modes:
                yield volume

    def _can_provision(self, claim: Claim) -> Bools:
        """The nodes for which a volume can be provisioned for this claim, shape (n,)."""
        table, storage_class = self._view.table, self._storage.classes[claim.class_name]
        if not storage_class.provisions:
            return table.none()
        topologies = storage_class.topologies
        passes = table.all() if topologies is None else table.matching(topologies)
        driver = self._storage.drivers.get(storage_class.provisioner)
        if claim.size_bytes is None or driver is None or not driver.tracks_capacity:
            return passes
        has_capacity = table.none()
        size_bytes = ceil(claim.size_bytes)
        for capacity in self._storage.capacities:
            largest = capacity.largest_bytes
            if (
                capacity.class_name == storage_class.name
                and capacity.topology is not None
                and largest is not None
                and size_bytes <= largest
                and size_bytes < MAX_AMOUNT
            ):
                has_capacity |= table.selected(capacity.topology)
        return passes & has_capacity


def _claims(view: ClusterView, pod: Pod) -> Iterator[Claim]:
    """The pod's claims in its order, checked."""
    if pod.claims and view.storage.unknown:
        raise UnresolvableClaimError(view.storage.unknown)
    for use in pod.claims:
        key = pod.claim_key(use)
        claim = view.storage.claims.get(key)
        shown = f'persistentvolumeclaim "{key.partition("/")[2]}"'
        if claim is None and use.ephemeral:
            raise UnresolvableClaimError(f"{shown} of an ephemeral volume is not there yet")
        if claim is None:
            raise UnresolvableClaimError(f"{shown} not found")
        if claim.lost:
            raise UnresolvableClaimError(f'{shown} has lost its volume "{claim.volume}"')
        if claim.terminating:
            raise UnresolvableClaimError(f"{shown} is being deleted")
        if use.ephemeral and not (pod.uid and claim.owner_uid == pod.uid):
            raise UnresolvableClaimError(f"{shown} was not made for this pod")
        storage_class = view.storage.classes.get(claim.class_name)
        delayed = storage_class is not None and storage_class.waits and not claim.volume
        if not claim.bound and not delayed:
            raise UnresolvableClaimError(
                f"{shown} is not bound, and is not to wait for its first pod"
            )
        yield claim


def _modelled(volume: Volume) -> Volume:
    if volume.kind in _CLOUD_KINDS:
        raise UnresolvableClaimError(
            f'persistentvolume "{volume.name}" is of kind {volume.kind}, which Leadline does not'
            " model"
        )
    return volume
