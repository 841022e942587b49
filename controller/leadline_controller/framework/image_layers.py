"""Container images as layers: which layers a node has, has queued for download, or misses.

The cost of a column over the nodes depends on the layers of the pod's images, not on the number
of known images.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import fsum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from leadline_controller.framework.model import Image, Layer, Pod
from leadline_controller.framework.node_table import Bools, Floats, NodeTable

# Names are cached, so a Node object must not be able to fill the memory. A reference has at most
# 255 characters and a digest.
_MAX_NAME_LENGTH = 512
_MAX_NAMES = 16
_MAX_MASKS = 4096
ARCH_LABEL = "kubernetes.io/arch"
MIN_MBPS = 0.001  # of a link that is down, so that all times are finite
_EMPTY = np.zeros(0)
_EMPTY.flags.writeable = False
_NO_QUEUE: Mapping[int, float] = MappingProxyType({})


class Variant(NamedTuple):
    """The layers of an image as some nodes need them, by their architecture."""

    name: str
    layers: tuple[Layer, ...]
    nodes: Bools  # shape (n,)


class Pull(NamedTuple):
    """What a pod's images mean for each node, columns of shape (n,), NaN if unknown."""

    missing_mb: Floats  # to download, neither there nor in the queue
    shared_mb: Floats  # there already
    queue_mb: Floats  # the node's download queue
    time_s: Floats  # until all is there


