"""NodeAffinity: preferred node affinity."""

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.preferences import MOST, PreferenceScores
from leadline_controller.framework.view import ClusterView, Ints


def node_affinity(view: ClusterView, pod: Pod, candidates: Ints) -> PreferenceScores | None:
    """The sum of the weights of the terms that match the node; normalized to the largest sum."""
    if not pod.preferences.nodes:
        return None
    raw = np.zeros(candidates.size, dtype=np.int64)
    for weight, term in pod.preferences.nodes:
        raw += weight * view.table.matching((term,))[candidates]
    most = raw.max()
    return PreferenceScores(raw, MOST * raw // most if most else raw)
