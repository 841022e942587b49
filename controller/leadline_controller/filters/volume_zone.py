"""VolumeZone: a volume with zone or region labels can only be used there."""

from collections.abc import Iterator

from leadline_controller.framework.cluster_objects import Volume
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import Bools, ClusterView

# Label -> the label that replaces it.
_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
_REQUEUE_ON = ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.LABELS | ClusterEvent.NODES


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

    return FilterResult(passes, reason, requeue_on=_REQUEUE_ON)


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
