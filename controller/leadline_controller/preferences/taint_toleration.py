"""TaintToleration: PreferNoSchedule taints."""

from leadline_controller.framework.model import Pod
from leadline_controller.framework.preferences import MOST, PreferenceScores
from leadline_controller.framework.view import ClusterView, Ints


def taint_toleration(view: ClusterView, pod: Pod, candidates: Ints) -> PreferenceScores | None:
    """The number of the node's PreferNoSchedule taints that the pod does not tolerate; normalized
    to the largest number, and reversed."""
    untolerated = view.table.untolerated_soft_taints(pod.tolerations)
    if untolerated is None:
        return None
    raw = untolerated[candidates]
    most = raw.max()
    return PreferenceScores(raw, MOST - (MOST * raw // most if most else raw))
