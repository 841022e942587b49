"""Random clusters by seed: boards of different sizes, services of several replicas, users on all
boards.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cycle import decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Link, Node, Pod, PodAnnotations
from leadline_controller.framework.view import METRICS, ClusterView, NodeMetrics
from leadline_controller.strategies.chance import Chance

from leadline_experiments.models.cluster import view_of

_MIB = 1024**2
_SERVICES = 5
_RATIOS = (0.25, 0.5, 0.75, 1.0)
_LINK_MBPS = 100.0


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
    for decision, after in decide_in_turn(view, drawn[: pods // 2], FILTERS, Chance(), random):
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
