"""How long KubeDSM takes over a batch of 20 pods, on 3 and on 50 edge nodes that are half full, and
what the paper's plain enumeration of subsets would cost for the same; and how long leadline takes
over one on 100 and 1,000 boards.
"""

import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchPlan, BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.node_metrics import NodeMetrics
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.leadline import Leadline

from tests.bench import decision

BATCH = 20
EDGE_NODES = (3, 50)
BOARDS = (100, 1000)
ROUNDS = 5
GIB, MIB = 1024**3, 1024**2
SERVICES = ((1000, 950), (1000, 1900), (1000, 950), (2000, 1900))  # the paper's Table 5


def cluster(edges: int) -> tuple[ClusterView, list[Running]]:
    """Copies of the paper's edge nodes, each half full, and one cloud node."""
    sizes = [(5, 5), (4, 4), (7, 5)]
    nodes = [_node(f"e{i}", *sizes[i % 3]) for i in range(edges)]
    table = NodeTable([*nodes, _node("cloud", 1000, 1000, "cloud")])
    count = len(table)
    view = ClusterView(
        table=table,
        requested={},
        metrics=NodeMetrics.unknown(count),
        links=LinkTable(table.index, []),
        bandwidth_requested_mbps=np.zeros(count),
        placed_in_run=np.zeros(count, dtype=np.int64),
    )
    running: list[Running] = []
    for i in range(edges):
        for which in (i % 4, (i + 1) % 4):
            running.append((pod(f"r{i}-{which}", which), i))
    running += [(pod(f"far-{i}", i % 4), edges) for i in range(10)]
    for each, at in running:
        view = view.with_placement(each, at)
    return view, running


def _node(name: str, cores: int, gib: int, tier: str = "edge") -> Node:
    room = {CPU: cores * 1000, MEMORY: gib * GIB, PODS: 1000}
    return Node(name, allocatable=room, tier=tier)


def pod(name: str, service: int) -> Pod:
    """A pod of one of the paper's services."""
    millicores, mib = SERVICES[service]
    requests = {CPU: millicores, MEMORY: mib * MIB, PODS: 1}
    return Pod("default", name, requests=requests, labels={"app": str(service)})


def distinct_pod(name: str, random: Random) -> Pod:
    """A pod with random requests, as a service of its own."""
    requests = {CPU: random.randint(500, 2000), MEMORY: random.randint(500, 2000) * MIB, PODS: 1}
    return Pod("default", name, requests=requests, labels={"app": name})


def milliseconds(batch: Callable[[], BatchPlan]) -> tuple[float, str]:
    """The median time of a batch, and the search method of its plan."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan = batch()
        times.append(time.perf_counter() - start)
    return median(times) * 1000, plan.method


def _batch(
    view: ClusterView, pods: Sequence[Pod], running: Sequence[Running], strategy: BatchStrategy
) -> Callable[[], BatchPlan]:
    return lambda: decide_batch(view, pods, running, Rule(strategy, FILTERS))[1]


def enumeration_seconds(pods: Sequence[Pod], nodes: int) -> float:
    """What trying each subset, and then each of its subsets on each node, would take: the time of
    one step of the plainest loop times 2^k + nodes * 3^k (Section 5.3)."""
    steps = 100_000
    wants = [pod.requests[MEMORY] for pod in pods]
    start = time.perf_counter()
    for subset in range(steps):
        sum(wants[at] for at in range(len(wants)) if subset >> at & 1)
    step_s = (time.perf_counter() - start) / steps
    return step_s * float(2 ** len(pods) + nodes * 3 ** len(pods))


def main() -> None:
    """Print the table."""
    print(f"a batch of {BATCH} pods, all filters, median ms; the aim: under 1,000")
    print("plain enumeration: its steps times what one was seen to take")
    random = Random(0)
    batches = {
        "4 services": [pod(f"p{i}", i % 4) for i in range(BATCH)],
        "all different": [distinct_pod(f"s{i}", random) for i in range(BATCH)],
    }
    print(f"{'edge nodes':>10}  {'pods':14}{'immediate':>11}{'+ suggest':>11}{'enumerated':>14}")
    for edges in EDGE_NODES:
        view, running = cluster(edges)
        for what, pods in batches.items():
            found = [
                milliseconds(_batch(view, pods, running, KubeDsm(suggest=suggest)))
                for suggest in (0, 1)
            ]
            plain = f"{enumeration_seconds(pods, edges) / 3600:,.0f} h"
            times = "".join(f"{ms:11.1f}" for ms, _ in found)
            methods = "; ".join(method for _, method in found)
            print(f"{edges:>10}  {what:14}{times}{plain:>14}   {methods}")
    print(
        f"\nleadline, a batch of {BATCH} pods that differ, with all filters; the aim: under 50 ms"
    )
    for boards in BOARDS:
        view = decision.cluster(boards).assuming_load()
        plan = _batch(view, decision.pods(boards), [], Leadline())
        plan()  # fills the caches that nodes keep
        found_ms, method = milliseconds(plan)
        print(f"{boards:>10,}  boards{found_ms:19.1f}   {method}")


if __name__ == "__main__":
    main()
