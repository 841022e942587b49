"""What the graph of the traffic takes, and how many bytes in the database.

Each board has 20 pods, each of which talks to five others, and reports its 64 largest flows once a
minute: all boards at once, or a sixth of them, as they come in ten seconds.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from random import Random

from leadline_controller.framework.model import Node, Owner, Pod
from leadline_controller.telemetry.traffic import BoardTraffic, CountedFlow, TrafficReports
from leadline_controller.traffic.graph import TrafficGraph

FLOWS, PODS, PEERS = 64, 20, 5
SIZES = (20, 100, 400)


def main() -> None:
    """Print a line for each size of cluster."""
    print("boards   flows  edges  all report  a sixth reports  what decisions read  stored")
    for boards in SIZES:
        print(_line(boards), flush=True)


def _line(boards: int) -> str:
    nodes, pods, flows = _cluster(boards)
    reports = TrafficReports()
    graph = TrafficGraph(reports)
    graph.update(pods, nodes, 0.0)
    took_ms, now_s = [], 0.0
    for share in (1, 1, 6):
        now_s += 60.0
        for number, (node, counted) in enumerate(flows.items()):
            if number % share == 0:
                reports.add(BoardTraffic(node, now_s, 60.0, counted, 10_000))
        took_ms.append(_took_ms(graph.update, pods, nodes, now_s))
    read_ms = _took_ms(graph.traffic, now_s)
    count, edges = sum(map(len, flows.values())), len(graph.edges(now_s))
    return (
        f"{boards:6}  {count:6} {edges:6}  {took_ms[1]:7.0f} ms  {took_ms[2]:12.0f} ms"
        f"  {read_ms:16.0f} ms  {len(graph.document(now_s)) / 1000:3.0f} kB"
    )


def _cluster(
    boards: int,
) -> tuple[dict[str, Node], list[Pod], dict[str, tuple[CountedFlow, ...]]]:
    """Nodes, pods, and what each board counts."""
    random = Random(boards)
    names = [f"n{number}" for number in range(boards)]
    nodes = {
        name: Node(name, addresses=(f"192.0.{number // 250}.{number % 250 + 1}",))
        for number, name in enumerate(names)
    }
    pods = []
    for at in range(boards * PODS):
        app = f"app-{at % (boards * 2)}"
        pods.append(
            Pod(
                "shop",
                f"{app}-{at}",
                uid=str(at),
                node_name=names[at // PODS],
                ips=(f"10.{at // 62500}.{at // 250 % 250}.{at % 250 + 1}",),
                labels={"app": app},
                owner=Owner("ReplicaSet", app, app),
            )
        )
    flows: defaultdict[str, list[CountedFlow]] = defaultdict(list)
    for pod in pods:
        for peer in random.sample(pods, PEERS):
            counts = (random.randrange(10**6), random.randrange(10**6), 600, 500, 60)
            flow = CountedFlow(pod.ip, peer.ip, 80, *counts)
            for node in {pod.node_name, peer.node_name} - {None}:
                flows[str(node)].append(flow)
    largest = {
        node: tuple(sorted(found, key=lambda x: -x.bytes_sent - x.bytes_received)[:FLOWS])
        for node, found in flows.items()
    }
    return nodes, pods, largest


def _took_ms(work: Callable[..., object], *of: object) -> float:
    began_s = time.thread_time()
    work(*of)
    return 1000 * (time.thread_time() - began_s)


if __name__ == "__main__":
    main()
