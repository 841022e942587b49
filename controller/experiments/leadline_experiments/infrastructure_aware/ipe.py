"""A stand-in for the paper's network: Ipê, the backbone of Brazil's research network.

The paper takes the links from a web page that changes with the network. The stand-in has the same
28 points of presence, and the shape and usual capacities of the backbone about 2021: a 100 Gbit/s
ring in the north-east, 10 Gbit/s elsewhere, less in the far north. Section IV-B attaches one server
and five edge nodes to each point. Their links are much narrower, so they determine the bandwidth of
a download; a test checks this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import networkx as nx

REGISTRY_POINT = "SP"
REGISTRY_LINK = "registry"
REGISTRY_MBPS = 10_000.0
SERVER_MBPS = 100.0
EDGE_MBPS = (10.0, 60.0)
EDGE_NODES = 5

# Points of presence by state; CG is Campina Grande, the second one in Paraíba.
_LINKS_GBPS = (
    *(("SP", "RJ", 100), ("SP", "PR", 10), ("SP", "RS", 10), ("SP", "MG", 10), ("SP", "DF", 10)),
    *(("SP", "MS", 10), ("SP", "CE", 100), ("RJ", "MG", 10), ("RJ", "ES", 10), ("RJ", "DF", 10)),
    *(("PR", "SC", 10), ("SC", "RS", 10), ("PR", "MS", 10), ("MS", "MT", 10), ("MT", "GO", 10)),
    *(("GO", "DF", 10), ("GO", "TO", 10), ("MG", "DF", 10), ("MG", "BA", 10), ("ES", "BA", 10)),
    *(("BA", "SE", 100), ("SE", "AL", 100), ("AL", "PE", 100), ("PE", "CG", 100)),
    *(("CG", "PB", 100), ("CG", "RN", 100), ("RN", "CE", 100), ("BA", "CE", 100)),
    *(("CE", "PI", 10), ("PI", "MA", 10), ("PI", "PE", 10), ("MA", "PA", 10), ("PA", "TO", 10)),
    *(("MT", "RO", 10), ("RO", "AC", 3), ("RO", "AM", 3), ("PA", "AM", 3), ("PA", "AP", 1)),
    *(("AM", "RR", 1),),
)
POINTS = tuple(sorted({point for a, b, _ in _LINKS_GBPS for point in (a, b)}))


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """A node and the links from the registry to it; the last one is the node's own."""

    name: str
    links: tuple[str, ...]
    is_server: bool


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes and the capacity of every link."""

    nodes: Sequence[NetworkNode]
    capacity_mbps: Mapping[str, float]

    def bandwidth_mbps(self, node: NetworkNode) -> float:
        """The bandwidth of a single download to the node, Mbit/s."""
        return min(self.capacity_mbps[link] for link in node.links)


def draw_topology(random: Random) -> Topology:
    """Section IV-B: the backbone, and at each point a server and five edge nodes with random links,
    drawn uniformly. Downloads take the path with the fewest links; of these, the widest."""
    capacity_mbps = {_link(a, b): gbps * 1000.0 for a, b, gbps in _LINKS_GBPS}
    capacity_mbps[REGISTRY_LINK] = REGISTRY_MBPS
    nodes = []
    for point, links in _backbone_links().items():
        for at in range(1 + EDGE_NODES):
            name = f"{point}-{f'edge-{at}' if at else 'server'}".lower()
            capacity_mbps[name] = random.uniform(*EDGE_MBPS) if at else SERVER_MBPS
            nodes.append(NetworkNode(name, (REGISTRY_LINK, *links, name), is_server=not at))
    return Topology(nodes, capacity_mbps)


def _backbone_links() -> dict[str, tuple[str, ...]]:
    """Point -> the backbone's links between the registry and the point."""
    graph = nx.Graph()
    for a, b, gbps in _LINKS_GBPS:
        graph.add_edge(a, b, cost=1 + 1e-3 / gbps)
    paths = nx.single_source_dijkstra_path(graph, REGISTRY_POINT, weight="cost")
    return {
        point: tuple(_link(a, b) for a, b in zip(paths[point], paths[point][1:], strict=False))
        for point in POINTS
    }


def _link(a: str, b: str) -> str:
    return "-".join(sorted((a, b)))