@dataclass(frozen=True, slots=True, eq=False)
class ImageTable:
    """The images whose layers are known, and the nodes' download queues."""

    # Image -> its layers; images that are missing here are looked up in Node.images.
    catalogue: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)
    # Digest -> indexes of the nodes that have this layer in their download queue.
    queued: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # Node index -> size of its download queue, MB (10^6 bytes), if it is not empty.
    queue_mb: Mapping[int, float] = field(default_factory=dict)
    # Image -> architecture (the label kubernetes.io/arch) -> its layers there, "" for all; it comes
    # before the catalogue.
    by_architecture: Mapping[str, Mapping[str, tuple[Layer, ...]]] = field(default_factory=dict)
    # Digest -> names of the nodes that have the layer; one that is missing here is looked up in
    # Node.image_layers.
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # The speed of the nodes' pulls, and what each pull takes besides. Every recorded decision holds
    # a table, so what is empty is shared.
    pull_mbps: Floats = field(default_factory=lambda: _EMPTY)
    overhead_s: Floats = field(default_factory=lambda: _EMPTY)
    # The time from a decision until the kubelet asks for the pod's images; shape (n,) or shorter,
    # NaN if unknown.
    delay_s: Floats = field(default_factory=lambda: _EMPTY)
    # Node index -> when its queue is downloaded, seconds from now, where pulls have shown it;
    # elsewhere its size tells.
    queue_s: Mapping[int, float] = field(default_factory=lambda: _NO_QUEUE)
    _masks: dict[str, tuple[NodeTable, frozenset[str], Bools]] = field(default_factory=dict)

    @classmethod
    def of(cls, images: Iterable[Image]) -> "ImageTable":
        """A table of these images, with empty download queues."""
        return cls({full_name(image.name): image.layers for image in images})

    def with_running(
        self, table: NodeTable, pods: Iterable[tuple[Pod, int]], again: Collection[int] = ()
    ) -> "ImageTable":
        """The table with assigned pods, each with the index of its node. Their missing layers are
        in the node's download queue, and already included if the node states its queue's size.
        again: the nodes whose queues hold nothing but these pods' layers."""
        kept = {digest: nodes.difference(again) for digest, nodes in self.queued.items()}
        queued = {digest: set(nodes) for digest, nodes in kept.items() if nodes}
        queue_mb = {node: mb for node, mb in self.queue_mb.items() if node not in again}
        for pod, node in pods:
            added = self._to_pull(table, pod, node, queued)
            for layer in added:
                queued.setdefault(layer.digest, set()).add(node)
            if added:
                queue_mb[node] = queue_mb.get(node, 0.0) + fsum(layer.size_mb for layer in added)
        unstated = np.isnan(table.pulling_mb)
        return replace(
            self,
            queued={digest: frozenset(nodes) for digest, nodes in queued.items()},
            queue_mb={node: mb for node, mb in queue_mb.items() if unstated[node]},
        )

    def knows(self, table: NodeTable, pod: Pod) -> bool:
        """Whether the layers of any of the pod's images are known."""
        return any(
            self.by_architecture.get(name) or name in self.catalogue or name in table.images
            for name in map(full_name, (*pod.init_images, *pod.images))
        )

    def variants_of(self, table: NodeTable, pod: Pod) -> Iterator[Variant]:
        """The pod's images whose layers are known, without repeats. Each node needs one variant of
        each image; one of another architecture than all that are known counts with the first."""
        for name in dict.fromkeys(map(full_name, (*pod.init_images, *pod.images))):
            by_architecture = self.by_architecture.get(name, {})
            rest = by_architecture.get("", self.catalogue.get(name, table.images.get(name)))
            left = table.all()
            for architecture, layers in by_architecture.items():
                if architecture:
                    nodes = _of_architecture(table, architecture)
                    left &= ~nodes
                    yield Variant(name, layers, nodes)
                    rest = layers if rest is None else rest
            if rest is not None:
                yield Variant(name, rest, left)

    def layers_of(self, table: NodeTable, pod: Pod) -> tuple[tuple[Layer, Bools], ...]:
        """The layers of the pod's known images, without repeats, each with the nodes that need it,
        shape (n,)."""
        found: dict[str, tuple[Layer, Bools]] = {}
        for variant in self.variants_of(table, pod):
            for layer in variant.layers:
                _, nodes = found.get(layer.digest, (layer, variant.nodes))
                found[layer.digest] = layer, nodes | variant.nodes
        return tuple(found.values())

    def cached(self, table: NodeTable, layer: Layer) -> Bools:
        """The nodes that have the layer, shape (n,)."""
        held = self.held.get(layer.digest)
        if held is None:
            return table.mask(
                ("image layer", layer.digest), lambda n: layer.digest in n.image_layers
            )
        kept = self._masks.get(layer.digest)
        if kept is not None and kept[0] is table and kept[1] is held:
            return kept[2]
        found = table.none()
        found[[table.index[name] for name in held if name in table.index]] = True
        found.flags.writeable = False
        if len(self._masks) >= _MAX_MASKS:
            self._masks.clear()
        self._masks[layer.digest] = table, held, found
        return found

    def cached_mb(self, table: NodeTable, pod: Pod) -> Floats:
        """MB of the pod's layers that each node has, shape (n,); NaN if none of its images is
        known."""
        return self._sums_mb(table, pod, self.cached)[0]

    def has_all(self, table: NodeTable, pod: Pod) -> Bools:
        """Which nodes have every layer of the pod's known images, shape (n,), so that it starts
        there without a pull."""
        cached_mb, all_mb = self._sums_mb(table, pod, self.cached, _everywhere)
        found: Bools = cached_mb >= all_mb
        return found

    def missing_mb(self, table: NodeTable, pod: Pod) -> Floats:
        """MB of the pod's layers that each node neither has nor has queued, shape (n,); NaN if
        none of its images is known."""
        return self._sums_mb(table, pod, self._missing)[0]

    def waiting_mb(self, table: NodeTable) -> Floats:
        """Size of each node's download queue, MB, shape (n,): the stated size (Node.pulling_mb)
        plus the layers of pods that it does not include."""
        column = np.nan_to_num(table.pulling_mb)
        for node, size_mb in self.queue_mb.items():
            column[node] += size_mb
        return column

    def pull(self, table: NodeTable, pod: Pod, registry_mbps: Floats) -> Pull:
        """What the pod's images mean for each node. registry_mbps: the bandwidth from the registry,
        shape (n,). A node that has all layers does not wait for its queue. The time is the one that
        a kubelet's event states: it begins when the kubelet asks for the images."""
        queue_mb = self.waiting_mb(table)
        if not self.knows(table, pod):
            unknown = np.full(len(table), np.nan)
            return Pull(unknown, unknown, queue_mb, unknown)
        sums = self._sums_mb(table, pod, self.cached, self._missing, _everywhere)
        shared_mb, missing_mb, all_mb = sums
        mbps = np.maximum(registry_mbps, MIN_MBPS)
        overhead_s = np.nan_to_num(_filled(self.overhead_s, len(table)))
        delay_s = np.nan_to_num(_filled(self.delay_s, len(table)))
        queue_s, missing_s = queue_mb * 8 / mbps, missing_mb * 8 / mbps
        for node, known_s in self.queue_s.items():
            queue_s[node] = max(known_s - delay_s[node], 0.0)
        time_s = queue_s + missing_s + np.where(missing_mb > 0, overhead_s, 0.0)
        time_s = np.where(shared_mb >= all_mb, 0.0, time_s)
        return Pull(missing_mb, shared_mb, queue_mb, time_s)

    def pull_mbps_of(self, table: NodeTable) -> Floats:
        """The speed of each node's pulls as seen, Mbit/s, shape (n,), NaN if unknown."""
        return _filled(self.pull_mbps, len(table))

    def with_pull(self, table: NodeTable, pod: Pod, node: int) -> "ImageTable":
        """The table with the pod on the node with this index: missing layers are queued there."""
        added = self._to_pull(table, pod, node, self.queued)
        if not added:
            return self
        queued = dict(self.queued)
        for layer in added:
            queued[layer.digest] = queued.get(layer.digest, frozenset()) | {node}
        added_mb = fsum(layer.size_mb for layer in added)
        queue_mb = {**self.queue_mb, node: self.queue_mb.get(node, 0.0) + added_mb}
        queue_s = dict(self.queue_s)
        mbps, overhead_s, delay_s = (
            float(_filled(column, len(table))[node])
            for column in (self.pull_mbps, self.overhead_s, self.delay_s)
        )
        if not np.isnan(mbps) and (node in queue_s or node not in self.queue_mb):
            begins_s = max(queue_s.get(node, 0.0), np.nan_to_num(delay_s))
            queue_s[node] = begins_s + added_mb * 8 / mbps + np.nan_to_num(overhead_s)
        return replace(self, queued=queued, queue_mb=queue_mb, queue_s=queue_s)

    def _to_pull(
        self, table: NodeTable, pod: Pod, node: int, queued: Mapping[str, Set[int]]
    ) -> list[Layer]:
        at = table.nodes[node]
        return [
            layer
            for layer, needed in self.layers_of(table, pod)
            if needed[node]
            and layer.digest not in at.image_layers
            and at.name not in self.held.get(layer.digest, ())
            and node not in queued.get(layer.digest, ())
        ]

    def _missing(self, table: NodeTable, layer: Layer) -> Bools:
        missing = ~self.cached(table, layer)
        missing[list(self.queued.get(layer.digest, ()))] = False
        return missing

    def _sums_mb(
        self, table: NodeTable, pod: Pod, *where: Callable[[NodeTable, Layer], Bools]
    ) -> list[Floats]:
        """MB of the pod's layers on the nodes that each of these tells of a layer, each of shape
        (n,), NaN if none of its images is known."""
        layers = self.layers_of(table, pod)
        if not layers and not any(True for _ in self.variants_of(table, pod)):
            return [np.full(len(table), np.nan) for _ in where]
        totals = [np.zeros(len(table)) for _ in where]
        for layer, nodes in layers:
            for total, of_layer in zip(totals, where, strict=True):
                total += layer.size_mb * (of_layer(table, layer) & nodes)
        return totals


