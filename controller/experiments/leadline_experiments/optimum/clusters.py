"""Random clusters by seed: boards of different sizes, services of several replicas, users on all
boards.
"""

from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cycle import decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Link, Node, Pod, PodAnnotations
from leadline_controller.framework.view import (
    METRICS,
    ClusterView,
    LinkTable,
    NodeMetrics,
    NodeTable,
)
from leadline_controller.strategies.chance import Chance

_MIB = 1024**2
_SERVICES = 5
_RATIOS = (0.25, 0.5, 0.75, 1.0)
_LINK_MBPS = 100.0


def edge_cluster(nodes: int, pods: int, seed: int) -> tuple[ClusterView, list[Pod]]:
    """Boards at random positions, and pods for users at the boards. Round trips follow the
    distance, boards have 1 to 4 cores, and the pods request about half of the CPU."""
    random = Random(f"edge {nodes} {pods} {seed}")
    boards = [_draw_board(random, f"n{i}", "edge") for i in range(nodes)]
    positions = [(random.random(), random.random()) for _ in boards]
    links = [
        Link(f"n{i}", f"n{j}", 1 + 200 * float(np.hypot(a[0] - b[0], a[1] - b[1])))
        for i, a in enumerate(positions)
        for j, b in enumerate(positions[:i])
    ]
    share = sum(board.allocatable[CPU] for board in boards) / 2 / pods
    services = [_draw_service(random, share) for _ in range(_SERVICES)]
    drawn = [
        _pod(random.randrange(_SERVICES), number, services, f"n{random.randrange(nodes)}")
        for number in range(pods)
    ]
    return _view(random, boards, links), drawn


def cloud_assisted(
    nodes: int, pods: int, seed: int
) -> tuple[ClusterView, list[Pod], list[Running]]:
    """An edge that is too small for all pods, and one large cloud node. Half of the pods run
    already on random nodes; the others are new."""
    random = Random(f"cloud {nodes} {pods} {seed}")
    boards = [_draw_board(random, f"n{i}", "edge") for i in range(nodes - 1)]
    share = sum(board.allocatable[CPU] for board in boards) / pods * 1.3
    services = [_draw_service(random, share) for _ in range(_SERVICES)]
    amounts = {CPU: 4000 * pods, MEMORY: 4096 * _MIB * pods, PODS: 4 * pods}
    view = _view(random, [*boards, Node("cloud", amounts, tier="cloud")], [])
    drawn = [_pod(random.randrange(_SERVICES), number, services, None) for number in range(pods)]
    running: list[Running] = []
    for decision, after in decide_in_turn(view, drawn[: pods // 2], FILTERS, Chance(), random):
        if decision.node is not None:
            running.append((decision.pod, view.table.index[decision.node]))
            view = after
    return view, drawn[pods // 2 :], running


def _draw_board(random: Random, name: str, tier: str) -> Node:
    amounts = {
        CPU: random.choice([1000, 2000, 4000]),
        MEMORY: random.choice([1024, 2048, 4096]) * _MIB,
        PODS: 110,
    }
    return Node(name, amounts, tier=tier, bandwidth_mbps=_LINK_MBPS)


def _draw_service(random: Random, share_milli: float) -> tuple[int, int, int, float, float]:
    """CPU, memory in MiB, CPU limit, data in MB and QoS target of a service's pods."""
    cpu = max(round(share_milli * random.uniform(0.5, 1.5), -1), 10)
    memory = random.choice([64, 128, 192, 256])
    limit = int(cpu) * random.choice([1, 2, 4])
    return int(cpu), memory, limit, random.choice([0.5, 1.0, 2.0]), random.choice(_RATIOS)


def _pod(
    service: int,
    number: int,
    services: list[tuple[int, int, int, float, float]],
    user_node: str | None,
) -> Pod:
    cpu, memory, limit, data_mb, ratio = services[service]
    return Pod(
        "default",
        f"s{service}-{number}",
        requests={CPU: cpu, MEMORY: memory * _MIB, PODS: 1},
        limits={CPU: limit},
        labels={"app": f"s{service}"},
        annotations=PodAnnotations(
            user_node=user_node,
            data_mb=data_mb,
            bandwidth_mbps=_LINK_MBPS / 20 if user_node else None,
            qos_edge_ratio=ratio,
        ),
    )


def _view(random: Random, nodes: list[Node], links: list[Link]) -> ClusterView:
    table = NodeTable(nodes)
    measured = {name: [random.uniform(1, 90) for _ in nodes] for name in METRICS}
    return ClusterView(
        table=table,
        requested={},
        metrics=NodeMetrics(**{name: np.array(column) for name, column in measured.items()}),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=np.zeros(len(nodes)),
        placed_in_run=np.zeros(len(nodes), dtype=np.int64),
    )
