"""Vivaldi as in serf's `coordinate` package: the baseline for our estimates.

Each node has a position, a height, an error and an adjustment, and moves at each of its own samples
(Dabek et al., SIGCOMM 2004; Ledlie et al., NSDI 2007, for the adjustment and gravity). The
constants are serf's: 8 dimensions, ce = cc = 0.25, the median of 3 samples, 20 for the adjustment.
"""

from collections import defaultdict, deque
from statistics import median
from typing import Any

import numpy as np
from leadline_controller.framework.view import Floats
from leadline_lab.sounding.simulated_network import SimulatedNetwork
from leadline_lab.sounding.simulation import Sounding
from leadline_wire import topics

_DIMENSIONS, _CE, _CC = 8, 0.25, 0.25
_MOST_ERROR, _LEAST_HEIGHT_S, _GRAVITY = 1.5, 1e-5, 150.0
_ZERO = 1e-6


class Vivaldi:
    """The coordinates of `count` nodes."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._x = np.zeros((count, _DIMENSIONS))
        self._height_s = np.full(count, _LEAST_HEIGHT_S)
        self._error = np.full(count, _MOST_ERROR)
        self._adjustments: list[deque[float]] = [deque(maxlen=20) for _ in range(count)]
        self._samples: defaultdict[tuple[int, int], deque[float]] = defaultdict(
            lambda: deque(maxlen=3)
        )

    def sample(self, node: int, peer: int, rtt_ms: float) -> None:
        """`node` measured its round trip to `peer`."""
        samples = self._samples[node, peer]
        samples.append(rtt_ms)
        rtt_s = median(samples) / 1000
        difference = self._x[node] - self._x[peer]
        distance = float(np.linalg.norm(difference))
        modelled_s = distance + self._height_s[node] + self._height_s[peer]
        weight = self._error[node] / max(self._error[node] + self._error[peer], _ZERO)
        wrongness = abs(modelled_s - rtt_s) / max(rtt_s, _ZERO)
        error = _CE * weight * wrongness + self._error[node] * (1 - _CE * weight)
        self._error[node] = min(error, _MOST_ERROR)
        force = _CC * weight * (rtt_s - modelled_s)
        if distance > _ZERO:
            self._x[node] += difference / distance * force
            height_s = (self._height_s[node] + self._height_s[peer]) * force / distance
            self._height_s[node] = max(_LEAST_HEIGHT_S, self._height_s[node] + height_s)
        else:
            direction = self._random.normal(size=_DIMENSIONS)
            self._x[node] += direction / np.linalg.norm(direction) * force
        from_origin = float(np.linalg.norm(self._x[node]))
        if from_origin > _ZERO:
            self._x[node] -= self._x[node] / from_origin * (from_origin / _GRAVITY) ** 2
        now_s = np.linalg.norm(self._x[node] - self._x[peer])
        now_s += self._height_s[node] + self._height_s[peer]
        self._adjustments[node].append(rtt_s - now_s)

    def rtt_ms(self) -> Floats:
        """The modelled round trips, ms, shape (n, n)."""
        distance = np.linalg.norm(self._x[:, np.newaxis] - self._x, axis=2)
        modelled_s = distance + self._height_s[:, np.newaxis] + self._height_s
        adjustment = np.array([sum(each) / (2 * 20) for each in self._adjustments])
        adjusted_s = modelled_s + adjustment[:, np.newaxis] + adjustment
        return np.asarray(np.where(adjusted_s > 0, adjusted_s, modelled_s) * 1000)


class Recording(Sounding):
    """A run whose samples also move serf's coordinates."""

    def __init__(self, network: SimulatedNetwork, seed: int = 0) -> None:
        super().__init__(network, seed)
        self.vivaldi = Vivaldi(len(network.names))

    def _publish(self, board: Any, kind: topics.Kind, message: Any) -> None:
        super()._publish(board, kind, message)
        if kind is topics.Kind.RTT:
            for peer in message.peers:
                at = self._index[peer.peer]
                # Each end of a pair learns from the same echo, as in serf's gossip.
                self.vivaldi.sample(board.at, at, peer.rtt_ms)
                self.vivaldi.sample(at, board.at, peer.rtt_ms)