def _everywhere(table: NodeTable, _: Layer) -> Bools:
    return table.all()


def _of_architecture(table: NodeTable, architecture: str) -> Bools:
    return table.mask(
        ("architecture", architecture), lambda node: node.labels.get(ARCH_LABEL) == architecture
    )


def _filled(column: Floats, count: int) -> Floats:
    filled = np.full(count, np.nan)
    filled[: column.size] = column
    return filled


def listed_images(listed: Iterable[tuple[tuple[str, ...], int]]) -> Iterator[Image]:
    """The images in a v1 Node's status, which lists names and a size in bytes. It does not list
    layers, so each image is one layer."""
    for names, size_bytes in listed:
        if len(names) > _MAX_NAMES or max(map(len, names), default=0) > _MAX_NAME_LENGTH:
            names = tuple([each for each in names if len(each) <= _MAX_NAME_LENGTH][:_MAX_NAMES])
        yield from _one_layer_each(names, size_bytes)


@lru_cache(maxsize=4096)  # many nodes list the same images
def _one_layer_each(names: tuple[str, ...], size_bytes: int) -> tuple[Image, ...]:
    if not names:
        return ()
    # An image may have several names on a node; its digest is the same on all nodes.
    digest = next((name for name in names if "@" in name), names[0])
    layers = (Layer(full_name(digest), size_bytes / 1e6),)
    return tuple(Image(full_name(name), layers) for name in names)


@lru_cache(maxsize=4096)  # pods of one workload have the same
def full_name(name: str) -> str:
    """An image's name with the container runtime's defaults: registry, library/ and :latest."""
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
