"""Container images as layers: which a node has, which are on their way to it, which it lacks.

What a pod would have to pull is a column over the nodes, made from the few layers that its
images have, so it costs as much over many images as over few.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from math import fsum

import numpy as np

from leadline_controller.framework.model import Image, Layer, Pod
from leadline_controller.framework.node_table import Bools, Floats, NodeTable
from leadline_controller.parsing.fields import valid_text

# What is made of names is kept, so it must not grow with what somebody sends as a node. A
# reference has 255 characters at most, and a digest.
_LONGEST_NAME = 512
_MOST_NAMES = 16


@dataclass(frozen=True, slots=True, eq=False)
class ImageTable:
    """The images that are known by their layers, and the nodes' download queues.

    catalogue: image -> its layers; what a node itself says of an image that it has
    (Node.images) stands in where the catalogue is silent. queued: digest -> indexes of the
    nodes that wait for this layer. queue_mb: node index -> size of its download queue, MB
    (10^6 bytes), where it is not empty.
    """

    catalogue: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)
    queued: Mapping[str, frozenset[int]] = field(default_factory=dict)
    queue_mb: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, images: Iterable[Image]) -> "ImageTable":
        """Over these images, with nothing on its way."""
        return cls({full_name(image.name): image.layers for image in images})

    def with_running(self, table: NodeTable, pods: Iterable[tuple[Pod, int]]) -> "ImageTable":
        """The table with pods that are on nodes already, each with the index of its node: what
        is missing there is being pulled, and a node that states its queue has counted it in."""
        queued = {digest: set(nodes) for digest, nodes in self.queued.items()}
        queue_mb = dict(self.queue_mb)
        for pod, node in pods:
            has = table.nodes[node].image_layers
            joining = [
                layer
                for layer in self.layers_of(table, pod)
                if layer.digest not in has and node not in queued.get(layer.digest, ())
            ]
            for layer in joining:
                queued.setdefault(layer.digest, set()).add(node)
            if joining:
                added_mb = fsum(layer.size_mb for layer in joining)
                queue_mb[node] = queue_mb.get(node, 0.0) + added_mb
        unstated = np.isnan(table.pulling_mb)
        return replace(
            self,
            queued={digest: frozenset(nodes) for digest, nodes in queued.items()},
            queue_mb={node: mb for node, mb in queue_mb.items() if unstated[node]},
        )

    def images_of(self, table: NodeTable, pod: Pod) -> tuple[Image, ...]:
        """The pod's images whose layers are known, each once."""
        found = (
            (name, self.catalogue.get(name, table.images.get(name)))
            for name in dict.fromkeys(map(full_name, pod.images))
        )
        return tuple(Image(name, layers) for name, layers in found if layers is not None)

    def layers_of(self, table: NodeTable, pod: Pod) -> tuple[Layer, ...]:
        """The layers of the pod's known images, each once; none where no image is known."""
        images = self.images_of(table, pod)
        return tuple({layer.digest: layer for image in images for layer in image.layers}.values())

    def cached(self, table: NodeTable, layer: Layer) -> Bools:
        """The nodes that have the layer, shape (n,)."""
        return table.mask(("image layer", layer.digest), lambda n: layer.digest in n.image_layers)

    def waiting(self, table: NodeTable, layer: Layer) -> Bools:
        """The nodes whose download queue holds the layer, shape (n,)."""
        waiting = table.none()
        waiting[list(self.queued.get(layer.digest, ()))] = True
        return waiting

    def cached_mb(self, table: NodeTable, pod: Pod) -> Floats:
        """MB of the pod's layers that each node has, shape (n,); NaN on all nodes where none of
        its images is known."""
        return self._sum_mb(table, pod, self.cached)

    def missing_mb(self, table: NodeTable, pod: Pod) -> Floats:
        """MB of the pod's layers that each node neither has nor waits for, shape (n,); NaN on
        all nodes where none of its images is known."""
        return self._sum_mb(table, pod, self._lacking)

    def waiting_mb(self, table: NodeTable) -> Floats:
        """Size of each node's download queue, MB, shape (n,): what it states (Node.pulling_mb),
        and what pods that it does not count in there still have to pull."""
        column = np.nan_to_num(table.pulling_mb)
        for node, size_mb in self.queue_mb.items():
            column[node] += size_mb
        return column

    def with_pull(self, table: NodeTable, pod: Pod, node: int) -> "ImageTable":
        """The table after the pod was put on the node with this index: what is missing there
        joins its queue."""
        joining = [
            layer for layer in self.layers_of(table, pod) if self._lacking(table, layer)[node]
        ]
        if not joining:
            return self
        queued = dict(self.queued)
        for layer in joining:
            queued[layer.digest] = queued.get(layer.digest, frozenset()) | {node}
        added_mb = fsum(layer.size_mb for layer in joining)
        queue_mb = {**self.queue_mb, node: self.queue_mb.get(node, 0.0) + added_mb}
        return replace(self, queued=queued, queue_mb=queue_mb)

    def _lacking(self, table: NodeTable, layer: Layer) -> Bools:
        return ~(self.cached(table, layer) | self.waiting(table, layer))

    def _sum_mb(
        self, table: NodeTable, pod: Pod, where: Callable[[NodeTable, Layer], Bools]
    ) -> Floats:
        if not self.images_of(table, pod):
            return np.full(len(table), np.nan)
        total = np.zeros(len(table))
        for layer in self.layers_of(table, pod):
            total += layer.size_mb * where(table, layer)
        return total


def read_listed_images(listed: object) -> Iterator[Image]:
    """The images of a v1 Node's status, which names them but not their layers: each stands for
    one layer. Only a help to strategies, so what can't be read is passed over."""
    for entry in listed if isinstance(listed, list) else ():
        names = entry.get("names") if isinstance(entry, Mapping) else None
        size = entry.get("sizeBytes") if isinstance(entry, Mapping) else None
        if not isinstance(names, list) or not isinstance(size, int) or size < 0:
            continue
        texts = (n for n in names if isinstance(n, str) and len(n) <= _LONGEST_NAME)
        known = tuple(valid_text(name) for name in islice(texts, _MOST_NAMES))
        yield from _one_layer_each(known, size)


@lru_cache(maxsize=4096)  # many nodes list the same images; they share what is made of them
def _one_layer_each(names: tuple[str, ...], size_bytes: int) -> tuple[Image, ...]:
    if not names:
        return ()
    # A node may know an image by several names; the digest is the same on all nodes.
    digest = next((name for name in names if "@" in name), names[0])
    layers = (Layer(full_name(digest), size_bytes / 1e6),)
    return tuple(Image(full_name(name), layers) for name in names)


def full_name(name: str) -> str:
    """An image's name with what the container runtime adds: registry, library/ and :latest."""
    path, at, digest = name.partition("@")
    host, slash, rest = path.partition("/")
    if not slash:
        path = f"docker.io/library/{path}"
    elif not ("." in host or ":" in host or host == "localhost"):
        path = f"docker.io/{path}"
    elif host == "docker.io" and "/" not in rest:
        path = f"docker.io/library/{rest}"
    tagged = at or ":" in path.rpartition("/")[2]
    return f"{path}{at}{digest}" if tagged else f"{path}:latest"
