"""Clusters of boards of which all is known, what a controller is told of them, and how long users
and peers wait for the pods where a strategy puts them.

A cluster is drawn by a seed, and is the same for every strategy, and so is each reading. What a pod
waits is the rule's own formula with the true values, once all pods run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import Expectations, workload_of
from leadline_controller.framework.cycle import Rule, Strategy, decide
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    NODE_PEER,
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
from leadline_controller.framework.services import Service
from leadline_controller.framework.starts import Starts, learn
from leadline_controller.framework.view import RESTART_S, ClusterView, Floats
from leadline_controller.strategies.leadline.terms import out_of_memory, restarts_ms, slowdown
from leadline_controller.telemetry.absences import MEMORY_S, Absences, absence_waits_ms
from leadline_controller.telemetry.throttling import throttling

from leadline_experiments.models.cluster import view_of

BOARDS, PODS_PLACED, SERVICES = 10, 24, 6
CORES, GIB = 4, 4
MASTER = "master"
FEATURES = ("work", "memory", "users", "peers", "risk")
HINDRANCES = ("throttling", "absence")
ALIKE, MIXED, STORAGE = "alike", "mixed", "storage"
_PULLS = "pulls"
# Each scenario has what one term of the rule is about, for `start` one its pulls and one what comes
# after them; one has nothing, and one has all but the latter and the hindrances.
SCENARIOS: Mapping[str, Sequence[str]] = {
    ALIKE: (),
    "start": ("start", _PULLS),
    STORAGE: ("start", STORAGE),
    **{each: (each,) for each in (*FEATURES, *HINDRANCES)},
    MIXED: ("start", _PULLS, *FEATURES),
}
BUSY, MEMORY_USED, RTT_MS, MBPS, PULL_MBPS = 0.1, 0.3, 1.0, 94.0, 50.0
WORK_MS, REQUEST_MEGABITS, LIFE_S = 50.0, 0.25, 3600.0
# Between two pods, until a reading is there, and how much a reading may lie off.
APART_S, STALE_S, NOISE = 30.0, 300.0, 0.02
_OLD = int(STALE_S / APART_S)
# Of the boards that are hindered: how many they are, the times that work takes, how often they go
# away in an hour, and for how long, s.
_HINDERED, _TIMES, _PER_HOUR, _AWAY_S = 0.3, (1.2, 3.0), (0.5, 6.0), (20.0, 120.0)
_MOST_MHZ = 1500.0
# Of the start beside its pull: what it takes on boards with an NVMe SSD, s, and how many times as
# long with an SD card; of what a workload makes of that, and of one start, the scatter; the work of
# a pod of a Job, ms.
START_S, SD_TIMES, _OF_WORKLOAD, _OF_START = (0.6, 2.5), (2.0, 4.0), 0.3, 0.4
JOB_MS = (500.0, 5000.0)
_MIB = 1024**2


class Disturbance(NamedTuple):
    """What is wrong with the readings."""

    name: str
    noise: float = NOISE  # the standard deviation, as a share
    # The shares of readings that have nothing to do with the truth, and that are not there.
    wrong: float = 0.0
    unknown: float = 0.0
    is_stale: bool = False  # by STALE_S: without the loads and the pods since then
    has_liar: bool = False  # a board, drawn as others are, reports the best of itself
    # It also reports the best of its links. Of these a controller believes no board alone
    # (telemetry/bandwidth.py, telemetry/contradictions.py); here it is believed.
    lies_about_links: bool = False


EXACT = Disturbance("as they are", noise=0.0)
USUAL = Disturbance(f"noise of {NOISE:.0%}")
DISTURBANCES = (
    USUAL,
    Disturbance("noise of 30%", noise=0.3),
    Disturbance("10% are wrong", wrong=0.1),
    Disturbance("half are unknown", unknown=0.5),
    Disturbance("5 minutes old", is_stale=True),
    Disturbance("one board reports the best of itself", has_liar=True),
    Disturbance(
        "one board reports the best of its links, too", has_liar=True, lies_about_links=True
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What others use of each board, as a share, shape (n,)."""

    cpu: Floats
    memory: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """The truth about a cluster and its pods. Columns have one entry for each node, the master
    first."""

    nodes: Sequence[Node]
    now: Load
    before: Load  # STALE_S ago
    requested: Mapping[str, Floats]  # by others, base units
    rtt_ms: Floats  # shape (n, n)
    mbps: Floats
    pull_mbps: Floats
    images: Sequence[Image]
    pods: Sequence[Pod]
    use: Mapping[str, tuple[float, float]]  # app -> cores and bytes of one pod on average
    liar: int
    # How many times as long work takes, and what a request waits for a board that is away, ms, each
    # as it is and as the controller makes it of the board's reports and silences.
    throttling: Floats
    absence_ms: Floats
    told_throttling: Sequence[tuple[float, float]]  # with the standard deviation
    told_absence_ms: Floats
    # What a start takes beside its pull, s: app -> of each node; and what earlier ones tell.
    starts_s: Mapping[str, Floats]
    told_starts: Starts


