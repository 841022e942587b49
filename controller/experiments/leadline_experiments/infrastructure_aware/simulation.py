"""Stand-ins for the paper's network and images, and a run of one method on them: applications
arrive, their replicas are placed and the images pulled.

The network is Ipê, the backbone of Brazil's research network. The paper takes the links from a web
page that changes with the network. The stand-in has the same 28 points of presence. Section IV-B
attaches one server and five edge nodes to each point. Their links are much narrower than those of
the backbone, so they alone determine the bandwidth of a download; a test checks this with the shape
and the usual capacities of the backbone about 2021.

The paper takes Docker Hub's 24 most downloaded images without base images, and prints their total
size with and without shared layers. The stand-in has 24 images that led the list about 2021, with
their usual structure: official images share a few bases (Debian slim and full, Ubuntu, Alpine,
buildpack-deps, PHP with Apache) and add their own layers, some of them tiny. The proportions are
rough; two factors, one for shared and one for own layers, give both of the paper's totals exactly.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from random import Random
from typing import NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy, assume, decide
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import CPU, MEMORY, PODS, Image, Layer, Node, Pod
from leadline_controller.framework.view import NodeTable

from leadline_experiments.models.cluster import view_of
from leadline_experiments.models.pulls import NodeStore

SERVER_MBPS = 100.0
EDGE_MBPS = (10, 60)
EDGE_NODES = 5

# By state; CG is Campina Grande, the second one in Paraíba.
POINTS = (
    *("AC", "AL", "AM", "AP", "BA", "CE", "CG", "DF", "ES", "GO", "MA", "MG", "MS", "MT"),
    *("PA", "PB", "PE", "PI", "PR", "RJ", "RN", "RO", "RR", "RS", "SC", "SE", "SP", "TO"),
)

TOTAL_MB = 3436.45
UNIQUE_MB = 2152.78
APPLICATIONS = 350
REPLICAS = 1250
IMAGES_EACH = (5, 25)
REPLICAS_EACH = (2, 5)
LATEST_S = 1000.0

# Base -> the layers that every image on it shares, MB.
_BASES = {
    "slim": (27.1,),
    "debian": (50.4,),
    "scm": (50.4, 7.8, 10.0, 51.8),
    "buildpack": (50.4, 7.8, 10.0, 51.8, 192.0),
    "ubuntu": (28.6, 0.8),
    "alpine": (2.8,),
    "php": (27.1, 0.2, 76.7, 0.3, 18.6, 0.5, 11.3, 14.2),
}
# Image -> its base, and the layers that only it has, MB.
_IMAGES = {
    "nginx": ("slim", (26.6, 0.6, 0.9, 0.7, 1.4)),
    "redis": ("slim", (1.7, 1.4, 7.5, 0.1, 0.1)),
    "postgres": ("slim", (4.4, 1.8, 1.4, 8.0, 0.4, 72.0, 0.1, 0.1)),
    "httpd": ("slim", (0.2, 10.4, 24.5, 0.3)),
    "mysql": ("slim", (1.7, 4.2, 1.4, 0.1, 13.4, 0.1, 112.0, 0.8, 0.1)),
    "memcached": ("slim", (0.3, 1.2, 3.1, 0.3)),
    "haproxy": ("slim", (0.2, 10.6, 0.2)),
    "mongo": ("ubuntu", (2.9, 4.3, 1.5, 0.2, 119.0, 0.1)),
    "mariadb": ("ubuntu", (4.3, 4.9, 0.1, 0.3, 86.0, 0.1)),
    "rabbitmq": ("ubuntu", (30.0, 0.6, 17.0, 0.1, 0.2)),
    "node": ("buildpack", (4.2, 33.3, 2.3, 0.3)),
    "python": ("buildpack", (6.3, 18.7, 0.2, 2.4)),
    "ruby": ("buildpack", (0.2, 23.2, 0.1)),
    "golang": ("scm", (68.7, 129.0, 0.2)),
    "openjdk": ("scm", (5.4, 0.2, 203.0)),
    "tomcat": ("scm", (5.4, 0.3, 104.0, 0.2, 12.8, 0.1)),
    "influxdb": ("debian", (6.2, 58.0, 0.3, 0.2)),
    "php": ("php", (2.3, 0.3, 0.2)),
    "wordpress": ("php", (13.3, 0.5, 26.0, 1.9, 15.2, 0.2)),
    "nextcloud": ("php", (16.8, 9.0, 0.3, 105.0, 0.2)),
    "traefik": ("alpine", (1.2, 28.0, 0.1)),
    "registry": ("alpine", (0.3, 6.3, 0.2, 0.1)),
    "docker": ("alpine", (2.0, 0.1, 58.0, 0.3, 6.0, 0.1)),
    "elasticsearch": ("", (75.0, 14.0, 310.0, 0.2, 0.3, 0.1)),
}

_MIB = 1024**2
# kube-scheduler's defaults for a container without requests: 100m and 200 MiB.
POD_REQUESTS = {CPU: 100, MEMORY: 200 * _MIB, PODS: 1}
NODE_PODS, FULL_PODS = (
    16,
    60,
)  # the pods that a node takes, and those that LeastRequested calls full
NODE_ALLOCATABLE = {CPU: FULL_PODS * 100, MEMORY: FULL_PODS * 200 * _MIB, PODS: NODE_PODS}
# The other filters refuse nothing here.
_FILTERS = {"NodeResourcesFit": FILTERS["NodeResourcesFit"]}


def draw_links(random: Random) -> dict[str, float]:
    """Section IV-B: at each point a server and five edge nodes with random links, drawn uniformly.
    Node -> Mbit/s of its link."""
    return {
        f"{point}-{f'edge-{at}' if at else 'server'}".lower(): (
            float(random.randint(*EDGE_MBPS)) if at else SERVER_MBPS
        )
        for point in POINTS
        for at in range(1 + EDGE_NODES)
    }


@dataclass(frozen=True, slots=True)
class Application:
    """Replicas of one image, all scheduled at `start_s` among the nodes of one point of
    presence."""

    name: str
    image: Image
    replicas: int
    start_s: float
    point: str


def stand_in_images() -> tuple[Image, ...]:
    """The 24 images, with their sizes scaled to the paper's totals."""
    shared, own = _scale_factors()
    return tuple(
        Image(
            f"{name}:1",
            (
                *(Layer(f"sha256:{d}", mb * shared) for d, mb in _base_layers(base).items()),
                *(Layer(f"sha256:{name}-{i}", mb * own) for i, mb in enumerate(sizes)),
            ),
        )
        for name, (base, sizes) in _IMAGES.items()
    )


