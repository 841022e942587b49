"""kubedsm: batches placed for the edge, and running pods moved between edge and cloud.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters". Its algorithms are in this package: in decision.py 1 immediateSchedule, 2 suggest,
3 makeDecision (without migration in subset.py), 4 bestFit, 5 freeEdgeAsNeeded and
7 applyDecision; in reorder.py 6 reorderEdge; in match.py 8 match.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.batch import Allowed, BatchPlan, Running
from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.options import OptionError, option
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.strategies.kubedsm.cluster import EdgeView, QosGoals
from leadline_controller.strategies.kubedsm.decision import immediate_schedule, suggest
from leadline_controller.strategies.kubedsm.edge_state import (
    AppliedDecision,
    EdgePod,
    EdgeState,
    MigrationLimits,
)
from leadline_controller.strategies.kubedsm.packing import used_product
from leadline_controller.strategies.shared.tiers import free_share, is_cloud

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class KubeDsm(Strategy):
    """A batch is planned in two steps. First, immediateSchedule places the pending pods without
    migration (Algorithm 1). Then, unless `suggest` is 0, one suggestion may move pods from the
    cloud to the edge, including pods that the first step sent to the cloud, and may migrate
    running pods between edge nodes and to the cloud to make room (Algorithm 2). Without pending
    pods the plan is only a suggestion.

    Nodes of tier "cloud" are the cloud, all others the edge. The paper has one cloud node
    without bounds; here a pod that goes to the cloud gets the cloud node with the largest free
    share, and every step must pass the filters. All requested resources must fit; size (Eq. 11)
    and fragmentation count CPU and memory. Pods with the same labels are replicas of one service
    (strategies/shared/services.py). Q of a service is the largest `leadline.dev/qos-edge-ratio`
    of its pods, or `qos_target`.

    A suggestion checks only the sum of the free resources, so match may leave out pods for which
    others have left the edge. The paper's program applies it anyway; here a suggestion that would
    lower QoS is repeated with one pod less.

    A single pod, without migration, goes to an edge node before the cloud, to the one whose
    product of used fractions grows most (Eq. 13).

    Needs nothing measured. A node of unknown CPU or memory has no total, and is chosen only if
    no node has one.
    """

    name: ClassVar[str] = "kubedsm"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "KubeDSM, Algorithms 1-8"
    needs: ClassVar[tuple[str, ...]] = ()

    m_c2e: float = option(
        5, unit="pods", maximum=10, help="moved from cloud to edge in one suggestion, M_C2E"
    )
    m_er: float = option(
        3, unit="pods", maximum=10, help="reordered within the edge in one suggestion, M_ER"
    )
    a: float = option(1.0, unit="", maximum=1e6, help="penalty per share missing to the target")
    b: float = option(0.1, unit="", maximum=1e6, help="reward per share beyond the target")
    gamma: float = option(10.0, unit="", maximum=1e6, help="reward for reaching the target")
    qos_target: float = option(
        1.0, unit="", maximum=1.0, help="share of a service that should be on the edge, Q"
    )
    suggest: float = option(
        1, unit="", maximum=1, help="0: only place new pods, 1: suggest migrations too"
    )

    def __post_init__(self) -> None:
        if not self.b < self.a < self.gamma:
            raise OptionError("options a, b, gamma: expected b < a < gamma (Eq. 5)")

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """A single pod, without migration: for an edge node 1 plus the growth of its product of
        used fractions, for a cloud node its free share."""
        cloud = is_cloud(view)[candidates]
        growth = _used_product_growth(view, pod, candidates)
        total = np.where(cloud, free_share(view, candidates), 1 + growth)

        def why(at: int) -> str:
            if np.isnan(total[at]):
                return "no candidate's capacity is known"
            if cloud[at]:
                return "no edge node can take it; the cloud node with the most room"
            return "on the edge, where it leaves the least fragmentation"

        parts = {"edge": np.where(cloud, 0.0, 1.0), "packing_growth": growth}
        return Scores(candidates, total, best(total, self.better), why, parts)

    def plan(
        self,
        view: ClusterView,
        pending: Sequence[Pod],
        running: Sequence[Running],
        allowed: Allowed,
    ) -> BatchPlan:
        """Immediate scheduling of the pending pods, then one suggestion."""
        goals = QosGoals(self.a, self.b, self.gamma, self.qos_target)
        edge_view = EdgeView(view, pending, running, allowed, goals, migrate=bool(self.suggest))
        placed = immediate_schedule(edge_view.state(movable=False), edge_view.new)
        if not self.suggest:
            return edge_view.to_plan(placed, None)
        waiting = (*placed.to_cloud, *edge_view.in_cloud)
        state = edge_view.state(movable=True)
        for pod, node in placed.placed:
            state = state.with_pod(pod, node)
        return edge_view.to_plan(placed, self._suggestion(state, waiting))

    def _suggestion(self, state: EdgeState, waiting: Sequence[EdgePod]) -> AppliedDecision:
        """The suggestion for the most pods that does not lower QoS."""
        before = float(state.quality.of(state.on_edge))
        for most in range(int(self.m_c2e), 0, -1):
            outcome = suggest(state, waiting, MigrationLimits(most, int(self.m_er)))
            if float(state.quality.of(outcome.state.on_edge)) >= before - _TOLERANCE:
                return outcome
        return suggest(state, waiting, MigrationLimits(0, int(self.m_er)))


def _used_product_growth(view: ClusterView, pod: Pod, nodes: Ints) -> Floats:
    """Growth of the product of used fractions with the pod, shape (len(nodes),); NaN for a node
    without CPU or memory."""
    capacity = np.array([view.table.allocatable(name)[nodes] for name in (CPU, MEMORY)]).T
    used = np.array([view.requested_of(name)[nodes] for name in (CPU, MEMORY)]).T
    requests = np.array([pod.requests.get(name, 0) for name in (CPU, MEMORY)])
    growth = used_product(capacity, used + requests) - used_product(capacity, used)
    return np.where((capacity > 0).all(axis=1), growth, np.nan)
