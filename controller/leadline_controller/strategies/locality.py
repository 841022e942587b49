"""image-locality and layer-locality: nodes that already have the pod's images, or layers of them.

The image-match and the layer-match of Fu et al., "Fast and Efficient Container Startup at the Edge
via Dependency Scheduling", of which the first became kube-scheduler's ImageLocality; baselines of
Knob, Kayser, Ferreto, "Improving Container Deployment in Edge Computing Using the Infrastructure
Aware Scheduling Algorithm", Section II-B.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from math import fsum

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.capacity import MAX_POINTS, least_requested, whole_points

# kubernetes: pkg/scheduler/framework/plugins/imagelocality, minThreshold and
# maxContainerThreshold.
_MIN_THRESHOLD_MB = 23.0
_MAX_CONTAINER_THRESHOLD_MB = 1000.0


def scaled_mb(size_mb: float, held: Bools) -> Floats:
    """size * (nodes that have it / nodes) for a node that has it, else 0, MB, shape (n,), against
    "node heating". held: the nodes that have it, shape (n,)."""
    return np.where(held, size_mb * np.count_nonzero(held) / max(held.size, 1), 0.0)


def locality_points(sum_mb: Floats, containers: int) -> Floats:
    """0 points up to 23 MB, 10 from 1000 MB for each container, linear between; whole points,
    shape (n,)."""
    most_mb = _MAX_CONTAINER_THRESHOLD_MB * max(containers, 1)
    within = np.clip(sum_mb, _MIN_THRESHOLD_MB, most_mb)
    return whole_points((within - _MIN_THRESHOLD_MB) / (most_mb - _MIN_THRESHOLD_MB) * MAX_POINTS)


@dataclass(frozen=True, slots=True)
class ImageLocality(Strategy):
    """total = kube-scheduler's spreading (DACS Eq. 1, 0 to 10) + w / 10 * ImageLocality (0 to
    10); the highest wins, ties at random.

    ImageLocality is kube-scheduler's: each image that the node has whole counts with its size
    in MB times the share of the nodes that have it; 23 MB or less are 0 points, 1000 MB a
    container are 10, rounded down to whole points (of 100 since release 1.17). The paper
    adds its priorities to the spreading with weights and prints none; w = 10 weighs both
    alike.

    Unknown: an image that neither the catalogue nor any node knows counts for nothing on all
    nodes. A node without CPU or memory has no total and is chosen only when none has.
    """

    name = "image-locality"
    better = "higher"
    paper = "Infrastructure Aware, Section II-B (image-match)"
    needs = ()

    w: float = option(10, unit="points", maximum=1e6, help="weight of the images against spreading")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Both priorities of every candidate, and the MB of the layers that it has."""
        spread = least_requested(view, candidates)
        sum_mb = np.zeros(len(view))
        for size_mb, held in self._pieces(view, pod):
            sum_mb += scaled_mb(size_mb, held)
        locality = locality_points(sum_mb, len(pod.images))[candidates]
        total = spread + self.w / MAX_POINTS * locality
        cached_mb = view.images.cached_mb(view.table, pod)[candidates]

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            if np.isnan(cached_mb[at]):
                return f"no layers of its images are known; {spread[at]:g} points for spreading"
            return (
                f"{cached_mb[at]:.4g} MB of its layers are there: {locality[at]:.3g} points, "
                f"{spread[at]:.3g} for spreading"
            )

        parts = {"spread": spread, "locality": locality, "cached_mb": cached_mb}
        return Scores(candidates, total, best(total, self.better), why, parts)

    def _pieces(self, view: ClusterView, pod: Pod) -> Iterator[tuple[float, Bools]]:
        """What counts: the size of each image in MB, and the nodes that have it whole."""
        table, images = view.table, view.images
        for image in images.images_of(table, pod):
            whole = reduce(np.logical_and, (images.cached(table, layer) for layer in image.layers))
            yield fsum(layer.size_mb for layer in image.layers), whole


@dataclass(frozen=True, slots=True)
class LayerLocality(ImageLocality):
    """total = kube-scheduler's spreading (DACS Eq. 1, 0 to 10) + w / 10 * layer locality (0 to
    10); the highest wins, ties at random.

    The paper calls the layer-match "practically the same" as the image-match, so it is
    kube-scheduler's ImageLocality over layers: each layer that the node has counts with its size
    in MB times the share of the nodes that have it. For the rest, unknown images included, see
    ImageLocality.
    """

    name = "layer-locality"
    paper = "Infrastructure Aware, Section II-B (layer-match)"

    w: float = option(10, unit="points", maximum=1e6, help="weight of the layers against spreading")

    def _pieces(self, view: ClusterView, pod: Pod) -> Iterator[tuple[float, Bools]]:
        for layer in view.images.layers_of(view.table, pod):
            yield layer.size_mb, view.images.cached(view.table, layer)
