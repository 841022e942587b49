"""The strategies' optimality gaps on random clusters by seed: boards of different sizes, services
of several replicas, users on all boards.

A strategy places the pods as the scheduler does, one after the other or in one batch, with all
filters. The paper's objective measures the placement.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import NamedTuple

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import BatchStrategy, Running, decide_batch
from leadline_controller.framework.cycle import Rule, Strategy, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Link, Node, Pod, PodAnnotations
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.chance import Chance
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm

from leadline_experiments.models.cluster import view_of
from leadline_experiments.optimum import dacs, kubedsm
from leadline_experiments.optimum.programme import Optimum
from leadline_experiments.result import Progress, Row

TABLE = "Optimum, random clusters"
_Size = tuple[int, int]  # nodes, pods
SIZES: Sequence[_Size] = ((5, 10), (10, 20), (20, 40))
CLUSTERS = 6  # of each size
SMALL_CLUSTERS = 100
_SMALL: _Size = (4, 7)
DELAY, QOS, PENDING = "average_delay_s", "qos", "pods_pending"
_MIB = 1024**2
_SERVICES = 5
_RATIOS = (0.25, 0.5, 0.75, 1.0)
_LINK_MBPS = 100.0


class Gap(NamedTuple):
    """A strategy's objective beside the best, on one cluster."""

    ours: float | None  # None if pods are pending, so that the two cannot be compared
    best: Optimum
    pending: int = 0  # the number of these pods


def gap_rows(
    table: str, case: str, strategy: str, option: str, metric: str, gaps: Iterable[Gap]
) -> Iterator[Row]:
    """The means over the clusters, and the pending pods if there are any. The optimum is None
    unless all of them were proved in time."""
    gaps = list(gaps)
    pairs = [(gap.ours, gap.best) for gap in gaps if gap.ours is not None]
    if pairs:
        proved = all(best.proved for _, best in pairs)
        optimum = fmean(best.value for _, best in pairs) if proved else None
        mean = fmean(ours for ours, _ in pairs)
        yield Row(table, case, strategy, option, metric, None, mean, optimum)
    if any(gap.pending for gap in gaps):
        pending = fmean(gap.pending for gap in gaps)
        yield Row(table, case, strategy, option, PENDING, None, pending, 0.0)


def place(
    view: ClusterView,
    pods: Sequence[Pod],
    running: Sequence[Running],
    strategy: Strategy,
    random: Random,
) -> dict[str, str]:
    """The strategy's placement of new and running pods: pod's key -> node's name; pending pods are
    missing."""
    names = view.table.names
    placement = {pod.key: names[node] for pod, node in running}
    if isinstance(strategy, BatchStrategy):
        decisions, plan, _ = decide_batch(
            view, pods, running, Rule(strategy, FILTERS, random, letter=True)
        )
        placement.update((move.pod.key, names[move.target]) for move in plan.moves)
    else:
        decisions = [
            each
            for each, _ in decide_in_turn(view, pods, Rule(strategy, FILTERS, random, letter=True))
        ]
    placement.update((each.pod.key, each.node) for each in decisions if each.node is not None)
    return placement


def dacs_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """Every strategy's average delay (DACS Eq. 3) beside the optimum."""
    objective = Dacs()

    def gaps(size: _Size, number: int) -> Iterator[tuple[str, Gap]]:
        view, pods = edge_cluster(*size, seed * CLUSTERS + number)
        best = dacs.best(view, pods, objective, FILTERS)
        delays = dacs.Delays.of(view, pods, objective)
        for name, strategy in STRATEGIES.items():
            ties = Random(f"ties {seed} {number}")
            placement = place(view, pods, (), strategy(), ties)
            yield name, Gap(delays.average_s(placement), best, len(pods) - len(placement))

    return _rows(STRATEGIES, gaps, DELAY, progress)


def kubedsm_rows(seed: int, progress: Progress) -> Sequence[Row]:
    """The quality of service (KubeDSM Eq. 1) of that paper's strategies, and of kube-default, which
    does not distinguish edge and cloud, beside the optimum."""
    names = [name for name, each in STRATEGIES.items() if "KubeDSM" in each.paper]
    names.append("kube-default")
    objective = KubeDsm()

    def gaps(size: _Size, number: int) -> Iterator[tuple[str, Gap]]:
        view, new, running = cloud_assisted(*size, seed * CLUSTERS + number)
        pods = [*new, *(pod for pod, _ in running)]
        best = kubedsm.best(view, new, running, objective, FILTERS)
        for name in names:
            ties = Random(f"ties {seed} {number}")
            placement = place(view, new, running, STRATEGIES[name](), ties)
            pending = len(pods) - len(placement)
            ours = None if pending else kubedsm.quality(view, pods, objective, placement)
            yield name, Gap(ours, best, pending)

    return _rows(names, gaps, QOS, progress)