def draw_applications(images: tuple[Image, ...], random: Random) -> tuple[Application, ...]:
    """Section IV-C: 5 to 25 applications per image and 2 to 5 replicas per application, drawn
    uniformly and then adjusted one by one within these ranges to Table I's sums; uniform start
    times, and a point of presence of those that have room. In order of time."""
    counts = _draw_with_sum(random, len(images), IMAGES_EACH, APPLICATIONS)
    replicas = _draw_with_sum(random, APPLICATIONS, REPLICAS_EACH, REPLICAS)
    image_of_app = [
        image for image, count in zip(images, counts, strict=True) for _ in range(count)
    ]
    room = dict.fromkeys(POINTS, (1 + EDGE_NODES) * NODE_PODS)
    drawn = []
    for i, (image, number) in enumerate(zip(image_of_app, replicas, strict=True)):
        point = random.choice([each for each in POINTS if room[each] >= number])
        room[point] -= number
        start_s = random.uniform(0.0, LATEST_S)
        drawn.append(Application(f"app-{i}", image, number, start_s, point))
    return tuple(sorted(drawn, key=lambda application: application.start_s))


def _base_layers(base: str) -> dict[str, float]:
    """Digest -> MB. Bases with equal first layers share these."""
    sizes = _BASES.get(base, ())
    return {"/".join(f"{mb:g}" for mb in sizes[: i + 1]): sizes[i] for i in range(len(sizes))}


def _scale_factors() -> tuple[float, float]:
    """The factors of shared and own layers that give both of the paper's totals."""
    own = fsum(fsum(sizes) for _, sizes in _IMAGES.values())
    shared = fsum(fsum(_base_layers(base).values()) for base, _ in _IMAGES.values())
    once = {d: mb for base, _ in _IMAGES.values() for d, mb in _base_layers(base).items()}
    factor = (TOTAL_MB - UNIQUE_MB) / (shared - fsum(once.values()))
    return factor, (TOTAL_MB - factor * shared) / own


def _draw_with_sum(random: Random, count: int, between: tuple[int, int], total: int) -> list[int]:
    drawn = [random.randint(*between) for _ in range(count)]
    while sum(drawn) != total:
        at, step = random.randrange(count), 1 if sum(drawn) < total else -1
        if between[0] <= drawn[at] + step <= between[1]:
            drawn[at] += step
    return drawn