def draw_cluster(scenario: str, seed: int) -> Cluster:
    """A cluster of this scenario."""
    rng = np.random.default_rng([seed, *scenario.encode()])
    features = SCENARIOS[scenario]
    count = 1 + BOARDS
    classes = ["pi4"] * count
    if "work" in features:
        classes = [str(each) for each in rng.choice(["pi3", "pi4", "pi5"], count)]
    if STORAGE in features:
        classes = [str(each) for each in rng.choice(["sd", "nvme"], count)]
    cpu, memory = np.full(count, BUSY), np.full(count, MEMORY_USED)
    if {"work", "risk"} & set(features):
        cpu = rng.uniform(0.05, 0.9, count)
    if "memory" in features:
        memory = np.where(rng.random(count) < 0.4, rng.uniform(0.85, 0.97, count), memory)
    moved = rng.random(count) < 0.25
    before = Load(np.where(moved, rng.permutation(cpu), cpu), memory)
    places = rng.random((count, 2)) * (80.0 if {"users", "peers"} & set(features) else 0.0)
    rtt_ms = RTT_MS + np.hypot(*(places[:, np.newaxis] - places).T)
    np.fill_diagonal(rtt_ms, 0.0)
    mbps, pull_mbps = np.full(count, MBPS), np.full(count, PULL_MBPS)
    if "users" in features:
        mbps = np.exp(rng.uniform(np.log(5.0), np.log(MBPS), count))
    if _PULLS in features:
        pull_mbps = np.exp(rng.uniform(np.log(5.0), np.log(100.0), count))
    liar = 1 + int(rng.integers(BOARDS))
    nodes = [_node(at, classes[at]) for at in range(count)]
    images = [_image(rng, number) for number in range(SERVICES)] if _PULLS in features else []
    services = [_service(rng, features, number) for number in range(SERVICES)]
    numbers = rng.integers(SERVICES, size=PODS_PLACED)
    pods = [
        replace(services[n], name=f"{services[n].name}-{i}", uid=f"{i}")
        for i, n in enumerate(numbers)
    ]
    # Kubernetes knows of a part of the load.
    requested = {
        CPU: np.round(cpu * rng.uniform(0.0, 0.6, count) * CORES * 1000),
        MEMORY: np.round(memory * rng.uniform(0.2, 0.7, count) * GIB * 1024 * _MIB),
        PODS: np.zeros(count),
    }
    use = {service.name: _use(rng, service, _rate(service)) for service in services}
    is_hindered = rng.random(count) < (_HINDERED if set(HINDRANCES) & set(features) else 0.0)
    times, absence_ms, told_absence_ms = np.ones(count), np.zeros(count), np.zeros(count)
    told_times = [(1.0, 0.0)] * count
    for at in np.flatnonzero(is_hindered):
        if "throttling" in features:
            times[at], told_times[at] = _throttled(rng)
        if "absence" in features:
            absence_ms[at], told_absence_ms[at] = _away(rng)
    is_storage = STORAGE in features
    starts_s, told_starts = _starts(rng, services, classes) if is_storage else ({}, Starts())
    return Cluster(
        *(nodes, Load(cpu, memory), before, requested, rtt_ms, mbps, pull_mbps),
        *(images, pods, use, liar),
        *(times, absence_ms, told_times, told_absence_ms),
        *(starts_s, told_starts),
    )


