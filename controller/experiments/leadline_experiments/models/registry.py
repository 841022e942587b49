"""A registry, and nodes that pull image layers from it over the network, in a simulation.

A node keeps what it pulled, pulls no layer twice, and has a few downloads on their way at once
while the others wait in its queue, as container runtimes do.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum

import simpy
from leadline_controller.framework.model import Layer

from leadline_experiments.models.network import Network

PARALLEL_PULLS = 3  # Docker's max-concurrent-downloads and containerd's default


@dataclass(slots=True)
class NodeStore:
    """One node's layers. hits, misses: layers that pods wanted and the node had or was
    already pulling, and those that it had to pull."""

    cached: dict[str, Layer] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0
    pending: dict[str, tuple[Layer, simpy.Event]] = field(default_factory=dict)
    queue: deque[Layer] = field(default_factory=deque)
    pulling: int = 0

    @property
    def stored_mb(self) -> float:
        """What the layers take of its disk, MB."""
        # fsum, as sum rounds differently from Python 3.12 on, and a hair can change who is first.
        return fsum(layer.size_mb for layer in self.cached.values())

    @property
    def waiting_mb(self) -> float:
        """The layers that are not there yet, MB; those on their way count in full."""
        return fsum(layer.size_mb for layer, _ in self.pending.values())


class Registry:
    """Serves layers to nodes. network: has one route per node, named like the node, from the
    registry to it. parallel: how many layers one node pulls at once, 1 or more."""

    def __init__(
        self,
        env: simpy.Environment,
        network: Network,
        nodes: Iterable[str],
        parallel: int = PARALLEL_PULLS,
    ) -> None:
        if parallel < 1:
            raise ValueError(f"parallel: expected 1 or more, got {parallel}")
        self._env = env
        self._network = network
        self._parallel = parallel
        self._stores = {node: NodeStore() for node in nodes}

    @property
    def stores(self) -> Mapping[str, NodeStore]:
        """Node -> what it has and waits for."""
        return self._stores

    def pull(self, node: str, layers: Iterable[Layer]) -> simpy.Event:
        """Let the node pull what it neither has nor is pulling; the event comes when all of
        the layers are there. Raises KeyError."""
        store = self._stores[node]
        awaited = []
        for layer in layers:
            if layer.digest in store.cached:
                store.hits += 1
                continue
            if layer.digest in store.pending:
                store.hits += 1
            else:
                store.misses += 1
                store.pending[layer.digest] = (layer, self._env.event())
                store.queue.append(layer)
            awaited.append(store.pending[layer.digest][1])
        self._start(node, store)
        return self._env.all_of(awaited)

    def _start(self, node: str, store: NodeStore) -> None:
        while store.queue and store.pulling < self._parallel:
            layer = store.queue.popleft()
            store.pulling += 1
            self._env.process(self._download(node, store, layer))

    def _download(self, node: str, store: NodeStore, layer: Layer) -> simpy.events.ProcessGenerator:
        yield self._network.download(node, layer.size_mb)
        store.pulling -= 1
        _, there = store.pending.pop(layer.digest)
        store.cached[layer.digest] = layer
        self._start(node, store)
        there.succeed()
