"""How much of a pod's images each node has: kube-scheduler's ImageLocality, and the share of the
bytes. A piece is a whole image or a layer: its size in MB, the nodes that need it, which depends on
their architecture, and those of them that have it, shapes (n,).
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from math import fsum

import numpy as np

from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import Bools, ClusterView, Floats
from leadline_controller.strategies.shared.capacity import MAX_POINTS, whole_points

Piece = tuple[float, Bools, Bools]
SHARE_POINTS = 100.0  # of a priority since kube-scheduler 1.17

# kubernetes: pkg/scheduler/framework/plugins/imagelocality, minThreshold and
# maxContainerThreshold.
_MIN_THRESHOLD_MB = 23.0
_MAX_CONTAINER_THRESHOLD_MB = 1000.0


def whole_images(view: ClusterView, pod: Pod) -> Iterator[Piece]:
    """The pod's known images; a node has one if it has all its layers."""
    table, images = view.table, view.images
    for image in images.variants_of(table, pod):
        held = (images.cached(table, layer) for layer in image.layers)
        size_mb = fsum(layer.size_mb for layer in image.layers)
        yield size_mb, image.nodes, reduce(np.logical_and, held, image.nodes)


def single_layers(view: ClusterView, pod: Pod) -> Iterator[Piece]:
    """The layers of the pod's known images, each once."""
    for layer, nodes in view.images.layers_of(view.table, pod):
        yield layer.size_mb, nodes, view.images.cached(view.table, layer) & nodes


def share_points(pieces: Iterable[Piece], nodes: int) -> Floats:
    """The share of the bytes that each node has, in whole points of 100, shape (nodes,); 0 if
    there are no pieces."""
    all_mb, held_mb = np.zeros(nodes), np.zeros(nodes)
    for size_mb, needed, held in pieces:
        all_mb += size_mb * needed
        held_mb += size_mb * held
    return whole_points(held_mb / np.where(all_mb > 0, all_mb, 1.0) * SHARE_POINTS)


def threshold_points(pieces: Iterable[Piece], nodes: int, containers: int) -> Floats:
    """kube-scheduler's ImageLocality before 1.17, in whole points of 10, shape (nodes,): 0 up to 23
    MB, 10 from 1000 MB for each container. Each piece counts with its MB times the share of the
    nodes that have it, against "node heating"."""
    sum_mb = np.zeros(nodes)
    for size_mb, _, held in pieces:
        sum_mb += np.where(held, size_mb * np.count_nonzero(held) / max(nodes, 1), 0.0)
    most_mb = _MAX_CONTAINER_THRESHOLD_MB * max(containers, 1)
    within = np.clip(sum_mb, _MIN_THRESHOLD_MB, most_mb)
    return whole_points((within - _MIN_THRESHOLD_MB) / (most_mb - _MIN_THRESHOLD_MB) * MAX_POINTS)
