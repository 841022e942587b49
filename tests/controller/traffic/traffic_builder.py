"""A small cluster whose boards report what they count."""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from leadline_controller.framework.model import Node, Owner, Pod
from leadline_controller.telemetry.traffic import BoardTraffic, CountedFlow, TrafficReports
from leadline_controller.traffic.edges import HOUR_S, TrafficEdge
from leadline_controller.traffic.graph import TrafficGraph

UNIX_S = 1_800_000_000.0  # at time 0 of the clock
MINUTE_BYTES = 7_500_000  # in a minute, 1 Mbit/s


def board(number: int) -> Node:
    """n1 has the address 192.0.2.1 and the pods of 10.42.1.0/24."""
    return Node(
        f"n{number}",
        addresses=(f"192.0.2.{number}",),
        pod_networks=(f"10.42.{number}.0/24",),
    )


def replica(app: str, number: int, last: int, **fields: Any) -> Pod:
    """A pod of the Deployment `app` on board `number`, with an address that ends in `last`."""
    owner = Owner("ReplicaSet", f"{app}-abc", f"rs-{app}")
    labels = {"app": app, "pod-template-hash": "abc"}
    made = Pod(
        "shop",
        f"{app}-abc-{number}{last}",
        uid=f"{app}-{number}-{last}",
        node_name=f"n{number}",
        ips=(f"10.42.{number}.{last}",),
        owner=owner,
        labels=labels,
    )
    return replace(made, **fields)


def flow(
    source: str,
    destination: str,
    amount: int = MINUTE_BYTES,
    *,
    port: int = 80,
    packets: tuple[int, int] = (600, 300),
    connections: int = 60,
    **fields: Any,
) -> CountedFlow:
    """Of `amount` bytes, a third of them sent."""
    source, destination = str(ip_address(source)), str(ip_address(destination))
    sent = amount // 3
    counts = (sent, amount - sent, *packets, connections)
    return CountedFlow(source, destination, port, *counts, **fields)


class Cluster:
    """Boards n1 to n`boards`, and a graph of their traffic. The clock stands at `now_s`."""

    def __init__(self, boards: int = 3, pods: Iterable[Pod] = ()) -> None:
        self.nodes = {f"n{number}": board(number) for number in range(1, boards + 1)}
        self.pods = {pod.uid: pod for pod in pods}
        self.now_s = 1000.0
        self.is_kept = False
        self.reports = TrafficReports()
        self.graph = self.new_graph()
        self.graph.update(self.pods.values(), self.nodes, 0.0)

    def new_graph(self) -> TrafficGraph:
        return TrafficGraph(self.reports, lambda: UNIX_S, lambda _: self.is_kept)

    def report(self, node: str, *flows: CountedFlow, omitted: int = 0, s: float = 60.0) -> None:
        self.reports.add(BoardTraffic(node, self.now_s, s, flows, omitted))

    def update(self) -> None:
        self.graph.update(self.pods.values(), self.nodes, self.now_s)

    def edges(self) -> dict[tuple[str, str, int], TrafficEdge]:
        self.update()
        return {
            (each.source.name, each.destination.name, each.port): each
            for each in self.graph.edges(self.now_s)
        }

    def mbps(self) -> dict[tuple[str, str, int], float]:
        """Of the last hour."""
        return {ends: edge.rates[HOUR_S].mbps for ends, edge in self.edges().items()}
