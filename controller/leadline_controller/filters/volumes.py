"""What a pod mounts, claims and disks: VolumeRestrictions, VolumeBinding, VolumeZone and
NodeVolumeLimits."""

from collections.abc import Iterator

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Disk, Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.resources import READ_WRITE_ONCE_POD, Claim, Storage, Volume
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import Bools, ClusterView, Ints
from leadline_controller.framework.volume_binding import UnresolvableClaimError, VolumeBinder

_IF_UNMOUNTED = ClusterEvent.MOUNTS | ClusterEvent.NODES
_IF_CLAIM_UNUSED = ClusterEvent.MOUNTS | ClusterEvent.CLAIMS | ClusterEvent.NODE_DELETED
_IF_CLAIMS = ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.CLASSES
_IF_STORAGE = _IF_CLAIMS | ClusterEvent.LIMITS
_IF_BOUND = _IF_STORAGE | ClusterEvent.MOUNTS | ClusterEvent.LABELS | ClusterEvent.NODES
_IF_ZONES = ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.LABELS | ClusterEvent.NODES
_IF_BELOW_LIMITS = _IF_STORAGE | ClusterEvent.MOUNTS | ClusterEvent.NODES


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
        return FilterResult.none_pass(view, why, _IF_CLAIM_UNUSED)
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
        passes, lambda _: why, resolvable_by_preemption=view.table.all(), requeue_on=_IF_UNMOUNTED
    )


