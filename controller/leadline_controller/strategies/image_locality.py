"""image-locality: nodes that have the pod's images are preferred.

The image-match of Fu et al., "Fast and Efficient Container Startup at the Edge via Dependency
Scheduling", which became kube-scheduler's ImageLocality; a baseline of Knob, Kayser, Ferreto,
"Improving Container Deployment in Edge Computing Using the Infrastructure Aware Scheduling
Algorithm", Section II-B.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import fsum
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import option
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.shared.locality import (
    beside_spreading,
    locality_points,
    spread_mb,
)


@dataclass(frozen=True, slots=True)
class ImageLocality:
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

    name: ClassVar[str] = "image-locality"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "Infrastructure Aware, Section II-B (image-match)"
    needs: ClassVar[tuple[str, ...]] = ()

    w: float = option(10, unit="points", maximum=1e6, help="weight of the images beside spreading")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Both priorities of every candidate, and the MB of the images that it has."""
        return beside_spreading(view, pod, candidates, self._points(view, pod), self.w)

    def charge(self, _: ClusterView, pod: Pod, __: int) -> Mapping[str, int]:
        """The pod's requests."""
        return pod.requests

    def _points(self, view: ClusterView, pod: Pod) -> Floats:
        table, images = view.table, view.images
        sizes_mb = np.zeros(len(view))
        for image in images.images_of(table, pod):
            whole = reduce(np.logical_and, (images.cached(table, layer) for layer in image.layers))
            sizes_mb += spread_mb(fsum(layer.size_mb for layer in image.layers), whole)
        return locality_points(sizes_mb, len(pod.images))
