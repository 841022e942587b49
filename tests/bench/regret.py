"""How far from their users strategies put pods, beside the nearest node that there is.

DACS with the network only and response-time, on clusters of edge, fog and cloud. Each node in turn
is the user's, and may not take the pod itself. Before: each board pings five neighbours on a ring,
and an unknown round trip counts as the longest one measured. Now: what the real probe scheduler and
estimates believe after some minutes of noisy pings. Full: the truth.
"""

import sys

import numpy as np
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import CPU, MEMORY, Link, Node
from leadline_controller.framework.node_metrics import NodeMetrics
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.response_time import ResponseTime
from leadline_lab.sounding.simulation import Sounding

from tests.bench.sounding import SIZES, recorded
from tests.lab.sounding import networks

RING_PEERS = 5
# alpha and lambda: without them DACS weighs processing, and prefers large nodes within 50 ms.
STRATEGIES: dict[str, Strategy] = {
    "dacs": Dacs(alpha=0.0, lambda_s=0.0, data_mb=0.0),
    "response-time": ResponseTime(),
}
SEEDS = {30: 3, 100: 3, 300: 2, 1000: 1}


def mean_rtt_ms(strategy: Strategy, table: NodeTable, links: LinkTable, true: Floats) -> float:
    """The mean true round trip between each user and the node that is picked for it."""
    count = len(table)
    view = ClusterView(
        table=table,
        requested={},
        metrics=NodeMetrics.unknown(count),
        links=links,
        bandwidth_requested_mbps=np.zeros(count),
        placed_in_run=np.zeros(count, dtype=np.int64),
    )
    picked_ms = []
    for user, name in enumerate(table.names):
        annotations = {"leadline.dev/user-node": name}
        pod = read_pod(
            {"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": []}}
        )
        candidates = np.delete(np.arange(count), user)
        finalists = strategy.score(view, pod, candidates).finalists
        picked_ms.append(true[user, candidates[finalists]].mean())
    return float(np.mean(picked_ms))


def ratio(strategy: Strategy, run: Sounding, links: LinkTable | None = None) -> float:
    """The mean true round trip to the picked nodes as a ratio to the best possible one. links: what
    is known, by default what this run believes."""
    table = table_of(run)
    links = run.telemetry.link_table(table, run.now_s) if links is None else links
    return mean_rtt_ms(strategy, table, links, run.network.rtt_ms) / best_ms(run.network.rtt_ms)


def table_of(run: Sounding) -> NodeTable:
    """The boards of the run, all alike."""
    return NodeTable([Node(name, {CPU: 4000, MEMORY: 1 << 33}) for name in run.network.names])


def best_ms(true: Floats) -> float:
    """The mean true round trip from each board to its nearest other one."""
    nearest = true.copy()
    np.fill_diagonal(nearest, np.inf)
    return float(nearest.min(axis=1).mean())


def rows(count: int) -> dict[str, list[float]]:
    """For each strategy the best possible mean round trip, ms, and as ratios to it: before, now,
    and with full knowledge."""
    found: dict[str, list[list[float]]] = {name: [] for name in STRATEGIES}
    for seed in range(1, SEEDS[count] + 1):
        run = recorded(networks.clustered, count, SIZES[count], seed)
        true, names = run.network.rtt_ms, run.network.names
        ring = [
            Link(names[at], names[(at + step) % count], float(true[at, (at + step) % count]))
            for at in range(count)
            for step in range(1, RING_PEERS + 1)
        ]
        ends = np.argwhere(np.triu(np.ones_like(true), 1))
        full = LinkTable.of_columns(count, ends, true[tuple(ends.T)], np.zeros(len(ends)))
        for name, strategy in STRATEGIES.items():
            knowledge = (LinkTable(table_of(run).index, ring), None, full)
            ratios = [ratio(strategy, run, each) for each in knowledge]
            found[name].append([best_ms(true), *ratios])
    return {name: np.mean(values, axis=0).tolist() for name, values in found.items()}


def main(sizes: tuple[int, ...] = tuple(SIZES)) -> None:
    """Print the table."""
    print("mean round trip between users and picked nodes, as a ratio to the best possible")
    print(f"{'':16}{'boards':>8}{'best, ms':>11}{'before':>9}{'now':>9}{'full':>9}")
    for count in sizes:
        for name, (best_ms, *ratios) in rows(count).items():
            columns = "".join(f"{ratio:9.2f}" for ratio in ratios)
            print(f"{name:16}{count:>8,}{best_ms:11.2f}{columns}", flush=True)


if __name__ == "__main__":
    main(tuple(int(each) for each in sys.argv[1:]) or tuple(SIZES))
