"""Waits until the watch shows the volumes of a pod as bound."""

import asyncio
from dataclasses import dataclass, field

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cluster_objects import Claim, ClusterObject, Volume, VolumePlan
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    Clock,
    ClusterChange,
    ClusterError,
    ConflictError,
    NodeChanged,
    NodeDeleted,
    NotFoundError,
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
    StorageChangedError,
    UnavailableError,
)
from leadline_controller.waiting import within

TIMEOUT_S = 600.0  # kube-scheduler's figure


@dataclass(slots=True, eq=False)
class _Wait:
    """One pod's wait."""

    pod: Pod
    plan: VolumePlan
    bound: asyncio.Future[None]
    # The objects that the watch has shown as planned; it may still show the others as they were
    # before the plan.
    seen: set[str] = field(default_factory=set)

    def is_about(self, changed: ClusterObject) -> bool:
        volumes, claims = [name for name, _ in self.plan.binds], [key for _, key in self.plan.binds]
        claims += self.plan.selects
        if isinstance(changed, Claim):
            return changed.key in claims
        return isinstance(changed, Volume) and (changed.claim in claims or changed.name in volumes)


class VolumeWaits:
    """Pods whose volume plans are written to the cluster, and whose claims are not bound yet."""

    def __init__(self, state: ClusterState, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._waits: dict[str, _Wait] = {}
        self._stopped = False

    async def until_bound(self, pod: Pod, plan: VolumePlan) -> None:
        """Wait until all claims of the plan are bound to volumes that its node can reach.

        Raises StorageChangedError when they can't be, UnavailableError after ten minutes,
        NotFoundError or ConflictError when the pod no longer needs them.
        """
        wait = _Wait(pod, plan, asyncio.get_running_loop().create_future())
        if self._stopped:
            wait.bound.cancel()
        self._waits[pod.uid] = wait
        self._check(wait)
        try:
            if not await within(self._clock, wait.bound, TIMEOUT_S):
                raise UnavailableError(f"its volumes were not bound within {TIMEOUT_S:.0f} s")
            await wait.bound
        finally:
            del self._waits[pod.uid]

    def observe(self, change: ClusterChange) -> None:
        """Check the waits that this change of the state may end."""
        if not self._waits:
            return
        match change:
            case PodChanged(pod) | PodDeleted(pod):
                affected = [self._waits[pod.uid]] if pod.uid in self._waits else []
            case ObjectChanged(changed) | ObjectDeleted(changed):
                affected = [wait for wait in self._waits.values() if wait.is_about(changed)]
            case Relisted() | NodeDeleted():
                affected = list(self._waits.values())
            case NodeChanged():
                affected = []
        for wait in affected:
            self._check(wait)

    def stop(self) -> None:
        """Cancel all waits, present and future."""
        self._stopped = True
        for wait in self._waits.values():
            wait.bound.cancel()

    def _check(self, wait: _Wait) -> None:
        if wait.bound.done():
            return
        try:
            if self._are_bound(wait):
                wait.bound.set_result(None)
        except ClusterError as error:
            wait.bound.set_exception(error)

    def _are_bound(self, wait: _Wait) -> bool:
        pod = self._state.pod(wait.pod.uid)
        if pod is None or pod.terminating:
            raise NotFoundError(f"pod {wait.pod.key} went while its volumes were being bound")
        if pod.node_name is not None:
            raise ConflictError(f"pod {pod.key} is on node {pod.node_name}")
        if wait.plan.node not in self._state.nodes():
            raise StorageChangedError(f"node {wait.plan.node} is gone")
        reserved = [self._is_reserved(wait, *bind) for bind in wait.plan.binds]
        selected = [self._is_selected(wait, key) for key in wait.plan.selects]
        return all(reserved) and all(selected)

    def _is_reserved(self, wait: _Wait, name: str, key: str) -> bool:
        volume = self._state.objects.volume(name)
        if volume is None:
            raise StorageChangedError(f"volume {name} is gone")
        if volume.claim == key:
            wait.seen.add(name)
        elif volume.claim is not None or name in wait.seen:
            raise StorageChangedError(f"volume {name} is no longer kept for claim {key}")
        return self._is_bound(wait, self._claim(key))

    def _is_selected(self, wait: _Wait, key: str) -> bool:
        claim = self._claim(key)
        if claim.selected_node == wait.plan.node:
            wait.seen.add(key)
        elif claim.selected_node is not None or key in wait.seen:
            raise StorageChangedError(f"no volume could be made for claim {key} on this node")
        return self._is_bound(wait, claim)

    def _claim(self, key: str) -> Claim:
        claim = self._state.objects.claim(key)
        if claim is None or claim.lost or claim.terminating:
            raise StorageChangedError(f"claim {key} is gone")
        return claim

    def _is_bound(self, wait: _Wait, claim: Claim) -> bool:
        volume = self._state.objects.volume(claim.volume)
        if not claim.bound or volume is None:  # the watch may show the claim before its volume
            return False
        table, node = self._state.table, wait.plan.node
        if volume.affinity is not None and table.index[node] not in table.indexes_matching(
            volume.affinity
        ):
            raise StorageChangedError(f"volume {volume.name} is not reached from node {node}")
        return True
