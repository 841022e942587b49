"""Which images and layers each node has, and what it pulls.

Registries tell an image's layers. A node has the images in its status, those that its kubelet
reported as pulled, and those from which its containers started; so it has their layers. The status
has 50 images at most, the largest ones (kubernetes#93488). So an image that it does not have is
still there while a container uses it, for a minute after it was seen, in which the kubelet may not
have updated the status; and as long as the status is full and the image is smaller than all in it.
Otherwise the kubelet has deleted it.

Kubelets pull one image after the other by default, in the order in which they asked for them.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import islice
from math import fsum

import numpy as np

from leadline_controller.cluster.held_images import HeldImages, PullStart
from leadline_controller.cluster.image_status import NodeImageStatus, node_status
from leadline_controller.cluster.known_layers import KnownLayers, Layers
from leadline_controller.cluster.pull_times import LEAST_S, MOST_MBPS
from leadline_controller.framework.image_layers import ImageTable, full_name
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.ports import ImagePull

# A kubelet's nodeStatusMaxImages.
LISTED_IMAGES = 50
# A kubelet updates its node's status within 10 s after a change.
_STATUS_DELAY_S = 60.0
_MAX_STARTS = 64  # pulls of a node that began
# A pull of less says more about the registry's delay than about its speed.
_LEAST_MB = 1.0
_MOST_DELAY_S = 60.0  # a pod that takes longer waits for a volume, or an operator


class ImageState:
    """The images of all nodes. Used by the thread of the cluster's state. now_s: a monotonic
    clock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._nodes: dict[str, HeldImages] = {}
        self._awaiting: dict[str, dict[str, Pod]] = {}  # node -> its pods by uid
        self._known = KnownLayers()
        self._by_name: Mapping[str, Mapping[str, Layers]] = {}  # of these, by any name
        self._held: dict[str, frozenset[str]] = {}
        self._wanted: Set[str] = frozenset()  # when last asked
        self._is_stale = False  # that and `_held`, after a registry told something
        self._dirty: set[str] = set()
        self._check_at_s = np.inf
        self._listed: Counter[str] = Counter()  # nodes that list an image, by digest
        self._base: ImageTable | None = None
        self._of: NodeTable | None = None
        # The base with the download queues of the awaiting pods; for which images, by node; and
        # the nodes where this may have changed.
        self._queues = ImageTable()
        self._queued: dict[str, tuple[str, ...]] = {}
        self._unqueued: set[str] = set()

    # Changes of the cluster.

    def relisted(self, nodes: Iterable[Node]) -> None:
        """These are all nodes; their pods are added again."""
        before, self._nodes, self._awaiting = self._nodes, {}, {}
        self._listed.clear()
        for node in nodes:
            known = before.pop(node.name, None)
            self._nodes[node.name] = known or HeldImages(node)
            self._nodes[node.name].node = node
            self._nodes[node.name].pods = {}
            self._listed.update(_by_digest(node))
        self._dirty = set(self._nodes)
        self._drop(before)

    def node_changed(self, node: Node) -> None:
        """A node was added or changed."""
        known = self._nodes.get(node.name)
        if known is None:
            known = self._nodes[node.name] = HeldImages(node)
        else:
            self._listed.subtract(_by_digest(known.node))
            known.node = node
        self._listed.update(_by_digest(node))
        self._listed += Counter()  # without zeros
        self._dirty.add(node.name)

    def node_deleted(self, name: str) -> None:
        """A node was deleted."""
        known = self._nodes.pop(name, None)
        if known is not None:
            self._listed.subtract(_by_digest(known.node))
            self._drop({name: known})

    def add(self, pod: Pod, node: str) -> None:
        """A pod uses resources of this node. It may be added twice."""
        known = self._nodes.get(node)
        if known is None:
            return
        if pod.awaited_images:
            self._awaiting.setdefault(node, {})[pod.uid] = pod
            self._unqueued.add(node)
            known.came_s.setdefault(pod.uid, self._now_s())
            if len(known.came_s) > _MAX_STARTS:
                del known.came_s[next(iter(known.came_s))]
        else:
            known.came_s.pop(pod.uid, None)
        before = known.pods.get(pod.uid)
        known.pods[pod.uid] = pod
        if pod.started_images != (() if before is None else before.started_images):
            self._dirty.add(node)

    def remove(self, pod: Pod, node: str) -> None:
        """The pod no longer uses resources of this node."""
        awaiting = self._awaiting.get(node, {})
        if awaiting.pop(pod.uid, None) is not None:
            self._unqueued.add(node)
            if not awaiting:
                del self._awaiting[node]
        known = self._nodes.get(node)
        if known is None or known.pods.pop(pod.uid, None) is None:
            return
        now_s = self._now_s()
        for _, image in pod.started_images:
            known.note(image, now_s)
        self._dirty.add(node)

    def update(self, before: Pod, after: Pod, node: str) -> None:
        """A pod that uses resources of this node has changed."""
        if (before.awaited_images, before.started_images) != (
            after.awaited_images,
            after.started_images,
        ):
            self.remove(before, node)
        self.add(after, node)

    def observe(self, pull: ImagePull) -> float | None:
        """A kubelet reports a pull. Returns how fast it was, Mbit/s, None if that is not known.
        Whoever may write events in one namespace can claim a pull, so it counts only for a pod on
        that node, and no faster than any link."""
        known = self._nodes.get(pull.node)
        if known is None or pull.pod_uid not in known.pods:
            return None
        if pull.took_s is None:
            self._began(known, pull)
            return None
        if not pull.is_old:
            return self._ended(known, pull, max(pull.took_s, LEAST_S))
        if pull.size_mb is not None and pull.size_mb >= _LEAST_MB:
            known.rough.add(pull.size_mb, pull.took_s)
            self._base = None
        return None

    def _began(self, known: HeldImages, pull: ImagePull) -> None:
        came_s = known.came_s.get(pull.pod_uid)
        if pull.pod_uid in known.came_s:
            # Not forgotten: the next image, or try, says nothing, and the pod is added with each
            # change.
            known.came_s[pull.pod_uid] = None
        if came_s is not None and not pull.is_old and not known.pods[pull.pod_uid].init_images:
            known.delays_s.append(min(self._now_s() - came_s, _MOST_DELAY_S))
            self._base = None
        before = known.starts.get(pull.image)
        if before is not None and before.pod_uid != pull.pod_uid:
            return  # another pod waits for the same pull
        if pull.is_old and pull.pod_uid not in self._awaiting.get(pull.node, ()):
            return
        now_s = self._now_s()
        self._refresh(now_s)
        known.starts[pull.image] = PullStart(
            pull.pod_uid, now_s, None if pull.is_old else known.held
        )
        if len(known.starts) > _MAX_STARTS:
            del known.starts[next(iter(known.starts))]

    def _ended(self, known: HeldImages, pull: ImagePull, took_s: float) -> float | None:
        now_s = self._now_s()
        start = known.starts.pop(pull.image, None)
        known.free_at_s = now_s
        known.note(pull.image, now_s)
        self._dirty.add(pull.node)
        if start is None:
            return None  # it was there when this pod's turn came
        layers = self._known.of(pull.image, known.architecture)
        # Kubelets pull one image after the other by default, so the next ones begin with these.
        pulled = {layer.digest for layer in layers or ()}
        for waiting in known.starts.values():
            waiting.held = None if waiting.held is None else waiting.held | pulled
        is_exact = layers is not None and start.held is not None
        size_mb = pull.size_mb or 0.0
        if layers is not None and start.held is not None:
            size_mb = fsum(layer.size_mb for layer in layers if layer.digest not in start.held)
        if size_mb < _LEAST_MB:
            return None
        (known.exact if is_exact else known.rough).add(size_mb, took_s)
        self._base = None
        return min(size_mb * 8 / took_s, MOST_MBPS) if is_exact else None

    # What registries know.

    def learn(self, image: str, by_digest: str, layers: Mapping[str, Layers]) -> set[str]:
        """A registry tells an image's digest, and its layers for each architecture ("" for all).
        image, by_digest: full names. Returns the images that were forgotten for it, the oldest of
        those that nothing wants."""
        if self._known.says(image, by_digest, layers):
            return set()
        # Thousands are told at a start, so what is made of all of them waits for who reads it.
        self._is_stale, self._base = True, None
        return self._known.learn(image, by_digest, layers, self._wanted)

    def wanted(self, pods: Iterable[Pod]) -> dict[str, set[str]]:
        """The images whose layers are worth asking for: those of the pods, and those that nodes
        list of the same registries. Full name -> for each pod that names it namespace/ and, for
        each of its pull secrets, namespace/name."""
        wanted: dict[str, set[str]] = {}
        # Once for all replicas: the lookup asks each second, and there may be thousands of pods.
        alike = {
            (pod.namespace, pod.pull_secrets, (*pod.init_images, *pod.images))
            for pod in pods
            if not pod.finished
        }
        for namespace, secrets, images in alike:
            named_by = {f"{namespace}/{name}" for name in ("", *secrets)}
            for image in images:
                wanted.setdefault(full_name(image), set()).update(named_by)
        registries = {image.partition("/")[0] for image in wanted}
        for name, nodes in self._listed.items():
            if nodes > 0 and name.partition("/")[0] in registries:
                wanted.setdefault(name, set())
        self._wanted = wanted.keys()
        return wanted

    # Reading.

    def table(self, nodes: NodeTable) -> ImageTable:
        """The images for a decision about these nodes."""
        now_s = self._now_s()
        self._refresh(now_s)
        if self._base is None or self._of is not nodes:
            base = ImageTable(by_architecture=self._by_name, held=self._held)
            every = [self._nodes.get(name) for name in nodes.names]
            speeds = [None if known is None else known.speed for known in every]
            if any(speeds):
                base = replace(
                    base,
                    pull_mbps=np.array([np.nan if s is None else s.mbps for s in speeds]),
                    overhead_s=np.array([np.nan if s is None else s.overhead_s for s in speeds]),
                    delay_s=np.array([x.delay_s if x and x.speed else 0.0 for x in every]),
                )
            self._of, self._base = nodes, base
            self._queues, self._queued, self._unqueued = base, {}, set(self._awaiting)
        self._queue_again(nodes)
        table = self._queues
        if not table.queue_mb:
            return table
        queue_mb, queue_s = dict(table.queue_mb), dict[int, float]()
        for at in queue_mb:
            name = nodes.names[at]
            if (left := self._left(name, self._awaiting_on(name), now_s)) is not None:
                done_mb, queue_s[at] = left
                queue_mb[at] = max(queue_mb[at] - done_mb, 0.0)
        return replace(table, queue_mb=queue_mb, queue_s=queue_s)

    def _queue_again(self, nodes: NodeTable) -> None:
        """Make the download queues of nodes whose pods wait for other images than before. In a
        burst, hundreds of pods wait for the same few images."""
        pods: list[tuple[Pod, int]] = []
        again: set[int] = set()
        for name in self._unqueued & nodes.index.keys():
            awaiting = self._awaiting_on(name)
            images = tuple(dict.fromkeys(i for each in awaiting for i in each.awaited_images))
            if images != self._queued.get(name, ()):
                self._queued[name] = images
                again.add(nodes.index[name])
                pods += [
                    (replace(each, images=images, init_images=()), nodes.index[name])
                    for each in islice(awaiting, 1)
                ]
        self._unqueued = set()
        if again:
            self._queues = self._queues.with_running(nodes, pods, again)

    def _awaiting_on(self, node: str) -> Collection[Pod]:
        """The pods on this node that wait for images."""
        return self._awaiting.get(node, {}).values()

    def statuses(self, nodes: NodeTable) -> Iterator[NodeImageStatus]:
        """What is known of each node's images."""
        queue_mb = self.table(nodes).waiting_mb(nodes)
        now_s = self._now_s()
        for at, name in enumerate(nodes.names):
            known = self._nodes.get(name)
            if known is not None:
                yield node_status(
                    known, self._known, self._awaiting_on(name), float(queue_mb[at]), now_s
                )

    def _left(
        self, node: str, awaiting: Collection[Pod], now_s: float
    ) -> tuple[float, float] | None:
        """What the pull that is under way has downloaded, about, MB, and in how many seconds the
        node will have all that these pods of it wait for. None before any pull was seen."""
        known = self._nodes[node]
        speed = known.speed
        if speed is None:
            return None
        asked_s: dict[str, float] = {}
        for pod in awaiting:
            came_s = known.came_s.get(pod.uid)
            asks_s = now_s if came_s is None else max(came_s + known.delay_s, now_s)
            for image in map(full_name, pod.awaited_images):
                asked_s[image] = min(asked_s.get(image, np.inf), asks_s)
        started = {image: start for image, start in known.starts.items() if image in asked_s}
        asked_s |= {image: start.at_s for image, start in started.items()}
        done_mb, ends_s = 0.0, known.free_at_s
        brought: set[str] = set()
        for image in sorted(asked_s, key=lambda image: (image not in started, asked_s[image])):
            layers = self._known.of(image, known.architecture) or ()
            held = known.held_before(image)
            size_mb = fsum(
                layer.size_mb
                for layer in layers
                if layer.digest not in held and layer.digest not in brought
            )
            begins_s = max(ends_s, asked_s[image])
            if not brought and image in started:
                running_s = max(now_s - begins_s - speed.overhead_s, 0.0)
                done_mb = min(running_s * speed.mbps / 8, size_mb)
            brought |= {layer.digest for layer in layers}
            ends_s = max(begins_s + (speed.seconds(size_mb) if size_mb else 0.0), now_s)
        return done_mb, max(ends_s - now_s, 0.0)

    # Which layers a node has.

    def _refresh(self, now_s: float) -> None:
        is_stale, self._is_stale = self._is_stale, False
        if is_stale:
            self._dirty = set(self._nodes)
        due: set[str] = set()
        if self._check_at_s <= now_s:
            due = {name for name, known in self._nodes.items() if known.check_at_s <= now_s}
            left = (known.check_at_s for known in self._nodes.values())
            self._check_at_s = min((at_s for at_s in left if at_s > now_s), default=np.inf)
        elif not self._dirty and not is_stale:
            return
        changed: dict[str, set[str]] = {}
        for name in self._dirty | due:
            known = self._nodes.get(name)
            if known is None:
                continue
            known.images = frozenset(self._images_on(known, now_s))
            self._check_at_s = min(self._check_at_s, known.check_at_s)
            held = frozenset(
                layer.digest
                for image in known.images
                for layer in self._known.of(image, known.architecture) or ()
            )
            for digest in held ^ known.held:
                changed.setdefault(digest, set()).add(name)
            known.held = held
        self._dirty = set()
        self._toggle(changed)
        if is_stale:  # new ones, because earlier views keep theirs
            self._by_name = self._known.by_any_name()
            every = (
                layer
                for of in self._known.layers.values()
                for each in of.values()
                for layer in each
            )
            none: frozenset[str] = frozenset()
            self._held = {layer.digest: self._held.get(layer.digest, none) for layer in every}

    def _images_on(self, known: HeldImages, now_s: float) -> Iterator[str]:
        """The images that the node has, by digest where that is known."""
        listed: dict[str, float] = {}
        known.check_at_s = np.inf
        for each in known.node.images:
            by_digest = each.layers[0].digest
            listed[by_digest] = each.layers[0].size_mb
            yield by_digest
            # The kubelet does not pull a tag again that it has, but for :latest.
            if "@" not in each.name and not each.name.endswith(":latest"):
                yield self._known.digests.get(each.name, by_digest)
        for pod in known.pods.values():
            yield from (image for _, image in pod.started_images)
        full = len(set(listed)) >= LISTED_IMAGES
        least_mb = min(listed.values(), default=0.0)
        for image, at_s in list(known.pulled.items()):
            by_digest = self._known.digests.get(image, image)
            if by_digest in listed:
                continue
            layers = self._known.of(image, known.architecture)
            size_mb = None if layers is None else fsum(layer.size_mb for layer in layers)
            if now_s - at_s < _STATUS_DELAY_S:
                known.check_at_s = min(known.check_at_s, at_s + _STATUS_DELAY_S)
                yield by_digest
            elif full and size_mb is not None and size_mb <= least_mb:
                yield by_digest
            else:
                del known.pulled[image]

    def _drop(self, gone: Mapping[str, HeldImages]) -> None:
        changed: dict[str, set[str]] = {}
        for name, known in gone.items():
            for digest in known.held:
                changed.setdefault(digest, set()).add(name)
            self._awaiting.pop(name, None)
        self._toggle(changed)
        self._base = None

    def _toggle(self, changed: Mapping[str, set[str]]) -> None:
        """Add these nodes to those that have the layer, or remove them. Earlier views keep what
        they have."""
        if not changed:
            return
        held = dict(self._held)
        for digest, names in changed.items():
            held[digest] = held.get(digest, frozenset()) ^ names
        self._held = held
        self._base = None


def _by_digest(node: Node) -> set[str]:
    """The names by digest of the images in its status."""
    names = (image.layers[0].digest for image in node.images)
    return {name for name in names if "@" in name}
