"""VolumeBinding: every claim of the pod is bound to a volume that the node reaches, or can be."""

from leadline_controller.framework.cycle import Verdict
from leadline_controller.framework.model import Pod
from leadline_controller.framework.queueing_hints import News
from leadline_controller.framework.view import ClusterView
from leadline_controller.framework.volume_binding import RefusedClaimError, VolumeSearch

_HOPE_FOR_CLAIMS = News.CLAIMS | News.VOLUMES | News.CLASSES
_HOPE = _HOPE_FOR_CLAIMS | News.LIMITS | News.MOUNTS | News.LABELS | News.NODES


def volume_binding(view: ClusterView, pod: Pod) -> Verdict:
    """Pass the nodes on which all of the pod's volumes are, or can be bound or made."""
    if not pod.claims:
        return Verdict.everywhere(view)
    try:
        search = VolumeSearch(view, pod)
    except RefusedClaimError as error:
        return Verdict.refused(view, str(error), _HOPE_FOR_CLAIMS)
    return Verdict(search.passes, search.reason, hope=_HOPE)
