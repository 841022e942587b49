"""The most quality of service that any placement gives, and of those the one with the fewest
migrations: KubeDSM's problem (Eq. 9), solved exactly.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 1-9.

Maximise the sum over services of F(share of its pods on the edge - Q) (Eq. 1-5), then minimise
the pods that ran already and are elsewhere afterwards (Eq. 6: one each, wherever they go), each
pod on at most one edge node, none meaning the cloud (Eq. 7), within what the edge nodes have
(Eq. 8); the cloud holds any number. Beyond the paper, the filters say which edge nodes a pod
may be on, and a pod that no cloud node would take stays on the edge.

Pods that nothing tells apart are one group, and n[g,k] says how many of group g are on edge
node k. F has a jump and two slopes, but the share takes only as many values as the service has
pods: binaries y[s,e], "e pods of service s are on the edge", with sum_e y[s,e] = 1 and
sum_e e * y[s,e] = the pods of s on the edge, make it linear without any big constant. The second
goal is a second programme: the same one, with the first one's quality as a constraint.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
from leadline_controller.framework.batch import Running
from leadline_controller.framework.cycle import Filter
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Floats, Ints
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.kubedsm.edge_state import Quality
from leadline_controller.strategies.shared.services import service_of
from leadline_controller.strategies.shared.tiers import is_cloud

from leadline_experiments.optimum.feasible import (
    Room,
    reachable,
    refusal,
    room,
    stuck,
)
from leadline_experiments.optimum.programme import (
    TIME_LIMIT_S,
    Optimum,
    Programme,
    Solution,
    Sum,
    Variable,
)

_SLACK = 1e-7  # of the quality, when migrations are minimised
_CLOUD, _NEW = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class _Board:
    """The pods that are decided on and what there is to know of them; one entry a pod.

    home: index of the edge node that the pod is on, or _CLOUD or _NEW. may: shape (pods, nodes),
    never a node of the cloud. leaves: whether the cloud is open to it. service: its index.
    """

    pods: tuple[Pod, ...]
    home: Ints
    may: Bools
    leaves: Bools
    space: Room
    service: Ints

    def moved(self, nodes: Ints) -> Bools:
        """The running pods that are elsewhere, if each is on this edge node or in _CLOUD."""
        moved: Bools = (self.home != _NEW) & (self.home != nodes)
        return moved

    @property
    def groups(self) -> list[list[int]]:
        """Positions of pods that nothing tells apart."""
        found: dict[Hashable, list[int]] = {}
        for j in range(len(self.pods)):
            wants, may = self.space.wants[:, j].tobytes(), self.may[j].tobytes()
            key = int(self.service[j]), int(self.home[j]), bool(self.leaves[j]), wants, may
            found.setdefault(key, []).append(j)
        return list(found.values())


def quality(
    view: ClusterView, pods: Sequence[Pod], kubedsm: KubeDsm, placement: Mapping[str, str]
) -> float:
    """QoS (Eq. 1) of a placement of these pods. placement: pod's key -> node's name; a pod that is
    not in it is not on the edge. A service's target is the highest that its pods state."""
    cloud = is_cloud(view)
    nodes = [placement.get(pod.key) for pod in pods]
    on_edge = [name is not None and not cloud[view.table.index[name]] for name in nodes]
    held = np.bincount(_services(pods), weights=np.array(on_edge, dtype=np.float64))
    return float(_quality(pods, kubedsm).of(held.astype(np.int64)))


def _services(pods: Sequence[Pod]) -> Ints:
    """The index of each pod's service; pods of none stand alone."""
    numbers: dict[Hashable, int] = {}
    keys: list[Hashable] = [service_of(pod) or pod.key for pod in pods]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _quality(pods: Sequence[Pod], kubedsm: KubeDsm) -> Quality:
    """The strategy's own measure, over the services of these pods."""
    services = _services(pods)
    total = np.bincount(services)
    target = np.full(total.size, np.nan)
    for pod, service in zip(pods, services.tolist(), strict=True):
        if pod.hints.qos_edge_ratio is not None:
            target[service] = np.fmax(target[service], pod.hints.qos_edge_ratio)
    target = np.where(np.isnan(target), kubedsm.qos_target, target)
    return Quality(total, target, kubedsm.a, kubedsm.b, kubedsm.gamma)


