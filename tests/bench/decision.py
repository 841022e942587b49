"""How long one decision takes, over clusters of 100, 1,000 and 10,000 nodes.

A fresh view for each decision, as the controller makes one: the nodes and what is cached with
them stay, requests and metrics are new. Pods differ in what they ask for and demand.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assigned_pods import AssignedPods
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.cluster_objects import PodSelector, PodSelectors
from leadline_controller.framework.cycle import Filter, Prefer, Rule, Strategy, decide
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    DeclaredPeer,
    Image,
    Layer,
    Link,
    Node,
    Owner,
    Pod,
    PodAnnotations,
    Taint,
)
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.options import build
from leadline_controller.framework.ports import Relisted
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.traffic import PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.preferences import rule
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

SIZES = (100, 1000, 10_000)
PEERS = 5
GIB = 1024**3
IMAGES = [
    Image(f"app-{i}:1", (Layer("base", 30.0), *(Layer(f"{i}-{j}", 5.0 * j) for j in range(1, 5))))
    for i in range(5)
]


def cluster(size: int) -> ClusterView:
    """Boards and a few servers with zones and five measured links each. A tenth is tainted, and
    every fiftieth has no recent report."""
    random = Random(size)
    table = NodeTable([_node(random, i) for i in range(size)])
    draw = np.random.default_rng(size)
    silent = np.arange(size) % 50 == 49
    columns = {name: np.where(silent, np.nan, draw.uniform(0, 100, size)) for name in METRICS}
    links = [
        Link(f"node-{i}", f"node-{(i + step) % size}", random.uniform(0.3, 40))
        for i in range(size)
        for step in range(1, PEERS + 1)
    ]
    return ClusterView(
        table=table,
        requested={
            CPU: draw.integers(0, 3500, size),
            MEMORY: draw.integers(0, 6 * GIB, size),
            PODS: draw.integers(0, 60, size),
        },
        metrics=NodeMetrics(**columns),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=draw.uniform(0, 50, size),
        placed_in_run=draw.integers(0, 3, size),
        images=ImageTable.of(IMAGES),
    )


def _node(random: Random, number: int) -> Node:
    taints = (Taint("dedicated", "camera", "NoSchedule"),) if number % 10 == 0 else ()
    board = random.choice(["pi4", "pi5"])
    return Node(
        f"node-{number}",
        allocatable={CPU: random.choice([4000, 8000]), MEMORY: 8 * GIB, PODS: 110},
        labels={
            "kubernetes.io/hostname": f"node-{number}",
            "topology.kubernetes.io/zone": f"z{number % 8}",
            "board": board,
            "leadline.dev/class": board,
        },
        taints=taints,
        tier="cloud" if number % 20 == 0 else "edge",
        bandwidth_mbps=random.choice([None, 100.0, 1000.0]),
        image_layers=frozenset(layer.digest for layer in random.choice(IMAGES).layers),
        registry_mbps=random.choice([None, 20.0, 100.0]),
    )


def pods(size: int) -> list[Pod]:
    """Pods of a few kinds, with users all over the cluster."""
    return [
        read_pod(
            {
                "metadata": {
                    "name": f"pod-{i}",
                    "labels": {"app": f"app-{i % 5}"},
                    "annotations": {
                        "leadline.dev/user-node": f"node-{(i * 37) % size}",
                        "leadline.dev/data-mb": str(1 + i % 7),
                        "leadline.dev/bandwidth-mbps": str(i % 3),
                        "leadline.dev/profile-ms": '{"pi4": 80, "pi5": 40}',
                    },
                },
                "spec": {
                    "nodeSelector": {"board": "pi5"} if i % 4 == 0 else {},
                    "containers": [
                        {
                            "image": f"app-{i % 5}:1",
                            "resources": {"requests": {"cpu": f"{100 + i}m", "memory": "64Mi"}},
                        }
                    ],
                },
            }
        )
        for i in range(20)
    ]


def crowded(view: ClusterView) -> ClusterView:
    """The view with ten pods a node, a tenth of which repels its own kind, of five ReplicaSets."""
    random, size = Random(0), len(view)
    kinds = [replace(each, owner=_owner(i % 5)) for i, each in enumerate(preferring(size))]
    there = [(random.choice(kinds), random.randrange(size)) for _ in range(10 * size)]
    return replace(
        view,
        assigned_pods=AssignedPods().with_pods(there),
        pod_selectors=PodSelectors(
            PodSelector(
                "ReplicaSet", "default", f"app-{i}", (Requirement("app", "In", (f"app-{i}",)),)
            )
            for i in range(5)
        ),
    )


def _owner(number: int) -> Owner:
    return Owner("ReplicaSet", f"app-{number}", "uid", "apps/v1")


def preferring(size: int) -> list[Pod]:
    """The pods, spread by default; every tenth prefers boards, and to be apart from its kind."""
    weighted = "preferredDuringSchedulingIgnoredDuringExecution"
    fast = {"matchExpressions": [{"key": "board", "operator": "In", "values": ["pi5"]}]}
    found = []
    for i, each in enumerate(pods(size)):
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": f"app-{i % 5}"}},
        }
        affinity = {
            "nodeAffinity": {weighted: [{"weight": 10, "preference": fast}]},
            "podAntiAffinity": {weighted: [{"weight": 50, "podAffinityTerm": apart}]},
        }
        manifest = {
            "metadata": {"name": f"pod-{i}", "labels": {"app": f"app-{i % 5}"}},
            "spec": {"affinity": affinity if i % 10 == 0 else {}},
        }
        preferences = read_pod(manifest).preferences
        found.append(replace(each, preferences=preferences, owner=_owner(i % 5)))
    return found


def talking(view: ClusterView, size: int) -> tuple[ClusterView, list[Pod]]:
    """The view with 40 services of five pods, and pods that declare eight of them as peers and
    were counted to talk to sixteen."""
    names = [f"peer-{number}" for number in range(40)]
    there = [
        (Pod("default", f"{name}-{i}", labels={"app": name}), (7 * i + number) % size)
        for number, name in enumerate(names)
        for i in range(5)
    ]
    annotations = PodAnnotations(peers=tuple(DeclaredPeer(name, 2.0, 5.0) for name in names[:8]))
    wanted = [replace(each, annotations=annotations) for each in preferring(size)]
    counted = tuple(
        PeerTraffic(workload_of(pod), f"default/{name}", 2.0, 1.0, 9.0)
        for (pod, _), name in zip(there[20::5], names[4:20], strict=False)
    )
    selectors = (
        PodSelector("Service", "default", name, (Requirement("app", "In", (name,)),))
        for name in names
    )
    return replace(
        view,
        assigned_pods=AssignedPods().with_pods(there),
        pod_selectors=PodSelectors(selectors),
        traffic=Traffic({workload_of(each): counted for each in wanted}),
    ), wanted


def milliseconds(
    decision: Callable[[ClusterView, Pod], object],
    view: ClusterView,
    wanted: list[Pod],
    percent: float = 50.0,
) -> float:
    """The median time of one decision, or another percentile."""
    size, times = len(view), []
    for round_ in range(max(5, 20_000 // size // len(wanted) * 2)):
        for pod in wanted:
            fresh = replace(view)
            start = time.perf_counter()
            decision(fresh, pod)
            if round_ > 0:  # the first round fills the caches that nodes keep
                times.append(time.perf_counter() - start)
    return float(np.percentile(times, percent)) * 1000


def rows() -> Iterator[tuple[str, list[float]]]:
    """The name of a measurement, and its milliseconds for each of SIZES."""
    for name, type_ in STRATEGIES.items():
        strategy: Strategy = build(type_, {})
        for what, filters in (("alone", {}), ("with filters", FILTERS)):
            one = _decision(strategy, filters)
            yield f"{name} {what}", [milliseconds(one, cluster(n), pods(n)) for n in SIZES]
    strategy = build(STRATEGIES["dacs"], {})
    for what, filters in (("alone", {}), ("with filters", FILTERS)):
        yield f"leadline / dacs {what}", [_ratio(n, filters) for n in SIZES]
    for what, prefer in (("without", None), ("with", rule("on"))):
        one = _decision(strategy, FILTERS, prefer)
        for percent in (50.0, 99.0):
            name = f"dacs {what} preferences, p{percent:.0f}"
            times = [milliseconds(one, crowded(cluster(n)), preferring(n), percent) for n in SIZES]
            yield name, times
    one = _decision(strategy, FILTERS, rule("on"))
    times = [milliseconds(one, *talking(cluster(n), n)) for n in SIZES]
    yield "dacs with 20 peers of each pod", times


def _ratio(size: int, filters: Mapping[str, Filter]) -> float:
    """How many times as much CPU time leadline takes as dacs for the same pods, in turns: the aim
    is 3."""
    view, rounds = cluster(size), 3 if size > 1000 else 8
    decisions = [_decision(build(STRATEGIES[name], {}), filters) for name in ("leadline", "dacs")]
    times: list[list[float]] = [[], []]
    for round_ in range(rounds):
        for pod in pods(size):
            for decision, taken in zip(decisions, times, strict=True):
                fresh = replace(view)
                start = time.process_time()
                decision(fresh, pod)
                if round_ > 0:
                    taken.append(time.process_time() - start)
    ours, theirs = (float(np.median(each)) for each in times)
    return ours / theirs


def assumed_load_us(size: int) -> Iterator[tuple[str, float]]:
    """What assumed load adds to decisions of a burst, median microseconds: to each view of the
    controller's state, to each placed pod, and to each placement within a view."""
    state, telemetry = ClusterState(), TelemetryState(TimesToLive())
    nodes = tuple(_node(Random(size), i) for i in range(size))
    state.apply(Relisted(nodes, (), ()))
    telemetry.set_members({each.name for each in nodes}, 0.0)
    values = dict.fromkeys(METRICS[:-1], 10.0)
    for each in nodes:
        telemetry.report(each.name, Stamp(bytes(16), 1, 1, 1, 0.0), BoardReading(values))
    recent, table, requested_mbps = state.recent, state.table, np.zeros(size)
    times: dict[str, list[float]] = {"put": [], "look": [], "placed": [], "without": []}

    def timed(what: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        times[what].append(time.perf_counter() - start)

    for i in range(2000):
        pod = Pod("default", f"pod-{i}", f"uid-{i}", {CPU: 10, PODS: 1}, labels={"app": "web"})
        at = i * 37 % size
        timed("put", partial(recent.put, pod, table.names[at]))
        timed("look", lambda: recent.look(table, telemetry, 1.0, requested_mbps))
        view = state.view(telemetry, 1.0)
        plain = replace(view, assumed=None)
        timed("placed", partial(view.with_placement, pod, at))
        timed("without", partial(plain.with_placement, pod, at))
    median = {what: float(np.median(each)) * 1e6 for what, each in times.items()}
    yield "a pod that is placed", median["put"]
    yield "the next view", median["look"]
    yield "a placement within a view", median["placed"] - median["without"]


def _decision(
    strategy: Strategy, filters: Mapping[str, Filter], prefer: Prefer | None = None
) -> Callable[[ClusterView, Pod], object]:
    random = Random(0)
    return lambda view, pod: decide(view, pod, Rule(strategy, filters, random, prefer))


def main() -> None:
    """Print the table."""
    print("one decision, median ms; the aim over 1,000 nodes: 1 alone, 3 with filters")
    print(f"{'':36}" + "".join(f"{size:>10,}" for size in SIZES) + "   nodes; times as long over")
    print(f"{'':36}" + " " * 10 * len(SIZES) + f"   {SIZES[-1] // SIZES[0]} times as many")
    for what, times in rows():
        columns = "".join(f"{each:10.3f}" for each in times)
        print(f"{what:36}{columns}{times[-1] / times[0]:12.1f}", flush=True)
    print("\nassumed load adds, median us; the aim over 1,000 nodes: 10 to a decision")
    found = [dict(assumed_load_us(size)) for size in SIZES]
    for what in found[0]:
        print(f"{what:36}" + "".join(f"{each[what]:10.1f}" for each in found), flush=True)


if __name__ == "__main__":
    main()
