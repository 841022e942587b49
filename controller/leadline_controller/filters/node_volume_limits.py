"""NodeVolumeLimits: the volumes of a CSI driver on a node must not exceed its CSINode's limit."""

from collections.abc import Iterator

import numpy as np

from leadline_controller.framework.cluster_objects import Claim, Storage
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView, Ints

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
_REQUEUE_ON_STORAGE = (
    ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.CLASSES | ClusterEvent.LIMITS
)
_REQUEUE_ON = _REQUEUE_ON_STORAGE | ClusterEvent.MOUNTS | ClusterEvent.NODES
# (driver, identity of the volume within the driver)
_DriverVolume = tuple[str, str]


def node_volume_limits(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which no driver exceeds its limit with the pod's volumes. A volume counts
    once for each node, even before it is provisioned."""
    if not pod.claims and not pod.disks:
        return FilterResult.all_pass(view)
    wanted = set(_driver_volumes(view.storage, pod))
    if wanted and view.storage.unknown:
        return FilterResult.none_pass(view, view.storage.unknown, _REQUEUE_ON_STORAGE)
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
        requeue_on=_REQUEUE_ON,
        is_local=True,
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