def _starts(
    rng: np.random.Generator, services: Sequence[Pod], classes: Sequence[str]
) -> tuple[Mapping[str, Floats], Starts]:
    """What starts take, and what the controller makes of those before, at most eight of a workload
    on a class, in whole seconds."""
    times = float(rng.uniform(*SD_TIMES))
    true: dict[str, Floats] = {}
    seen: dict[tuple[Service, str], list[float]] = {}
    for service in services:
        usual_s = float(np.exp(rng.uniform(*np.log(START_S))))
        of_class = {"nvme": usual_s, "sd": usual_s * times * float(rng.lognormal(0, _OF_WORKLOAD))}
        true[service.name] = np.array([of_class[each] for each in classes])
        for name, seconds in of_class.items():
            took_s = seconds * rng.lognormal(0.0, _OF_START, int(rng.integers(9)))
            if took_s.size:
                whole_s = np.floor(took_s + rng.random(took_s.size))
                seen[workload_of(service), name] = whole_s.tolist()
    return true, learn(seen)


def _throttled(rng: np.random.Generator) -> tuple[float, tuple[float, float]]:
    """How many times as long work takes on a board, and what the controller makes of its report:
    every other one reports the frequency that it was asked for."""
    times = float(rng.uniform(*_TIMES))
    mhz = _MOST_MHZ / times if rng.random() < 0.5 else _MOST_MHZ
    return times, throttling({"throttled": True}, {"frequency_mhz": mhz}, _MOST_MHZ)


def _away(rng: np.random.Generator) -> tuple[float, float]:
    """What a request waits for a board that restarts at random, and what the controller makes of
    the absences that it saw, ms."""
    per_hour, each_s = rng.uniform(*_PER_HOUR), rng.uniform(*_AWAY_S) + RESTART_S
    seen, at_s = Absences(), float(rng.exponential(3600.0 / per_hour))
    while at_s < 3 * MEMORY_S:
        seen = seen.after(each_s, at_s)
        at_s += float(rng.exponential(3600.0 / per_hour))
    told_ms = absence_waits_ms(np.array([seen]), 3 * MEMORY_S)
    return 1000.0 * per_hour / 3600.0 * each_s**2 / 2.0, float(told_ms[0])


def _node(at: int, board: str) -> Node:
    amounts = {CPU: CORES * 1000, MEMORY: GIB * 1024 * _MIB, PODS: 110}
    if at == 0:
        taint = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
        return Node(MASTER, amounts, taints=(taint,))
    return Node(f"n{at}", amounts, labels={"leadline.dev/class": board})


def _image(rng: np.random.Generator, number: int) -> Image:
    """Three layers, of which services share the first two."""
    shared = Layer("base", 60.0), Layer(f"runtime-{number % 2}", 90.0)
    own = Layer(f"own-{number}", float(rng.uniform(10.0, 200.0)))
    return Image(f"image-{number}", (*shared, own))


def _service(rng: np.random.Generator, features: Sequence[str], number: int) -> Pod:
    """What its pods have in common."""
    is_job = "work" not in features and "start" in features and number % 2 == 0
    work_ms = float(rng.uniform(100.0, 400.0)) if "work" in features else WORK_MS
    profile_ms = {"pi3": 2.5 * work_ms, "pi4": work_ms, "pi5": 0.5 * work_ms}
    if STORAGE in features:
        work_ms = float(np.exp(rng.uniform(*np.log(JOB_MS)))) if is_job else WORK_MS
        profile_ms = dict.fromkeys(("sd", "nvme"), work_ms)
    annotations = PodAnnotations(profile_ms=profile_ms)
    if "users" in features and number % 2:
        annotations = replace(annotations, user_node=f"n{1 + rng.integers(BOARDS)}")
    if "peers" in features and number % 3 == 0:
        name = f"{NODE_PEER}n{1 + rng.integers(BOARDS)}"
        peer = DeclaredPeer(name, mbps=float(rng.uniform(0.5, 4.0)), requests_per_s=2.0)
        annotations = replace(annotations, peers=(peer,))
    memory = int(rng.uniform(32, 256)) * _MIB
    return Pod(
        "default",
        f"s{number}",
        requests={CPU: int(rng.choice([100, 200, 300])), MEMORY: memory, PODS: 1},
        labels={"app": f"s{number}"},
        annotations=annotations,
        images=(f"image-{number}",) if _PULLS in features else (),
        owner=Owner("Job", f"job-{number}", f"job-{number}") if is_job else None,
    )


