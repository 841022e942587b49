"""Which pods belong on the edge: KubeDSM's quality of service and its decisions, pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 1-12, Algorithms 1-5 and 7. The functions have the paper's names; what is an
event or a plan's step there is data here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline_controller.core.edge_packing import (
    EXACT_STATES,
    NOWHERE,
    Edge,
    fits_in,
    kinds_of,
    lattice,
    match,
    reorder_edge,
    sets,
)
from leadline_controller.core.view import Bools, Floats, Ints

_ALIKE = 1e-9
_LEAST_SIZE = 1e-9  # of a pod that asks for nothing, so that a gain per size stays finite
_FRONT = 256


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """QoS(u) (Eq. 1-5). total: pods of each service. target: Q of each, the share that should
    be on the edge. a, b, gamma: the slopes below and above it and the reward for reaching it,
    0 <= b < a << gamma. Columns have shape (services,)."""

    total: Ints
    target: Floats
    a: float
    b: float
    gamma: float

    def of(self, on_edge: Ints) -> Floats:
        """QoS with so many pods of each service on the edge, shape (..., services) to (...)."""
        quality: Floats = self.each(on_edge).sum(axis=-1)
        return quality

    def each(self, on_edge: Ints) -> Floats:
        """F(Delta) of every service (Eq. 2-4), of the same shape."""
        delta = on_edge / np.maximum(self.total, 1) - self.target
        # A share that should equal its target can miss it by a rounding.
        return np.where(delta < -_ALIKE, self.a * delta, self.b * delta + self.gamma)


@dataclass(frozen=True, slots=True, eq=False)
class EdgePod:
    """A pod that may be decided on.

    service: its index. wants: shape (resources,). fits: shape (nodes,), the edge nodes that
    the filters allow. size: Eq. 11. leaves: whether the cloud would have it. at: its edge
    node; NOWHERE for one that is in the cloud or new.
    """

    key: str
    service: int
    wants: Ints
    fits: Bools
    size: float
    leaves: bool = True
    at: int = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """The cluster that is decided on. on_edge: pods of each service there, shape (services,).
    pods: those on the edge that may be moved."""

    edge: Edge
    quality: Quality
    on_edge: Ints
    pods: tuple[EdgePod, ...] = ()

    def without(self, pod: EdgePod) -> "Board":
        """After a pod on the edge went to the cloud."""
        return Board(
            self.edge.without_pod(pod.wants, pod.at),
            self.quality,
            _counted(self.on_edge, pod, -1),
            tuple(each for each in self.pods if each is not pod),
        )

    def moved(self, pod: EdgePod, node: int) -> "Board":
        """After a pod on the edge went to another node there, where it stays."""
        edge = self.edge.without_pod(pod.wants, pod.at).with_pod(pod.wants, node)
        return replace(self, edge=edge, pods=tuple(each for each in self.pods if each is not pod))

    def with_pod(self, pod: EdgePod, node: int) -> "Board":
        """After a pod from elsewhere came to a node of the edge, where it stays."""
        return replace(
            self,
            edge=self.edge.with_pod(pod.wants, node),
            on_edge=_counted(self.on_edge, pod, 1),
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """M_C2E: pods that one suggestion takes from the cloud to the edge; M_ER: pods that it
    reorders within the edge."""

    cloud_to_edge: int = 5
    edge_reorder: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What makeDecision comes to: the pods for the edge, those that leave it for the cloud, and
    those that change their node there. exact: every possibility was weighed."""

    onto_edge: tuple[EdgePod, ...] = ()
    freed: tuple[EdgePod, ...] = ()
    reordered: tuple[tuple[EdgePod, int], ...] = ()
    exact: bool = True

    @property
    def migrations(self) -> int:
        """Eq. 6 over the pods that run already: each counts once, wherever it goes."""
        return len(self.freed) + len(self.reordered)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A decision applied: new pods with their edge nodes, new pods for the cloud, and the
    decision's migrations. board: the state after it. exact: every possibility was weighed."""

    placed: tuple[tuple[EdgePod, int], ...]
    to_cloud: tuple[EdgePod, ...]
    freed: tuple[EdgePod, ...]
    reordered: tuple[tuple[EdgePod, int], ...]
    board: Board
    exact: bool