def kubedsm_counts(seed: int) -> Iterator[Row]:
    """On how many small clusters one plan of KubeDSM reaches the highest quality of service of any
    placement with any migrations (Eq. 9), and with how many moves it does."""
    variants = {
        "suggest=0": KubeDsm(suggest=0),
        "room=free": KubeDsm(),
        "room=capacity": KubeDsm(room="capacity"),
    }
    optimal, moves, fewest = Counter[str](), Counter[str](), Counter[str]()
    for number in range(SMALL_CLUSTERS):
        view, new, running = cloud_assisted(*_SMALL, seed * SMALL_CLUSTERS + number)
        pods = [*new, *(pod for pod, _ in running)]
        best = kubedsm.best(view, new, running, KubeDsm(), FILTERS)
        before = {pod.key: view.table.names[node] for pod, node in running}
        for option, strategy in variants.items():
            placement = place(view, new, running, strategy, Random(0))
            reached = kubedsm.quality(view, pods, KubeDsm(), placement)
            if reached >= best.value - 1e-6:
                moved = sum(placement[key] != node for key, node in before.items())
                optimal[option] += 1
                moves[option] += moved
                fewest[option] += int(best.migrations or 0)
    case = f"{SMALL_CLUSTERS} clusters of {_SMALL[0]} nodes, {_SMALL[1]} pods"
    for option in variants:
        labels = ("Optimum, small clusters", case, "kubedsm", option)
        yield Row(*labels, "optimal", None, optimal[option], SMALL_CLUSTERS)
        yield Row(*labels, "moves where optimal", None, moves[option], fewest[option])


def _rows(
    names: Collection[str],
    gaps: Callable[[_Size, int], Iterable[tuple[str, Gap]]],
    metric: str,
    progress: Progress,
) -> Sequence[Row]:
    """gaps: that of each strategy on the cluster with this size and number."""
    found: dict[tuple[_Size, str], list[Gap]] = {(size, n): [] for size in SIZES for n in names}
    cases = [(size, number) for size in SIZES for number in range(CLUSTERS)]
    for done, (size, number) in enumerate(cases, start=1):
        for name, gap in gaps(size, number):
            found[size, name].append(gap)
        progress(done / len(cases))
    return [
        row
        for ((nodes, pods), name), each in found.items()
        for row in gap_rows(TABLE, f"{nodes} nodes, {pods} pods", name, "", metric, each)
    ]


def edge_cluster(nodes: int, pods: int, seed: int) -> tuple[ClusterView, list[Pod]]:
    """Boards at random positions, and pods for users at the boards. Round trips follow the
    distance, boards have 1 to 4 cores, and the pods request about half of the CPU."""
    random = Random(f"edge {nodes} {pods} {seed}")
    boards = [_draw_board(random, f"n{i}") for i in range(nodes)]
    positions = [(random.random(), random.random()) for _ in boards]
    links = [
        Link(f"n{i}", f"n{j}", 1 + 200 * float(np.hypot(a[0] - b[0], a[1] - b[1])))
        for i, a in enumerate(positions)
        for j, b in enumerate(positions[:i])
    ]
    share = sum(board.allocatable[CPU] for board in boards) / 2 / pods
    services = [_draw_service(random, f"s{i}", share) for i in range(_SERVICES)]
    drawn = [_draw_pod(random, services, number, users_at=nodes) for number in range(pods)]
    return _view(random, boards, links), drawn


def cloud_assisted(
    nodes: int, pods: int, seed: int
) -> tuple[ClusterView, list[Pod], list[Running]]:
    """An edge that is too small for all pods, and one large cloud node. Half of the pods run
    already on random nodes; the others are new."""
    random = Random(f"cloud {nodes} {pods} {seed}")
    boards = [_draw_board(random, f"n{i}") for i in range(nodes - 1)]
    share = sum(board.allocatable[CPU] for board in boards) / pods * 1.3
    services = [_draw_service(random, f"s{i}", share) for i in range(_SERVICES)]
    amounts = {CPU: 4000 * pods, MEMORY: 4096 * _MIB * pods, PODS: 4 * pods}
    view = _view(random, [*boards, Node("cloud", amounts, tier="cloud")], [])
    drawn = [_draw_pod(random, services, number) for number in range(pods)]
    running: list[Running] = []
    for decision, after in decide_in_turn(
        view, drawn[: pods // 2], Rule(Chance(), FILTERS, random)
    ):
        if decision.node is not None:
            running.append((decision.pod, view.table.index[decision.node]))
            view = after
    return view, drawn[pods // 2 :], running


def _draw_board(random: Random, name: str) -> Node:
    cores, gib = random.choice([1, 2, 4]), random.choice([1, 2, 4])
    amounts = {CPU: cores * 1000, MEMORY: gib * 1024 * _MIB, PODS: 110}
    return Node(name, amounts, tier="edge", bandwidth_mbps=_LINK_MBPS)


def _draw_service(random: Random, name: str, share_milli: float) -> Pod:
    """What the pods of a service have in common."""
    cpu = int(max(round(share_milli * random.uniform(0.5, 1.5), -1), 10))
    memory = random.choice([64, 128, 192, 256]) * _MIB
    return Pod(
        "default",
        name,
        requests={CPU: cpu, MEMORY: memory, PODS: 1},
        limits={CPU: cpu * random.choice([1, 2, 4])},
        labels={"app": name},
        annotations=PodAnnotations(
            data_mb=random.choice([0.5, 1.0, 2.0]), qos_edge_ratio=random.choice(_RATIOS)
        ),
    )


def _draw_pod(random: Random, services: Sequence[Pod], number: int, users_at: int = 0) -> Pod:
    """A pod of one of the services. users_at: the boards that its user may be at; 0: no user."""
    pod = random.choice(services)
    annotations = pod.annotations
    if users_at:
        user_node, mbps = f"n{random.randrange(users_at)}", _LINK_MBPS / 20
        annotations = replace(annotations, user_node=user_node, bandwidth_mbps=mbps)
    return replace(pod, name=f"{pod.name}-{number}", annotations=annotations)


def _view(random: Random, nodes: Sequence[Node], links: Sequence[Link]) -> ClusterView:
    measured = {name: np.array([random.uniform(1, 90) for _ in nodes]) for name in METRICS}
    return view_of(nodes, links, metrics=NodeMetrics(**measured))