def _rate(pod: Pod) -> float:
    """Requests a second."""
    return next((peer.requests_per_s or 1.0 for peer in pod.annotations.peers), 1.0)


def _cores(pod: Pod, work_ms: float) -> float:
    """That this much work a second keeps busy; a pod of a Job has one thread."""
    return min(work_ms / 1000, 1.0) if _is_job(pod) else work_ms / 1000


def _is_job(pod: Pod) -> bool:
    return pod.owner is not None


def _use(rng: np.random.Generator, pod: Pod, requests_per_s: float) -> tuple[float, float]:
    """What people request is not what their pods use."""
    said = pod.annotations.profile_ms
    cores = _cores(pod, requests_per_s * said.get("pi4", max(said.values())))
    return cores, pod.requests[MEMORY] * float(rng.uniform(0.5, 1.5))


class Placed(NamedTuple):
    """A pod, the index of its node, and how long it took to start there, s."""

    pod: Pod
    node: int
    start_s: float


def placed_by(
    strategy: Strategy, cluster: Cluster, told: Disturbance, seed: int
) -> Sequence[Placed]:
    """Place the pods one after the other, each by new readings; see `Disturbance`."""
    rng, ties = np.random.default_rng([seed, *told.name.encode()]), Random(seed)
    requested = {name: column.astype(np.int64) for name, column in cluster.requested.items()}
    empty = replace(
        view_of(cluster.nodes, requested=requested), images=ImageTable.of(cluster.images)
    )
    links_ms = _disturbed(rng, told, cluster.rtt_ms, (1.0, 200.0))
    rule, placed = Rule(strategy, FILTERS, ties), list[Placed]()
    for pod in cluster.pods:
        known = placed[:-_OLD] if told.is_stale else placed
        view = _told(empty, cluster, told, _running(cluster, known), links_ms, rng)
        for each in _running(cluster, placed[len(known) :]):
            view = view.with_placement(each.pod, each.node)
        node = view.table.index[decide(view, pod, rule).node or MASTER]
        table, images = empty.table, empty.images
        start_s = float(np.nan_to_num(images.pull(table, pod, cluster.pull_mbps).time_s[node]))
        if cluster.starts_s:
            start_s += float(cluster.starts_s[pod.labels["app"]][node])
        empty = replace(empty, images=images.with_pull(table, pod, node))
        placed.append(Placed(pod, node, start_s))
    return placed


def _told(
    empty: ClusterView,
    cluster: Cluster,
    told: Disturbance,
    shown: Sequence[Placed],
    links_ms: Floats,
    rng: np.random.Generator,
) -> ClusterView:
    """What the controller knows when the readings show these pods."""
    load = _with_pods(cluster, cluster.before if told.is_stale else cluster.now, shown)
    read = partial(_disturbed, rng, told)
    columns = dict.fromkeys(METRICS, np.full(len(cluster.nodes), np.nan))
    columns["cpu_percent"] = np.clip(read(100 * load.cpu, (0.0, 100.0)), 0.0, 100.0)
    columns["memory_percent"] = np.clip(read(100 * load.memory, (0.0, 100.0)), 0.0, 100.0)
    columns["bandwidth_mbps"] = read(cluster.mbps, (1.0, 1000.0))
    pull_mbps, links_ms = read(cluster.pull_mbps, (1.0, 1000.0)), links_ms.copy()
    liar = cluster.liar
    if told.has_liar:
        columns["cpu_percent"][liar] = columns["memory_percent"][liar] = 0.0
    if told.lies_about_links:
        columns["bandwidth_mbps"][liar] = pull_mbps[liar] = 1000.0
        links_ms[liar] = links_ms[:, liar] = 0.1
    errors = np.stack([np.nan_to_num(told.noise * columns[name]) for name in METRICS], axis=1)
    names = empty.table.names
    links = [
        Link(names[a], names[b], float(links_ms[a, b]))
        for a, b in zip(*np.triu_indices(len(names), 1), strict=True)
        if not np.isnan(links_ms[a, b])
    ]
    metrics = replace(NodeMetrics.of(columns), errors=errors)
    if (cluster.throttling > 1.0).any():
        times, deviation = np.array(cluster.told_throttling).T
        metrics = replace(metrics, throttling=times, throttling_error=deviation)
    if cluster.told_absence_ms.any():
        metrics = replace(metrics, absence_ms=cluster.told_absence_ms)
    view = replace(
        empty,
        metrics=metrics,
        links=type(empty.links)(empty.table.index, links),
        images=replace(empty.images, pull_mbps=pull_mbps),
    ).with_assigned([(each.pod, each.node) for each in shown])
    running = {workload_of(each.pod): cluster.use[each.pod.labels["app"]] for each in shown}
    return view.assuming_load(Expectations(running, starts=cluster.told_starts))


