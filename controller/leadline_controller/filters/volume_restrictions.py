"""VolumeRestrictions: disks that only one node can use, and ReadWriteOncePod claims."""

from leadline_controller.framework.cluster_objects import READ_WRITE_ONCE_POD
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Disk, Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView

_REQUEUE_ON = ClusterEvent.MOUNTS | ClusterEvent.NODES
_REQUEUE_ON_CLAIM = ClusterEvent.MOUNTS | ClusterEvent.CLAIMS | ClusterEvent.NODE_DELETED


def volume_restrictions(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes without a conflicting disk. No node passes if another pod uses the pod's
    ReadWriteOncePod claim."""
    if not pod.claims and not pod.disks:
        return FilterResult.all_pass(view)
    exclusive = {
        key
        for use in pod.claims
        if not use.ephemeral
        and (claim := view.storage.claims.get(key := pod.claim_key(use))) is not None
        and READ_WRITE_ONCE_POD in claim.access_modes
    }
    mounted = (
        pod_there.claim_key(use)
        for pods in (view.mounts.values() if exclusive else ())
        for pod_there in pods
        for use in pod_there.claims
        if not use.ephemeral
    )
    if used := next((key for key in mounted if key in exclusive), None):
        name = used.partition("/")[2]
        why = f'persistentvolumeclaim "{name}" is ReadWriteOncePod and in use by another pod'
        # That pod may be one of lower priority, on whichever node.
        return FilterResult(
            *(view.table.none(), lambda _: why, why, view.table.all()), _REQUEUE_ON_CLAIM
        )
    passes = view.table.all()
    if pod.disks:
        wanted: dict[tuple[str, str], list[Disk]] = {}
        for disk in pod.disks:
            wanted.setdefault((disk.kind, disk.name), []).append(disk)
        for i, pods in view.mounts.items():
            passes[i] = not any(
                disk.conflicts_with(held)
                for assigned in pods
                for held in assigned.disks
                for disk in wanted.get((held.kind, held.name), ())
            )
    why = "a pod there has a disk that the pod needs for itself"
    return FilterResult(
        passes,
        lambda _: why,
        resolvable_by_preemption=view.table.all(),
        requeue_on=_REQUEUE_ON,
        is_local=not exclusive,
    )
