"""NodeVolumeLimits: a node holds as many volumes of a CSI driver as its CSINode says."""

from collections.abc import Iterator

import numpy as np

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.resources import Claim
from leadline_controller.framework.storage import Storage
from leadline_controller.framework.view import ClusterView, Ints

# Volumes of these kinds, and classes with these provisioners, are handled by CSI drivers.
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
_HOPE_FOR_STORAGE = (
    ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.CLASSES | ClusterEvent.LIMITS
)
_HOPE = _HOPE_FOR_STORAGE | ClusterEvent.MOUNTS | ClusterEvent.NODES
# (driver, what tells the volume from others of the driver)
_Held = tuple[str, str]


def node_volume_limits(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes where, with the pod's volumes, no driver has more than it can hold.

    A volume counts once a node; one that is to be made counts, too.
    """
    if not pod.claims and not pod.disks:
        return FilterResult.everywhere(view)
    wanted = set(_held(view.storage, pod))
    if wanted and view.storage.unknown:
        return FilterResult.refused(view, view.storage.unknown, _HOPE_FOR_STORAGE)
    limited = [node for node in view.storage.csi_nodes.values() if node.limits]
    if not wanted or not limited:
        return FilterResult.everywhere(view)
    limits = {driver: _limits(view, driver) for driver in sorted({d for d, _ in wanted})}
    passes = view.table.all()
    for node in limited:
        at = view.table.index.get(node.name)
        if at is not None and not _is_readable(view, at):
            passes[at] = False
    full: dict[int, str] = {}
    # Most nodes hold far less than they could, and counting exactly takes much longer.
    most = _at_most(view) + len(wanted)
    for driver, column in limits.items():
        for i in np.flatnonzero((column >= 0) & (most > column)):
            if _count(view, int(i), driver, wanted) > column[i]:
                full[int(i)] = f"the node holds no more volumes of {driver}, {column[i]} at most"
    passes[list(full)] = False
    return FilterResult(
        passes,
        lambda i: full.get(i, "a pod there mounts another pod's claim"),
        resolvable_by_preemption=view.table.all(),
        requeue_on=_HOPE,
    )


def _limits(view: ClusterView, driver: str) -> Ints:
    """What each node's CSINode says, shape (n,), -1 where there is no limit."""
    nodes = view.storage.csi_nodes
    return np.array(
        [nodes[n].limits.get(driver, -1) if n in nodes else -1 for n in view.table.names],
        dtype=np.int64,
    )


def _at_most(view: ClusterView) -> Ints:
    count = np.zeros(len(view), dtype=np.int64)
    for i, pods in view.mounts.items():
        count[i] = sum(len(pod.claims) + len(pod.disks) for pod in pods)
    for node, attached in view.storage.attachments_by_node.items():
        if node in view.table.index:
            count[view.table.index[node]] += len(attached)
    return count


def _count(view: ClusterView, node: int, driver: str, wanted: set[_Held]) -> int:
    """Volumes of the driver on the node with the wanted ones; 0 where these add none. Those
    attached but mounted by no pod are not compared with the wanted ones, as in Kubernetes."""
    mounted = {held for pod in view.mounts.get(node, ()) for held in _held(view.storage, pod)}
    new = {held for held in wanted - mounted if held[0] == driver}
    if not new:
        return 0
    attached = set()
    for attachment in view.storage.attachments_by_node.get(view.table.names[node], ()):
        volume = view.storage.volumes.get(attachment.volume)
        if volume is not None and volume.driver:
            attached.add((attachment.driver, volume.handle))
    return len(new) + sum(1 for name, _ in mounted | attached if name == driver)


def _held(storage: Storage, pod: Pod) -> Iterator[_Held]:
    """The volumes of drivers that a pod mounts; claims that are not there don't count."""
    for disk in pod.disks:
        if disk.kind in _DRIVERS:
            yield _DRIVERS[disk.kind], f"{disk.kind}/{disk.name}"
    for use in pod.claims:
        claim = storage.claims.get(pod.claim_key(use))
        if claim is not None and (held := _held_by(storage, claim)):
            yield held


def _held_by(storage: Storage, claim: Claim) -> _Held | None:
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


def _is_readable(view: ClusterView, node: int) -> bool:
    """Whether kube-scheduler can count there: not where a pod mounts an ephemeral volume whose
    claim is somebody else's."""
    claims = view.storage.claims
    return not any(
        (claim := claims.get(pod.claim_key(use))) is not None and claim.owner_uid != pod.uid
        for pod in view.mounts.get(node, ())
        for use in pod.claims
        if use.ephemeral
    )
