"""infrastructure-aware: how soon the pod's images could be on each node.

Knob, Kayser, Ferreto, "Improving Container Deployment in Edge Computing Using the
Infrastructure Aware Scheduling Algorithm", Algorithm 1.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import choice, option
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.capacity import least_requested

_MIN_MBPS = 0.001  # of a link that is down, so that all times are finite


def time_to_instantiate_s(size_mb: Floats, bandwidth_mbps: Floats) -> Floats:
    """ttInst = s / bandwidth(c) in seconds (Algorithm 1, line 15), shapes alike; MB are 10^6
    bytes and Mbit/s 10^6 bits. For unknown bandwidths see InfrastructureAware."""
    known = ~np.isnan(bandwidth_mbps)
    slowest_mbps = bandwidth_mbps[known].min() if known.any() else 8.0
    mbps = np.where(known, bandwidth_mbps, slowest_mbps)
    seconds: Floats = size_mb * 8 / np.maximum(mbps, _MIN_MBPS)
    return seconds


def rescaled(time_s: Floats, w: float) -> Floats:
    """w for the shortest time, 0 for the longest, linear between; w for all if all are equal
    (Algorithm 1, lines 16-24)."""
    span = time_s.max() - time_s.min()
    if span == 0:
        return np.full(time_s.shape, w)
    points: Floats = w - w * ((time_s - time_s.min()) / span)
    return points


@dataclass(frozen=True, slots=True)
class InfrastructureAware(Strategy):
    """total = kube-scheduler's spreading (DACS Eq. 1, 0 to 10) + the time to instantiate,
    rescaled to 0..w (Algorithm 1); the highest wins, ties at random.

    Algorithm 1 adds its score to what the other priorities gave (line 24); the paper prints no
    weights, and w = 10 weighs both alike.

    The time is the MB of the pod's layers that the node neither has nor has queued, over the
    bandwidth from the registry to the node. queue=wait adds the node's download queue, as in the
    text ("more applications can be waiting to be downloaded at the node"); queue=literal leaves it
    out, as in the printed Algorithm 1.

    Unknown: a node whose bandwidth from the registry is neither stated nor measured counts as the
    slowest known one; if none is known all count as equal, so that the MB decide. If none of the
    pod's images is known all nodes get w. A node without CPU or memory has no total and is
    chosen only if no node has one.
    """

    name = "infrastructure-aware"
    better = "higher"
    paper = "Infrastructure Aware, Algorithm 1"
    needs = ("bandwidth_mbps",)

    w: float = option(10, unit="points", maximum=1e6, help="weight of the time against spreading")
    queue: str = choice("wait", "literal", help="whether a node's download queue adds to the time")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Both priorities of every candidate, and the terms of the time."""
        spread = least_requested(view, candidates)
        missing_mb = view.images.missing_mb(view.table, pod)[candidates]
        queue_mb = view.images.waiting_mb(view.table)[candidates]
        time_s = time_to_instantiate_s(
            missing_mb + queue_mb if self.queue == "wait" else missing_mb,
            view.registry_mbps()[candidates],
        )
        known = not np.isnan(missing_mb).any()
        speed = rescaled(time_s, self.w) if known else np.full(candidates.size, self.w)
        total = spread + speed

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            if not known:
                return f"no layers of its images are known; {spread[at]:g} points for spreading"
            return (
                f"{time_s[at]:.3g} s to pull {missing_mb[at]:.4g} MB behind {queue_mb[at]:.4g} MB: "
                f"{speed[at]:.3g} points, {spread[at]:.3g} for spreading"
            )

        parts = {
            "spread": spread,
            "speed": speed,
            "time_s": time_s,
            "missing_mb": missing_mb,
            "queue_mb": queue_mb,
        }
        return Scores(candidates, total, best(total, self.better), why, parts)