def pod_size(wants: Ints, largest: Ints) -> float:
    """sqrt(cpu / M_CPU * mem / M_MEM) (Eq. 11). wants, largest: CPU and memory first, the
    largest amounts that an edge node provides."""
    fractions = wants[:2] / np.maximum(largest[:2], 1)
    return max(float(np.sqrt(fractions.prod())), _LEAST_SIZE)


def immediate_schedule(board: Board, new: Sequence[EdgePod]) -> Outcome:
    """Place new pods with no migration (Algorithm 1)."""
    return apply_decision(board, new, make_decision(board, new))


def suggest(board: Board, cloud: Sequence[EdgePod], limits: Limits) -> Outcome:
    """Bring pods from the cloud to the edge, and reorder the edge (Algorithm 2)."""
    chosen = _suggested(board, cloud, limits.cloud_to_edge)
    return apply_decision(board, chosen, make_decision(board, chosen, limits))


def _suggested(board: Board, cloud: Sequence[EdgePod], most: int) -> list[EdgePod]:
    """Up to `most` pods, the most QoS per size first (Eq. 10), scored anew after each pick.

    What fits is measured against the whole edge and not what is free of it: bestFit makes room,
    and would otherwise never have anything to do.
    """
    candidates = [pod for pod in cloud if pod.fits.any()]
    chosen: list[EdgePod] = []
    room, on_edge = board.edge.capacity.sum(axis=0), board.on_edge
    while candidates and len(chosen) < most:
        pod = _most_gained(board.quality, on_edge, candidates, 1)
        candidates = [each for each in candidates if each is not pod]
        need = sum((each.wants for each in chosen), start=pod.wants)
        if fits_in(need, room):
            chosen.append(pod)
            on_edge = _counted(on_edge, pod, 1)
    return chosen


def _most_gained(quality: Quality, on_edge: Ints, pods: Iterable[EdgePod], step: int) -> EdgePod:
    """The pod with which QoS gains most per size when it comes to the edge (Eq. 10, step 1) or
    leaves it (Eq. 12, step -1); the first of equals."""
    gains = quality.each(on_edge + step) - quality.each(on_edge)
    return max(pods, key=lambda pod: round(float(gains[pod.service]) / pod.size, 9))


def _counted(on_edge: Ints, pod: EdgePod, step: int) -> Ints:
    counted = on_edge.copy()
    counted[pod.service] += step
    return counted


def make_decision(board: Board, new: Sequence[EdgePod], limits: Limits | None = None) -> Choice:
    """The subset of the new pods for the edge with the highest QoS (Algorithm 3). limits: of the
    migrations, None where there are to be none.

    Ties go to fewer migrations and then to the smaller subset, by size. Without migration what
    is free is only summed up, as in the paper; match then sees what really fits. With it, a
    suggestion that finds nobody to bring still reorders the edge.
    """
    able = [pod for pod in new if pod.fits.any()]
    kinds = kinds_of([(pod.service, pod.wants.tobytes(), pod.fits.tobytes()) for pod in able])
    counts = [len(members) for members in kinds]
    if limits is None:
        if sets(counts) > EXACT_STATES:
            return _front(board, able)
        return _best_subset(board, able, kinds)
    best, rank = Choice(), (-np.inf, 0, 0.0)
    for row in lattice(counts) if kinds else np.zeros((1, 0), dtype=np.int64):
        pods = tuple(able[at] for kind, members in enumerate(kinds) for at in members[: row[kind]])
        freed = free_edge_as_needed(board, _need(board, pods))
        if freed is None:
            continue
        quality = _quality(board, pods, freed)
        if quality < rank[0]:
            continue
        choice = _reordered(board, pods, freed, limits.edge_reorder)
        size = round(sum(pod.size for pod in pods), 9)
        found = (quality, -choice.migrations - len(pods), -size)
        if found > rank:
            best, rank = choice, found
    return best


