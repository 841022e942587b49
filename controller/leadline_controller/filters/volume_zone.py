"""VolumeZone: a volume whose labels name a zone or region can only be used there."""

from collections.abc import Iterator

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.resources import Volume
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import Bools, ClusterView

# The old name of each label, and the one that replaced it.
_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}

_HOPE = ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.LABELS | ClusterEvent.NODES


def volume_zone(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes in the zones and regions of all of the pod's bound volumes, and nodes
    that have no such label at all; a volume's label may list several, joined by "__"."""
    if not pod.claims:
        return FilterResult.everywhere(view)
    demands: list[tuple[str, str, Bools]] = []
    for use in pod.claims:
        claim = None if use.ephemeral else view.storage.claims.get(pod.claim_key(use))
        volume = view.storage.volumes.get(claim.volume) if claim is not None else None
        if volume is not None:
            demands.extend((volume.name, key, _zoned(view, r)) for key, r in _demands(volume))
    if not demands:
        return FilterResult.everywhere(view)
    somewhere = view.table.none()
    for key in _LABELS:
        somewhere |= view.table.topology(key).labelled
    passes = view.table.all()
    for _, _, zoned in demands:
        passes &= zoned | ~somewhere

    def reason(i: int) -> str:
        name, key = next((name, key) for name, key, zoned in demands if not zoned[i])
        return f"volume {name} is in another {key.rpartition('/')[2]}"

    return FilterResult(passes, reason, requeue_on=_HOPE)


def _demands(volume: Volume) -> Iterator[tuple[str, Requirement]]:
    for key in _LABELS:
        zones = tuple(zone.strip() for zone in volume.labels.get(key, "").split("__"))
        if all(zones):  # Kubernetes leaves a label aside that it can't read
            yield key, Requirement(key, "In", zones)


def _zoned(view: ClusterView, wanted: Requirement) -> Bools:
    """By the label's own name, or, on nodes without it, by the name that replaced it."""
    own, newer = view.table.topology(wanted.key), view.table.topology(_LABELS[wanted.key])
    return own.where(wanted) | (~own.labelled & newer.where(wanted))