def best(
    view: ClusterView,
    pending: Sequence[Pod],
    running: Sequence[Running],
    kubedsm: KubeDsm,
    filters: Mapping[str, Filter],
    time_limit_s: float = TIME_LIMIT_S,
) -> Optimum:
    """The placement with the most QoS, and of those the fewest migrations. Its `placement` names
    the pods on the edge; the others are in the cloud. Running pods that are terminating, or
    that could not be placed again, stay where they are."""
    if not pending and not running:
        return Optimum(0.0, {}, "optimal", 0.0)
    problem = stuck(view, pending)
    if problem:
        return Optimum.infeasible(problem)
    movable = [each for each in running if not each[0].terminating and not stuck(view, [each[0]])]
    fixed = [each for each in running if each not in movable]
    board = _board(view, pending, movable, fixed, filters)
    for pod, may, leaves in zip(board.pods, board.may, board.leaves, strict=True):
        if not may.any() and not leaves:
            return Optimum.infeasible(f"pod {pod.key} fits no node of edge or cloud")
    everyone = (*board.pods, *(pod for pod, _ in fixed))
    cloud = is_cloud(view)
    rest = {pod.key: view.table.names[node] for pod, node in fixed if not cloud[node]}
    shares = _Shares.of(everyone, rest, _quality(everyone, kubedsm))
    solution, nodes = _solve(board, shares, time_limit_s)
    if nodes is None:
        why = "the edge can't hold all that must be there"
        why = why if solution.status == "infeasible" else "no time left"
        return Optimum(nan, {}, solution.status, solution.gap, why=why)
    names = view.table.names
    pairs = zip(board.pods, nodes.tolist(), strict=True)
    on_edge = {pod.key: names[node] for pod, node in pairs if node >= 0}
    placement = {**rest, **on_edge}
    why = _refusal(view, board, nodes, on_edge, filters)
    status = "bound" if why and solution.status == "optimal" else solution.status
    value = quality(view, everyone, kubedsm, placement)
    return Optimum(value, placement, status, solution.gap, int(board.moved(nodes).sum()), why)


