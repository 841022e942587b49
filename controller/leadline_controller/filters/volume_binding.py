"""VolumeBinding: the node must reach the volume of every claim, or a volume that the claim can
be bound to."""

from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import ClusterEvent
from leadline_controller.framework.view import ClusterView
from leadline_controller.framework.volume_binding import UnresolvableClaimError, VolumeBinder

_REQUEUE_ON_CLAIMS = ClusterEvent.CLAIMS | ClusterEvent.VOLUMES | ClusterEvent.CLASSES
_REQUEUE_ON = (
    _REQUEUE_ON_CLAIMS
    | ClusterEvent.LIMITS
    | ClusterEvent.MOUNTS
    | ClusterEvent.LABELS
    | ClusterEvent.NODES
)


def volume_binding(view: ClusterView, pod: Pod) -> FilterResult:
    """Pass the nodes on which the pod's claims are bound, or can be bound or provisioned."""
    if not pod.claims:
        return FilterResult.all_pass(view)
    try:
        binder = VolumeBinder(view, pod)
    except UnresolvableClaimError as error:
        return FilterResult.none_pass(view, str(error), _REQUEUE_ON_CLAIMS)
    return FilterResult(binder.passes, binder.reason, requeue_on=_REQUEUE_ON)