def _disturbed(
    rng: np.random.Generator, told: Disturbance, true: Floats, between: tuple[float, float]
) -> Floats:
    """Readings of these values, NaN where unknown. between: what a wrong one may be, uniformly."""
    off = rng.standard_normal(true.shape)
    wrong, at_random = rng.random(true.shape) < told.wrong, rng.uniform(*between, true.shape)
    unknown = rng.random(true.shape) < told.unknown
    read = np.where(wrong, at_random, true * np.maximum(1 + told.noise * off, 0.05))
    return np.where(unknown, np.nan, read)


def _has_ended(cluster: Cluster, placed: Placed) -> bool:
    """When the next pod comes: one of a Job that had nothing to pull."""
    return _is_job(placed.pod) and bool(cluster.starts_s)


def _running(cluster: Cluster, placed: Sequence[Placed]) -> Sequence[Placed]:
    return [each for each in placed if not _has_ended(cluster, each)]


def _with_pods(cluster: Cluster, load: Load, placed: Sequence[Placed]) -> Load:
    """The load with these pods, each with what it really uses."""
    cpu, memory = load.cpu.copy(), load.memory.copy()
    for each in placed:
        app = each.pod.labels["app"]
        cpu[each.node] += _cores(each.pod, _rate(each.pod) * _alone_ms(cluster, each)) / CORES
        memory[each.node] += cluster.use[app][1] / (GIB * 1024 * _MIB)
    return Load(cpu, memory)


def _alone_ms(cluster: Cluster, placed: Placed) -> float:
    board = cluster.nodes[placed.node].labels["leadline.dev/class"]
    return placed.pod.annotations.profile_ms[board] * float(cluster.throttling[placed.node])


def waits_ms(cluster: Cluster, placed: Sequence[Placed]) -> Iterator[float]:
    """What a request to each pod waits, ms, by the rule's formula and the true values."""
    beside = _with_pods(cluster, cluster.now, _running(cluster, placed))
    index = {node.name: at for at, node in enumerate(cluster.nodes)}
    for each in placed:
        said, node, rate = each.pod.annotations, each.node, _rate(each.pod)
        load = _with_pods(cluster, beside, [each]) if _has_ended(cluster, each) else beside
        factor = slowdown(load.cpu, np.full(load.cpu.shape, float(CORES)))
        memory_ms = restarts_ms(out_of_memory(load.memory))
        # The kernel gives it the share of a core that it requests.
        most = 1000 / each.pod.requests[CPU]
        wait_ms = _alone_ms(cluster, each) * min(float(factor[node]), most)
        wait_ms += float(memory_ms[node] + cluster.absence_ms[node])
        if said.user_node or not said.peers:
            user = index[said.user_node or MASTER]
            wait_ms += float(cluster.rtt_ms[user, node])
            wait_ms += 1000 * REQUEST_MEGABITS / float(cluster.mbps[node]) if user != node else 0.0
        for peer in said.peers:
            at = index[peer.name.removeprefix(NODE_PEER)]
            wait_ms += float(cluster.rtt_ms[at, node])
            left_mbps = float(min(cluster.mbps[at], cluster.mbps[node]))
            wait_ms += 1000 * peer.mbps / rate / left_mbps if at != node else 0.0
        yield wait_ms + 1000 * each.start_s / (1.0 if _is_job(each.pod) else rate * LIFE_S)


def mean_wait_ms(strategy: Strategy, cluster: Cluster, told: Disturbance, seed: int) -> float:
    """The mean over the pods, where this strategy puts them."""
    return float(np.mean([*waits_ms(cluster, placed_by(strategy, cluster, told, seed))]))