def _board(
    view: ClusterView,
    pending: Sequence[Pod],
    movable: Sequence[Running],
    fixed: Sequence[Running],
    filters: Mapping[str, Filter],
) -> _Board:
    pods = (*pending, *(pod for pod, _ in movable))
    edge = ~is_cloud(view)
    places = {pod.key: node for pod, node in movable}
    reach = reachable(view, pods, places, filters)
    home = [places.get(pod.key, _NEW) for pod in pods]
    at = np.array([_CLOUD if n >= 0 and not edge[n] else n for n in home], dtype=np.int64)
    leaves = (reach & ~edge).any(axis=1) | (at == _CLOUD)
    services = _services((*pods, *(pod for pod, _ in fixed)))[: len(pods)]
    return _Board(pods, at, reach & edge, leaves, room(view, pods, movable), services)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Per service: how many of its pods are on the edge for good, and F for each number of them
    that might be there, from none to all."""

    fixed: list[int]
    worth: list[list[float]]

    @classmethod
    def of(cls, pods: Sequence[Pod], fixed: Mapping[str, str], quality: Quality) -> "_Shares":
        services = _services(pods)
        there = np.bincount(
            services, weights=np.array([pod.key in fixed for pod in pods], dtype=np.float64)
        )
        steps = np.arange(int(quality.total.max(initial=0)) + 1)[:, np.newaxis]
        worth = quality.each(np.minimum(steps, quality.total))
        sizes = enumerate(quality.total.tolist())
        return cls([int(n) for n in there], [worth[: size + 1, s].tolist() for s, size in sizes])


def _solve(board: _Board, shares: _Shares, time_limit_s: float) -> tuple[Solution, Ints | None]:
    """The edge node of each pod, or _CLOUD, and how that was found."""
    model = _Model(Programme(time_limit_s), board)
    model.place()
    worth = model.serve(shares)
    first = model.programme.minimise(model.programme.total([-1.0 * worth]))
    if not first.values.size:
        return first, None
    reached = model.worth_of(first.values, shares)
    model.programme.add(worth >= reached - _SLACK)
    second = model.programme.minimise(model.migrations(), dict(enumerate(first.values.tolist())))
    values = second.values if second.values.size else first.values
    proved = first.status == second.status == "optimal"
    gap = max(first.gap, second.gap) if second.values.size else first.gap
    return Solution("optimal" if proved else "time limit", gap, values), model.nodes(values)


@dataclass(frozen=True, slots=True)
class _Model:
    """The programme as it grows. held: n[g,k]. counts: y[s,e]."""

    programme: Programme
    board: _Board
    held: dict[tuple[int, int], Variable] = field(default_factory=dict)
    counts: dict[tuple[int, int], Variable] = field(default_factory=dict)

    def place(self) -> None:
        """Eq. 7 and 8."""
        board, total = self.board, self.programme.total
        for g, members in enumerate(board.groups):
            one = members[0]
            for node in np.flatnonzero(board.may[one]).tolist():
                self.held[g, node] = self.programme.integer(len(members))
            on_edge = total(x for (of, _), x in self.held.items() if of == g)
            if board.leaves[one]:
                self.programme.add(on_edge <= len(members))
            else:
                self.programme.add(on_edge == len(members))
        first = [members[0] for members in board.groups]
        for node in sorted({node for _, node in self.held}):
            here = [(first[g], x) for (g, at), x in self.held.items() if at == node]
            for wants, size in zip(board.space.wants, board.space.capacity[:, node], strict=True):
                self.programme.add(total(float(wants[one]) * x for one, x in here) <= float(size))

    def serve(self, shares: _Shares) -> Sum:
        """Eq. 1-5: the quality of service."""
        total = self.programme.total
        service = [int(self.board.service[members[0]]) for members in self.board.groups]
        for s, (fixed, worth) in enumerate(zip(shares.fixed, shares.worth, strict=True)):
            for e in range(len(worth)):
                self.counts[s, e] = self.programme.integer(1)
            chosen = [self.counts[s, e] for e in range(len(worth))]
            self.programme.add(total(chosen) == 1)
            came = total(x for (g, _), x in self.held.items() if service[g] == s)
            self.programme.add(total(e * y for e, y in enumerate(chosen)) - came == fixed)
        return total(shares.worth[s][e] * y for (s, e), y in self.counts.items())

    def worth_of(self, values: Floats, shares: _Shares) -> float:
        """The quality that these values of the variables stand for."""
        held = [key for key, y in self.counts.items() if values[y.index] == 1]
        return sum(shares.worth[s][e] for s, e in held)

    def migrations(self) -> Sum:
        """Eq. 6, up to a constant: those that came from the cloud, less those that stayed."""
        home = [int(self.board.home[members[0]]) for members in self.board.groups]
        came = [x for (g, _), x in self.held.items() if home[g] == _CLOUD]
        stayed = [-1.0 * x for (g, node), x in self.held.items() if home[g] == node]
        return self.programme.total([*came, *stayed])

    def nodes(self, values: Floats) -> Ints:
        """The edge node of each pod, or _CLOUD."""
        nodes = np.full(len(self.board.pods), _CLOUD, dtype=np.int64)
        left = [iter(members) for members in self.board.groups]
        for (g, node), x in self.held.items():
            for _ in range(int(values[x.index])):
                nodes[next(left[g])] = node
        return nodes


def _refusal(
    view: ClusterView,
    board: _Board,
    nodes: Ints,
    on_edge: Mapping[str, str],
    filters: Mapping[str, Filter],
) -> str:
    """What the filters have against the pods that come to an edge node, once all who leave one
    have left."""
    moved = board.moved(nodes)
    for j in np.flatnonzero(moved & (board.home >= 0)).tolist():
        view = view.without_placement(board.pods[j], int(board.home[j]))
    comers = (nodes >= 0) & (moved | (board.home == _NEW))
    return refusal(view, [board.pods[j] for j in np.flatnonzero(comers)], on_edge, filters)