def _need(board: Board, pods: Iterable[EdgePod]) -> Ints:
    none = np.zeros(board.edge.capacity.shape[1], dtype=np.int64)
    return sum((pod.wants for pod in pods), start=none)


def _quality(board: Board, onto: Iterable[EdgePod], freed: Iterable[EdgePod]) -> float:
    on_edge = board.on_edge.copy()
    for step, pods in ((1, onto), (-1, freed)):
        for pod in pods:
            on_edge[pod.service] += step
    return round(float(board.quality.of(on_edge)), 9)


def _best_subset(board: Board, pods: Sequence[EdgePod], kinds: Sequence[Sequence[int]]) -> Choice:
    """Every subset that the edge's free resources, summed up, can hold."""
    if not kinds:
        return Choice()
    states = lattice([len(members) for members in kinds])
    first = [pods[members[0]] for members in kinds]
    need = states @ np.array([pod.wants for pod in first])
    possible = fits_in(need, _room(board, pods))
    quality = np.where(possible, _qualities(board, states, first), -np.inf)
    size = np.round(states @ np.array([pod.size for pod in first]), 9)
    row = states[np.lexsort((size, -quality))[0]]
    return Choice(tuple(pods[at] for kind, held in enumerate(kinds) for at in held[: row[kind]]))


def _room(board: Board, pods: Sequence[EdgePod]) -> Ints:
    """What is free on the nodes that any of these pods may go to."""
    reachable = np.any([pod.fits for pod in pods], axis=0)
    room: Ints = board.edge.free[reachable].sum(axis=0)
    return room


def _qualities(board: Board, states: Ints, first: Sequence[EdgePod]) -> Floats:
    """QoS of each set, shape (sets,); only the services that take part differ."""
    services = sorted({pod.service for pod in first})
    one_of = np.array([[pod.service == each for each in services] for pod in first])
    part = replace(
        board.quality, total=board.quality.total[services], target=board.quality.target[services]
    )
    return np.round(part.of(board.on_edge[services] + states @ one_of.astype(np.int64)), 9)


