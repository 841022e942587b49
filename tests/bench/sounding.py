"""Errors of the round trips that are believed, beside serf's coordinates from the same samples.

Every network of tests/lab/sounding/networks.py, seeded, with 10 % noise on each ping: the
real probe scheduler and estimates, without bandwidth tests. A coverage of 90 % is promised.
"""

import sys
from typing import Any

import numpy as np
from leadline_controller.framework.view import Floats
from leadline_lab.sounding.simulated_network import SimulatedNetwork

from tests.lab.sounding import networks
from tests.lab.sounding.vivaldi import Recording

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


def recorded(network: networks.Network, count: int, minutes: float, seed: int = 1) -> Recording:
    """A run on this network for so long."""
    rtt_ms = network(count, np.random.default_rng(seed))
    names = tuple(f"n{at:04}" for at in range(count))
    run = Recording(SimulatedNetwork(names, rtt_ms, np.full(count, 100.0), noise=NOISE), seed)
    without_tests: Any = run._scheduler
    without_tests._start_bandwidth_tests = lambda *_: None
    run.run(minutes)
    run.telemetry.estimate_rtts(run.now_s)
    return run


def row(run: Recording) -> tuple[float, float, float, float, float]:
    """Ours and serf's: median and 90th percentile of the relative errors, %; our coverage, %."""
    pairs = run.document()["pairs"]
    true = np.array([each["true_rtt_ms"] for each in pairs])
    ours = abs(np.array([each["rtt_ms"] or np.nan for each in pairs]) - true)
    covered = ours <= np.array([each["error_ms"] or 0.0 for each in pairs])
    modelled: Floats = run.vivaldi.rtt_ms()[np.triu_indices(len(run.network.names), 1)]
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
