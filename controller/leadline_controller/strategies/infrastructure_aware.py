"""infrastructure-aware: how soon the pod's images could be on each node.

Knob, Kayser, Ferreto, "Improving Container Deployment in Edge Computing Using the
Infrastructure Aware Scheduling Algorithm", Algorithm 1.
"""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.image_layers import MIN_MBPS
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import choice, option
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.delays import registry_mbps, slowest
from leadline_controller.strategies.shared.locality import (
    SHARE_POINTS,
    share_points,
    single_layers,
    whole_images,
)
from leadline_controller.strategies.shared.spreading import (
    WHOLE_POINT,
    rounding_option,
    spread_option,
    spread_points,
)
from leadline_controller.strategies.shared.unknowns import unknown_option


def time_to_instantiate_s(size_mb: Floats, bandwidth_mbps: Floats) -> Floats:
    """ttInst = s / bandwidth(c) in seconds (Algorithm 1, line 15), shapes alike; MB are 10^6
    bytes and Mbit/s 10^6 bits."""
    seconds: Floats = size_mb * 8 / np.maximum(bandwidth_mbps, MIN_MBPS)
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
    """The node on which the pod's images are soonest, spread by what pods request.

    total = kube-scheduler's spreading (see `spread_points`) + the time to instantiate, rescaled
    to 0..w (Algorithm 1) + w_images and w_layers times the shares of the bytes that are there, of
    whole images and of layers; the highest wins, ties at random.

    Algorithm 1 adds its score to what the other priorities gave (line 24); the paper prints no
    weights, and w = 10 weighs spreading and time alike. It also says that it integrates the layer
    match of Section II-B; w_images and w_layers, 0 by default, do so.

    The time is the MB of the pod's layers that the node neither has nor has queued, over the
    bandwidth from the registry to the node. queue=wait adds the node's download queue, as in the
    text ("more applications can be waiting to be downloaded at the node"), unless the node has
    every layer and so lacks nothing (line 14: 0); queue=literal leaves it out, as in the printed
    Algorithm 1.

    Unknown: a node whose bandwidth from the registry is neither stated nor measured counts as
    boards like it (strategies/shared/unknowns.py), or with `unknown=worst` as the slowest known
    one; if none is known all count as equal, so that the MB decide. If none of the pod's images is
    known all nodes get w. A node without CPU or memory has no total and is chosen only if no node
    has one.
    """

    name = "infrastructure-aware"
    better = "higher"
    paper = "Infrastructure Aware, Algorithm 1"
    needs = ("bandwidth_mbps",)

    w: float = option(10, unit="points", maximum=1e6, help="weight of the time against spreading")
    queue: str = choice("wait", "literal", help="whether a node's download queue adds to the time")
    w_images: float = option(0, unit="points", maximum=1e6, help="weight of whole images there")
    w_layers: float = option(0, unit="points", maximum=1e6, help="weight of the layers there")
    rounding: str = rounding_option()
    spread: str = spread_option()
    unknown: str = unknown_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The priorities of every candidate, and the terms of the time."""
        spread = spread_points(view, pod, candidates, self.rounding, self.spread)
        missing_mb = view.images.missing_mb(view.table, pod)[candidates]
        queue_mb = view.images.waiting_mb(view.table)[candidates]
        # It starts without a pull, so it does not wait for those of others (Algorithm 1, line 14).
        queue_mb[view.images.has_all(view.table, pod)[candidates]] = 0.0
        bandwidth = registry_mbps(view, candidates, self.unknown, slowest)
        time_s = time_to_instantiate_s(
            missing_mb + queue_mb if self.queue == "wait" else missing_mb, bandwidth.values
        )
        known = not np.isnan(missing_mb).any()
        speed = rescaled(time_s, self.w) if known else np.full(candidates.size, self.w)
        locality = np.zeros(candidates.size)
        for weight, pieces in ((self.w_images, whole_images), (self.w_layers, single_layers)):
            if weight:
                points = share_points(pieces(view, pod), len(view))[candidates]
                locality += weight * (points / SHARE_POINTS)
        total = spread + speed + locality

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            if not known:
                return f"no layers of its images are known; {spread[at]:g} points for spreading"
            there = f", {locality[at]:.3g} for what is there" if locality.any() else ""
            return (
                f"{time_s[at]:.3g} s to pull {missing_mb[at]:.4g} MB behind {queue_mb[at]:.4g} MB: "
                f"{speed[at]:.3g} points, {spread[at]:.3g} for spreading{there}"
                f"{bandwidth.note(at) if time_s[at] > 0 else ''}"
            )

        parts = {
            "spread": spread,
            "speed": speed,
            "time_s": time_s,
            "missing_mb": missing_mb,
            "queue_mb": queue_mb,
        }
        if self.w_images or self.w_layers:
            parts["locality"] = locality
        return Scores(candidates, total, best(total, self.better), why, parts, Leeway(WHOLE_POINT))