def _front(board: Board, pods: Sequence[EdgePod]) -> Choice:
    """For batches with too many subsets: service by service, only those sets are carried on that
    no other beats in QoS and in all that it needs. That loses nothing unless more than _FRONT
    are left, of which then an even sample goes on, or a service's own sets are too many, of
    which then only the smallest pods of each number are tried."""
    room, exact = _room(board, pods), True
    need = np.zeros((1, room.size), dtype=np.int64)
    quality, picks = np.zeros(1), [()]  # type: tuple[Floats, list[tuple[EdgePod, ...]]]
    by_service = kinds_of([pod.service for pod in pods])
    for members in by_service:
        options, whole = _options([pods[at] for at in members])
        wants = np.array([_need(board, option) for option in options])
        gain = np.array([_alone(board, option) for option in options])
        all_need = (need[:, np.newaxis] + wants).reshape(-1, room.size)
        all_quality = (quality[:, np.newaxis] + gain).ravel()
        kept, cut = _unbeaten(all_need, all_quality, room)
        exact = exact and whole and not cut
        picks = [picks[at // len(options)] + options[at % len(options)] for at in kept.tolist()]
        need, quality = all_need[kept], all_quality[kept]
    return Choice(picks[0], exact=exact)


def _options(pods: Sequence[EdgePod]) -> tuple[list[tuple[EdgePod, ...]], bool]:
    """Sets of one service's pods, and whether these are all that matter."""
    ordered = sorted(pods, key=lambda pod: (pod.size, pod.key))
    whole = len({pod.wants.tobytes() for pod in pods}) == 1
    return [tuple(ordered[:count]) for count in range(len(ordered) + 1)], whole


def _alone(board: Board, pods: Sequence[EdgePod]) -> float:
    """What these pods of one service add to the QoS."""
    before = float(board.quality.of(board.on_edge))
    return round(_quality(board, pods, ()) - before, 9)


def _unbeaten(need: Ints, quality: Floats, room: Ints) -> tuple[Ints, bool]:
    """Positions of the sets that fit and that no other beats, best QoS first, and whether any
    were cut."""
    order = np.lexsort((need.sum(axis=1), -quality))
    order = order[fits_in(need[order], room)]
    kept: list[int] = []
    front = np.empty((0, need.shape[1]), dtype=np.int64)
    for at in order.tolist():
        if not (front <= need[at]).all(axis=1).any():
            kept.append(at)
            front = need[kept]
    if len(kept) <= _FRONT:
        return np.array(kept, dtype=np.int64), False
    sample = np.linspace(0, len(kept) - 1, _FRONT).astype(np.int64)
    return np.array(kept, dtype=np.int64)[sample], True


def best_fit(board: Board, pods: tuple[EdgePod, ...], edge_reorder: int) -> Choice | None:
    """The migrations that make room for these pods: first free the edge, then reorder it
    (Algorithm 4). None where there can't be enough room."""
    freed = free_edge_as_needed(board, _need(board, pods))
    return None if freed is None else _reordered(board, pods, freed, edge_reorder)


def _reordered(
    board: Board, pods: tuple[EdgePod, ...], freed: tuple[EdgePod, ...], edge_reorder: int
) -> Choice:
    for pod in freed:
        board = board.without(pod)
    there = board.pods
    if not there:
        return Choice(pods, freed)
    found = reorder_edge(
        board.edge,
        np.array([pod.wants for pod in there]),
        np.array([pod.fits for pod in there]),
        np.array([pod.at for pod in there]),
        edge_reorder,
    )
    moves = tuple((there[at], node) for at, node in found.moves)
    return Choice(pods, freed, moves, found.exact)


def free_edge_as_needed(board: Board, need: Ints) -> tuple[EdgePod, ...] | None:
    """The pods that leave for the cloud until this much of the edge is free, least QoS lost per
    size first, scored anew after each (Algorithm 5, Eq. 12). None where all that may leave
    are not enough."""
    freed: list[EdgePod] = []
    while not fits_in(need, board.edge.free.sum(axis=0)):
        candidates = [pod for pod in board.pods if pod.leaves]
        if not candidates:
            return None
        pod = _most_gained(board.quality, board.on_edge, candidates, -1)
        board = board.without(pod)
        freed.append(pod)
    return tuple(freed)


def apply_decision(board: Board, new: Sequence[EdgePod], choice: Choice) -> Outcome:
    """The migrations, then a node for each pod that is to be on the edge, by match; the new pods
    that it leaves out, and those not chosen, go to the cloud (Algorithm 7)."""
    for pod in choice.freed:
        board = board.without(pod)
    for pod, node in choice.reordered:
        board = board.moved(pod, node)
    placed: list[tuple[EdgePod, int]] = []
    exact = choice.exact
    if choice.onto_edge:
        wants = np.array([pod.wants for pod in choice.onto_edge])
        fits = np.array([pod.fits for pod in choice.onto_edge])
        found = match(board.edge, wants, fits)
        exact = exact and found.exact
        pairs = zip(choice.onto_edge, found.nodes, strict=True)
        placed = [(pod, node) for pod, node in pairs if node != NOWHERE]
    for pod, node in placed:
        board = board.with_pod(pod, node)
    there = {pod.key for pod, _ in placed}
    to_cloud = tuple(pod for pod in new if pod.key not in there)
    return Outcome(tuple(placed), to_cloud, choice.freed, choice.reordered, board, exact)
