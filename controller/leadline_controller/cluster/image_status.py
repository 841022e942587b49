"""What people are shown of a node's images and pulls."""

from collections.abc import Collection
from math import fsum
from typing import NamedTuple

from leadline_controller.cluster.held_images import HeldImages
from leadline_controller.cluster.known_layers import KnownLayers
from leadline_controller.cluster.pull_times import PullSpeed
from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.model import Pod


class ImageStatus(NamedTuple):
    """An image on a node."""

    name: str
    size_mb: float | None  # None if unknown
    layers: int  # 0 if unknown
    used: bool  # by a container


class PullStatus(NamedTuple):
    """A pull under way."""

    image: str
    missing_mb: float | None  # that the node did not have when it began, None if unknown
    age_s: float | None


class NodeImageStatus(NamedTuple):
    """What `leadline images` shows of a node."""

    node: str
    architecture: str
    images: tuple[ImageStatus, ...]
    held_mb: float  # of all its images, shared layers once
    queue_mb: float
    pulling: tuple[PullStatus, ...]
    speed: PullSpeed | None


def node_status(
    known: HeldImages,
    known_layers: KnownLayers,
    awaiting: Collection[Pod],
    queue_mb: float,
    now_s: float,
) -> NodeImageStatus:
    """What is known of a node's images. awaiting: its pods that wait for images. queue_mb: what is
    to be pulled for these."""
    listed = {image.layers[0].digest: image.layers[0].size_mb for image in known.node.images}
    used = {image for pod in known.pods.values() for _, image in pod.started_images}
    shown = []
    held: dict[str, float] = {}
    for image in sorted(known.images):
        layers = known_layers.of(image, known.architecture)
        size_mb = listed.get(image)
        if layers is not None:
            size_mb = fsum(layer.size_mb for layer in layers)
            held.update({layer.digest: layer.size_mb for layer in layers})
        elif size_mb is not None:
            held[image] = size_mb
        shown.append(ImageStatus(image, size_mb, len(layers or ()), image in used))
    awaited = (full_name(image) for pod in awaiting for image in pod.awaited_images)
    pulling = []
    for image in dict.fromkeys(awaited):
        start = known.starts.get(image)
        has = known.held_before(image)
        layers = known_layers.of(image, known.architecture)
        missing_mb = None
        if layers is not None:
            missing_mb = fsum(layer.size_mb for layer in layers if layer.digest not in has)
        if missing_mb != 0.0:
            age_s = None if start is None else now_s - start.at_s
            pulling.append(PullStatus(image, missing_mb, age_s))
    return NodeImageStatus(
        node=known.node.name,
        architecture=known.architecture,
        images=tuple(shown),
        held_mb=fsum(held.values()),
        queue_mb=queue_mb,
        pulling=tuple(pulling),
        speed=known.speed,
    )