class Setup(NamedTuple):
    """What the ablations change."""

    # Whether an application goes to the nodes of its point of presence only, or to any node.
    by_region: bool = True
    # Whether bandwidth(c) is what one more pull would get at the moment, or the capacity of the
    # node's link.
    bandwidth_now: bool = True
    pulls_at_once: int = 1  # of a node


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    Of each replica, in the order of their scheduling: start_s, when; provision_s, the time that its
    node's link needs for the layers that the node lacks, if it pulls nothing else; with_waits_s,
    the time until its last layer is there; is_new, whether no node that it could go to had its
    image when its application came. Of each node: replicas, stored_mb.
    """

    start_s: Sequence[float]
    provision_s: Sequence[float]
    with_waits_s: Sequence[float]
    is_new: Sequence[bool]
    replicas: Sequence[int]
    stored_mb: Sequence[float]
    # hits, misses: numbers of layers.
    hits: int
    misses: int


class _Group:
    """Nodes that an application can go to: their stores, and the view after the last placement."""

    def __init__(self, stores: Mapping[str, NodeStore], setup: Setup) -> None:
        self.stores = list(stores.values())
        self.view = view_of([Node(name, NODE_ALLOCATABLE, tier="edge") for name in stores])
        self._bandwidth_now = setup.bandwidth_now

    def advance(self, now_s: float, images: ImageTable) -> None:
        """Let time pass, and show the layers that the nodes have and await now."""
        for store in self.stores:
            store.advance(now_s)
        nodes = [
            node
            if len(node.image_layers) == len(store.arrived_s)  # it never loses one
            else replace(node, image_layers=frozenset(store.arrived_s))
            for node, store in zip(self.view.nodes, self.stores, strict=True)
        ]
        waiting = {at: store.waiting for at, store in enumerate(self.stores) if store.waiting}
        queued: dict[str, frozenset[int]] = {}
        for at, layers in waiting.items():
            for digest in layers:
                queued[digest] = queued.get(digest, frozenset()) | {at}
        # A started pull counts in full.
        queue_mb = {
            at: fsum(layer.size_mb for layer in layers.values()) for at, layers in waiting.items()
        }
        mbps = [each.left_mbps if self._bandwidth_now else each.mbps for each in self.stores]
        self.view = replace(
            self.view,
            table=NodeTable(nodes),
            metrics=replace(self.view.metrics, bandwidth_mbps=np.array(mbps)),
            placed_in_run=np.zeros_like(self.view.placed_in_run),
            images=replace(images, queued=queued, queue_mb=queue_mb),
        )

    def place(
        self, pod: Pod, layers: Sequence[Layer], strategy: Strategy, random: Random
    ) -> tuple[NodeStore, float]:
        """Place the pod and pull its layers; its node's store, and the MB to pull. Raises
        ValueError."""
        decision = decide(self.view, pod, Rule(strategy, _FILTERS, random, letter=True))
        if decision.node is None:
            raise ValueError(f"{pod.key}: {decision.why}")
        view = assume(self.view, decision, strategy)
        at = view.table.index[decision.node]
        store = self.stores[at]
        missing_mb = store.pull(layers)
        if self._bandwidth_now:
            mbps = view.metrics.bandwidth_mbps.copy()
            mbps[at] = store.left_mbps
            view = replace(view, metrics=replace(view.metrics, bandwidth_mbps=mbps))
        self.view = view
        return store, missing_mb


def simulate(
    links_mbps: Mapping[str, float],
    images: Sequence[Image],
    applications: Sequence[Application],
    strategy: Strategy,
    random: Random,
    setup: Setup = Setup(),  # noqa: B008  # it is immutable
) -> Outcome:
    """Run until the last replica is provisioned. links_mbps: of each node. applications: in order
    of time."""
    stores = {node: NodeStore(mbps, setup.pulls_at_once) for node, mbps in links_mbps.items()}
    if setup.by_region:
        groups = {
            point: _Group(
                {node: stores[node] for node in stores if node.startswith(f"{point.lower()}-")},
                setup,
            )
            for point in POINTS
        }
    else:
        groups = dict.fromkeys(POINTS, _Group(stores, setup))
    catalogue = ImageTable.of(images)
    provision_s, is_new = [], []
    placed: list[tuple[Application, NodeStore]] = []
    for application in applications:
        group, layers = groups[application.point], application.image.layers
        group.advance(application.start_s, catalogue)
        digests = {layer.digest for layer in layers}
        new = not any(digests <= store.arrived_s.keys() for store in group.stores)
        for pod in _pods(application):
            store, missing_mb = group.place(pod, layers, strategy, random)
            provision_s.append(missing_mb * 8 / store.mbps)
            is_new.append(new)
            placed.append((application, store))
    for store in stores.values():
        store.advance()
    ends_s = [
        max(store.arrived_s[layer.digest] for layer in application.image.layers)
        for application, store in placed
    ]
    count = Counter(store for _, store in placed)
    return Outcome(
        start_s=[application.start_s for application, _ in placed],
        provision_s=provision_s,
        with_waits_s=[
            max(end_s - application.start_s, 0.0)
            for end_s, (application, _) in zip(ends_s, placed, strict=True)
        ],
        is_new=is_new,
        replicas=[count[store] for store in stores.values()],
        stored_mb=[store.stored_mb for store in stores.values()],
        hits=sum(store.hits for store in stores.values()),
        misses=sum(store.misses for store in stores.values()),
    )


def _pods(application: Application) -> list[Pod]:
    return [
        Pod(
            "default",
            f"{application.name}-{i}",
            requests=POD_REQUESTS,
            images=(application.image.name,),
            labels={"app": application.name},
        )
        for i in range(application.replicas)
    ]
