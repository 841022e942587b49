"""Peers: how long the pod and what it talks to would wait for each other."""

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.peers import free_mbps, peers_of, waits_s, waits_text
from leadline_controller.framework.preferences import MOST, PreferenceScores
from leadline_controller.framework.view import ClusterView, Ints

_LONGEST_US = 1e15  # fits an integer


def peers(view: ClusterView, pod: Pod, candidates: Ints) -> PreferenceScores | None:
    """The wait for all peers, microseconds each second; none is normalized to 100, the longest to
    0. An unknown wait counts as the longest known one."""
    found = peers_of(view, pod)
    if not found:
        return None
    waits = waits_s(view, found, candidates, left_mbps=free_mbps(view, pod, found))
    wait_us = np.minimum(waits.sum(axis=0) * 1e6, _LONGEST_US)
    known = ~np.isnan(wait_us)
    if not known.any():
        return None
    raw = np.where(known, wait_us, wait_us[known].max()).round().astype(np.int64)
    most = raw.max()
    share = raw / most if most else np.zeros(raw.size)

    def note(at: int) -> str:
        return waits_text(view, found, waits[:, at])

    return PreferenceScores(raw, (MOST * (1 - share)).astype(np.int64), note)
