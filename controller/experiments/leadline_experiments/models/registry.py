"""A simulated registry, and nodes that pull image layers from it over the network.

Nodes behave like container runtimes: a node keeps its layers, pulls no layer twice, and pulls a few
at once while the others wait in its queue.
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
    """One node's layers. hits: layers of pods that the node had or was pulling already. misses:
    layers that it had to pull."""

    cached: dict[str, Layer] = field(default_factory=dict)
    hits: int = 0
    misses: int = 0
    pending: dict[str, tuple[Layer, simpy.Event]] = field(default_factory=dict)
    queue: deque[Layer] = field(default_factory=deque)
    pulling: int = 0

    @property
    def stored_mb(self) -> float:
        """The size of the layers on its disk, MB."""
        # fsum, because sum rounds differently since Python 3.12, which can change an order.
        return fsum(layer.size_mb for layer in self.cached.values())

    @property
    def waiting_mb(self) -> float:
        """The size of the layers that are still missing, MB; a started pull counts in full."""
        return fsum(layer.size_mb for layer, _ in self.pending.values())


class Registry:
    """Serves layers to nodes. network: has a route to each node, named like the node. parallel: the
    layers that a node pulls at once, 1 or more."""

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
        self.stores: Mapping[str, NodeStore] = {node: NodeStore() for node in nodes}

    def pull(self, node: str, layers: Iterable[Layer]) -> simpy.Event:
        """Pull the layers that the node neither has nor is pulling; return the event of the last
        layer's arrival. Raises KeyError."""
        store = self.stores[node]
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
        _, pulled = store.pending.pop(layer.digest)
        store.cached[layer.digest] = layer
        self._start(node, store)
        pulled.succeed()