def volume_binding(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which the pod's claims are bound, or can be bound or provisioned."""
    if not pod.claims:
        return FilterResult.all_pass(view)
    try:
        binder = VolumeBinder(view, pod)
    except UnresolvableClaimError as error:
        return FilterResult.none_pass(view, str(error), _IF_CLAIMS)
    return FilterResult(binder.passes, binder.reason, requeue_on=_IF_BOUND)


# Label -> the label that replaces it.
_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


def volume_zone(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes in the zones and regions of all bound volumes of the pod, and nodes without
    any such label. A volume's label may list several zones, joined by "__"."""
    if not pod.claims:
        return FilterResult.all_pass(view)
    constraints: list[tuple[str, str, Bools]] = []
    for use in pod.claims:
        claim = None if use.ephemeral else view.storage.claims.get(pod.claim_key(use))
        volume = view.storage.volumes.get(claim.volume) if claim is not None else None
        if volume is not None:
            constraints.extend(_zones(view, volume))
    if not constraints:
        return FilterResult.all_pass(view)
    labelled = view.table.none()
    for key in _LABELS:
        labelled |= view.table.topology(key).labelled
    passes = view.table.all()
    for _, _, in_zone in constraints:
        passes &= in_zone | ~labelled

    def reason(i: int) -> str:
        name, key = next((name, key) for name, key, in_zone in constraints if not in_zone[i])
        return f"volume {name} is in another {key.rpartition('/')[2]}"

    return FilterResult(passes, reason, requeue_on=_IF_ZONES)


def _zones(view: ClusterView, volume: Volume) -> Iterator[tuple[str, str, Bools]]:
    """The volume's name, each of its labels, and the nodes that match it: by the label itself or,
    without it, by the label that replaces it."""
    for key, newer_key in _LABELS.items():
        zones = tuple(zone.strip() for zone in volume.labels.get(key, "").split("__"))
        if all(zones):  # Kubernetes ignores a malformed label
            requirement = Requirement(key, "In", zones)
            own, newer = view.table.topology(key), view.table.topology(newer_key)
            in_zone = own.where(requirement) | (~own.labelled & newer.where(requirement))
            yield volume.name, key, in_zone


# The CSI drivers that handle in-tree volumes and provisioners.
_DRIVERS = {
    "awsElasticBlockStore": "ebs.csi.aws.com",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "azureDisk": "disk.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "portworxVolume": "pxd.portworx.com",
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
# (driver, identity of the volume within the driver)
_DriverVolume = tuple[str, str]


def node_volume_limits(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which no driver exceeds its limit with the pod's volumes. A volume counts
    once for each node, even before it is provisioned."""
    if not pod.claims and not pod.disks:
        return FilterResult.all_pass(view)
    wanted = set(_driver_volumes(view.storage, pod))
    if wanted and view.storage.unknown:
        return FilterResult.none_pass(view, view.storage.unknown, _IF_STORAGE)
    limits = {node.name: node.limits for node in view.storage.csi_nodes.values() if node.limits}
    if not wanted or not limits:
        return FilterResult.all_pass(view)
    passes = view.table.all()
    for name in limits:
        at = view.table.index.get(name)
        if at is not None and _has_foreign_claim(view, at):
            passes[at] = False
    full: dict[int, str] = {}
    # Most nodes are far below their limits, and an exact count takes much longer.
    upper_bound = _mount_counts(view) + len(wanted)
    for driver in sorted({driver for driver, _ in wanted}):
        column = np.array([limits.get(name, {}).get(driver, -1) for name in view.table.names])
        for i in np.flatnonzero((column >= 0) & (upper_bound > column)):
            if _count(view, int(i), driver, wanted) > column[i]:
                full[int(i)] = f"the node holds no more volumes of {driver}, {column[i]} at most"
    passes[list(full)] = False
    return FilterResult(
        passes,
        lambda i: full.get(i, "a pod there mounts another pod's claim"),
        resolvable_by_preemption=view.table.all(),
        requeue_on=_IF_BELOW_LIMITS,
    )


def _mount_counts(view: ClusterView) -> Ints:
    """Mounts and attachments of each node, shape (n,), with repeats."""
    count = np.zeros(len(view), dtype=np.int64)
    for i, pods in view.mounts.items():
        count[i] = sum(len(pod.claims) + len(pod.disks) for pod in pods)
    for node, attached in view.storage.attachments_by_node.items():
        if node in view.table.index:
            count[view.table.index[node]] += len(attached)
    return count


def _count(view: ClusterView, node: int, driver: str, wanted: set[_DriverVolume]) -> int:
    """Volumes of the driver on the node with the wanted ones, or 0 if these add none. As in
    Kubernetes, a wanted volume that is attached but not mounted counts twice."""
    mounted = {
        volume for pod in view.mounts.get(node, ()) for volume in _driver_volumes(view.storage, pod)
    }
    new = {volume for volume in wanted - mounted if volume[0] == driver}
    if not new:
        return 0
    attached = set()
    for attachment in view.storage.attachments_by_node.get(view.table.names[node], ()):
        volume = view.storage.volumes.get(attachment.volume)
        if volume is not None and volume.driver:
            attached.add((attachment.driver, volume.handle))
    return len(new) + sum(1 for name, _ in mounted | attached if name == driver)


def _driver_volumes(storage: Storage, pod: Pod) -> Iterator[_DriverVolume]:
    """The volumes of CSI drivers that a pod mounts, without missing claims."""
    for disk in pod.disks:
        if disk.kind in _DRIVERS:
            yield _DRIVERS[disk.kind], f"{disk.kind}/{disk.name}"
    for use in pod.claims:
        claim = storage.claims.get(pod.claim_key(use))
        if claim is not None and (volume := _driver_volume(storage, claim)):
            yield volume


def _driver_volume(storage: Storage, claim: Claim) -> _DriverVolume | None:
    volume = storage.volumes.get(claim.volume)
    if volume is not None and volume.driver:
        return volume.driver, volume.handle
    if volume is not None:
        driver = _DRIVERS.get(volume.kind)
        return (driver, f"volume/{volume.name}") if driver else None
    storage_class = storage.classes.get(claim.class_name)
    if storage_class is None:
        return None
    provisioner = storage_class.provisioner
    return _DRIVERS.get(provisioner, provisioner), f"claim/{claim.key}"


def _has_foreign_claim(view: ClusterView, node: int) -> bool:
    """Whether a pod there mounts an ephemeral volume with another pod's claim; kube-scheduler
    rejects such a node."""
    claims = view.storage.claims
    return any(
        (claim := claims.get(pod.claim_key(use))) is not None and claim.owner_uid != pod.uid
        for pod in view.mounts.get(node, ())
        for use in pod.claims
        if use.ephemeral
    )
