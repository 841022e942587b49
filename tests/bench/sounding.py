"""Errors of the round trips that are believed, beside serf's coordinates from the same samples.

Every network of tests/controller/probing/networks.py, seeded, with 10 % noise on each ping: the
real probe scheduler and estimates, without bandwidth tests. A coverage of 90 % is promised.
"""

import sys
from typing import Any

import numpy as np
from leadline_controller.framework.view import Floats
from leadline_controller.probing.sounding import Sounding
from leadline_controller.probing.truth import Truth
from leadline_wire import topics

from tests.controller.probing import networks
from tests.controller.probing.vivaldi import Vivaldi

NOISE = 0.1
# Boards, and the minutes after which they are asked.
SIZES = {30: 1.0, 100: 2.0, 300: 3.0, 1000: 4.0}
NETWORKS = (
    networks.clustered,
    networks.star,
    networks.line,
    networks.grid,
    networks.unstructured,
    networks.with_violations,
    networks.uneven,
)


class Recording(Sounding):
    """A run whose samples also move serf's coordinates."""

    def __init__(self, truth: Truth, seed: int) -> None:
        super().__init__(truth, seed)
        self.vivaldi = Vivaldi(len(truth.names))
        without_tests: Any = self._scheduler
        without_tests._start_bandwidth_tests = lambda *_: None

    def _publish(self, board: Any, kind: topics.Kind, message: Any) -> None:
        super()._publish(board, kind, message)
        if kind is topics.Kind.RTT:
            for peer in message.peers:
                at = self._index[peer.peer]
                # Each end of a pair learns from the same echo, as in serf's gossip.
                self.vivaldi.sample(board.at, at, peer.rtt_ms)
                self.vivaldi.sample(at, board.at, peer.rtt_ms)


def recorded(network: networks.Network, count: int, minutes: float, seed: int = 1) -> Recording:
    """A run on this network for so long."""
    rtt_ms = network(count, np.random.default_rng(seed))
    names = tuple(f"n{at:04}" for at in range(count))
    run = Recording(Truth(names, rtt_ms, np.full(count, 100.0), noise=NOISE), seed)
    run.run(minutes)
    run.telemetry.estimate_rtts(run.now_s)
    return run


def row(run: Recording) -> tuple[float, float, float, float, float]:
    """Ours and serf's: median and 90th percentile of the relative errors, %; our coverage, %."""
    pairs = run.document()["pairs"]
    true = np.array([each["true_rtt_ms"] for each in pairs])
    ours = abs(np.array([each["rtt_ms"] or np.nan for each in pairs]) - true)
    covered = ours <= np.array([each["error_ms"] or 0.0 for each in pairs])
    modelled: Floats = run.vivaldi.rtt_ms()[np.triu_indices(len(run.truth.names), 1)]
    ours, serfs = ours / true, abs(modelled - true) / true
    quantiles = [100 * float(np.nanquantile(x, q)) for x in (ours, serfs) for q in (0.5, 0.9)]
    return quantiles[0], quantiles[1], quantiles[2], quantiles[3], 100 * float(np.mean(covered))


def main(sizes: tuple[int, ...] = tuple(SIZES)) -> None:
    """Print the table."""
    print("relative errors of all pairs, %: median and 90th percentile")
    print(f"{'':18}{'boards':>7}{'ours':>8}{'':>8}{'serf':>9}{'':>8}{'coverage':>11}")
    for network in NETWORKS:
        for count in sizes:
            values = row(recorded(network, count, SIZES[count]))
            columns = "".join(f"{value:8.1f}" for value in values[:2])
            columns += f" {values[2]:8.1f}{values[3]:8.1f}{values[4]:10.1f}"
            print(f"{network.__name__:18}{count:>7,}{columns}", flush=True)


if __name__ == "__main__":
    main(tuple(int(each) for each in sys.argv[1:]) or tuple(SIZES))
