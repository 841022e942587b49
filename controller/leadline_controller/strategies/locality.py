"""image-locality and layer-locality: nodes that already have the pod's images, or layers of them.

The image-match and the layer-match of Fu et al., "Fast and Efficient Container Startup at the Edge
via Dependency Scheduling", of which the first became kube-scheduler's ImageLocality; baselines of
Knob, Kayser, Ferreto, "Improving Container Deployment in Edge Computing Using the Infrastructure
Aware Scheduling Algorithm", Section II-B.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Leeway, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import choice, option
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.shared.capacity import MAX_POINTS
from leadline_controller.strategies.shared.locality import (
    SHARE_POINTS,
    Piece,
    share_points,
    single_layers,
    threshold_points,
    whole_images,
)
from leadline_controller.strategies.shared.spreading import (
    WHOLE_POINT,
    rounding_option,
    spread_option,
    spread_points,
)


@dataclass(frozen=True, slots=True)
class ImageLocality(Strategy):
    """The node that has the most of the pod's images, spread by what pods request.

    total = kube-scheduler's spreading (see `spread_points`) + w * the part of the pod's images
    that the node has whole, 0 to 1; the highest wins, ties at random.

    points=share: their share of the bytes, in whole points of 100 ("a higher score" for a node
    that "already has this dependency locally"). points=thresholds: kube-scheduler's ImageLocality
    before release 1.17, in whole points of 10: each image counts with its size in MB times the
    share of the nodes that have it; 23 MB or less are 0 points, 1000 MB a container are 10. So it
    seldom moves the score. The paper prints neither score nor weight; w = 10 weighs the images
    like one of kube-scheduler's other priorities.

    Unknown: an image that neither the catalogue nor any node knows counts for nothing on all
    nodes. A node without CPU or memory has no total and is chosen only when none has.
    """

    name = "image-locality"
    better = "higher"
    paper = "Infrastructure Aware, Section II-B (image-match)"
    needs = ()

    w: float = option(10, unit="points", maximum=1e6, help="weight of the images against spreading")
    points: str = choice("share", "thresholds", help="the share of the bytes, or the old rule")
    rounding: str = rounding_option()
    spread: str = spread_option()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Both priorities of every candidate, and the MB of the layers that it has."""
        spread = spread_points(view, pod, candidates, self.rounding, self.spread)
        pieces = self._pieces(view, pod)
        if self.points == "share":
            most, locality = SHARE_POINTS, share_points(pieces, len(view))[candidates]
        else:
            scaled = threshold_points(pieces, len(view), len(pod.images))
            most, locality = MAX_POINTS, scaled[candidates]
        total = spread + self.w * (locality / most)
        cached_mb = view.images.cached_mb(view.table, pod)[candidates]

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            if np.isnan(cached_mb[at]):
                return f"no layers of its images are known; {spread[at]:g} points for spreading"
            return (
                f"{cached_mb[at]:.4g} MB of its layers are there: {locality[at]:g} points of "
                f"{most:g}, {spread[at]:.3g} for spreading"
            )

        parts = {"spread": spread, "locality": locality, "cached_mb": cached_mb}
        return Scores(candidates, total, best(total, self.better), why, parts, Leeway(WHOLE_POINT))

    def _pieces(self, view: ClusterView, pod: Pod) -> Iterator[Piece]:
        return whole_images(view, pod)


@dataclass(frozen=True, slots=True)
class LayerLocality(ImageLocality):
    """The node that has the most of the layers of the pod's images, spread by what pods request.

    ImageLocality over layers instead of whole images: the node "with the most dependencies
    locally at the layer level" has the most points. With points=thresholds, each layer that the
    node has counts with its MB times the share of the nodes that have it. For the rest, unknown
    images included, see ImageLocality.
    """

    name = "layer-locality"
    paper = "Infrastructure Aware, Section II-B (layer-match)"

    w: float = option(10, unit="points", maximum=1e6, help="weight of the layers against spreading")

    def _pieces(self, view: ClusterView, pod: Pod) -> Iterator[Piece]:
        return single_layers(view, pod)
