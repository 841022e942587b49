"""VolumeBinding: every claim of the pod is bound to a volume that the node reaches, or can be."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView
from leadline_controller.framework.volume_binding import RefusedClaimError, VolumeSearch

_HOPE_FOR_CLAIMS = ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.CLASSES
_HOPE = (
    _HOPE_FOR_CLAIMS
    | ClusterEvent.LIMITS
    | ClusterEvent.MOUNTS
    | ClusterEvent.LABELS
    | ClusterEvent.NODES
)


def volume_binding(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which all of the pod's volumes are, or can be bound or made."""
    if not pod.claims:
        return FilterResult.everywhere(view)
    try:
        search = VolumeSearch(view, pod)
    except RefusedClaimError as error:
        return FilterResult.refused(view, str(error), _HOPE_FOR_CLAIMS)
    return FilterResult(search.passes, search.reason, requeue_on=_HOPE)
