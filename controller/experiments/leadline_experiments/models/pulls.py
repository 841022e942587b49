"""A node that pulls image layers over a link of its own, like a container runtime: it keeps its
layers, pulls no layer twice, and pulls one or a few at once while the others wait in its queue. The
pulls share the link equally, which is max-min fair where no other link is a bottleneck.
"""

from collections import deque
from collections.abc import Iterable
from math import fsum, inf

from leadline_controller.framework.model import Layer

_SAME_MOMENT_S = 1e-9


class NodeStore:
    """One node's layers.

    mbps: the capacity of its link, Mbit/s. at_once: the most pulls at a time. arrived_s: digest ->
    when the layer was there. waiting: digest -> the layer, for those that are not there yet. hits:
    layers of pods that the node had or awaited already. misses: layers that it had to pull.
    stored_mb: the size of those, MB.
    """

    def __init__(self, mbps: float, at_once: int) -> None:
        self.mbps = mbps
        self._at_once = at_once
        self.arrived_s: dict[str, float] = {}
        self.waiting: dict[str, Layer] = {}
        self.hits = self.misses = 0
        self.stored_mb = 0.0
        self._now_s = 0.0
        self._left_mbit: dict[str, float] = {}  # of the pulls that have started
        self._queue: deque[Layer] = deque()

    @property
    def left_mbps(self) -> float:
        """What one more pull would get of its link now, Mbit/s."""
        return self.mbps / (1 + len(self._left_mbit))

    def pull(self, layers: Iterable[Layer]) -> float:
        """Pull the layers that the node neither has nor awaits; their size in MB."""
        fresh = []
        for layer in layers:
            if layer.digest in self.arrived_s or layer.digest in self.waiting:
                self.hits += 1
            else:
                fresh.append(layer)
                self.waiting[layer.digest] = layer
        self.misses += len(fresh)
        self._queue.extend(fresh)
        self._start()
        missing_mb = fsum(layer.size_mb for layer in fresh)
        self.stored_mb += missing_mb
        return missing_mb

    def advance(self, now_s: float = inf) -> None:
        """Let time pass until this moment; without one, until every layer is there."""
        while self._left_mbit:
            rate_mbps = self.mbps / len(self._left_mbit)
            next_s = self._now_s + min(self._left_mbit.values()) / rate_mbps
            if next_s > now_s:
                break
            self._receive(next_s, rate_mbps)
            self._start()
        if self._left_mbit:
            self._receive(now_s, rate_mbps)
        self._now_s = now_s

    def _start(self) -> None:
        while self._queue and len(self._left_mbit) < self._at_once:
            layer = self._queue.popleft()
            self._left_mbit[layer.digest] = layer.size_mb * 8

    def _receive(self, until_s: float, rate_mbps: float) -> None:
        received_mbit = (until_s - self._now_s) * rate_mbps
        self._now_s = until_s
        for digest, left_mbit in list(self._left_mbit.items()):
            if left_mbit - received_mbit > rate_mbps * _SAME_MOMENT_S:
                self._left_mbit[digest] = left_mbit - received_mbit
            else:
                del self._left_mbit[digest], self.waiting[digest]
                self.arrived_s[digest] = until_s
