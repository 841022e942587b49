"""KubeDSM's decisions: which pods belong on the edge. Pure.

Eq. 1-6 and 10-12, Algorithms 1-5 and 7. The functions have the paper's names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints
from leadline_controller.strategies.kubedsm.packing import (
    MAX_EXACT_SUBSETS,
    NO_NODE,
    TOLERANCE,
    Edge,
    MoveLimits,
    all_subsets,
    fits_in,
    group_equal,
    match,
    reorder_edge,
    subset_count,
)

_MIN_SIZE = 1e-9  # of a pod that asks for nothing, so that a gain per size stays finite
_MAX_FRONT = 256
_MAX_EQUAL = 16  # decisions of equal QoS that match is asked about
# The QoS of a service in the authors' program: below its target, and from the target on.
_PROGRAM_BELOW, _PROGRAM_REACHED = 0.8, 0.99


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """QoS(u) (Eq. 1-5). Columns have shape (services,)."""

    total: Ints  # pods of each service
    target: Floats  # Q of each service, the share that should be on the edge
    # Slopes below and above the target, and the reward for reaching it, 0 <= b < a << gamma.
    a: float
    b: float
    gamma: float
    is_programs: bool = False  # count as the authors' program does, without a, b and gamma

    def of(self, on_edge: Ints) -> Floats:
        """QoS for these numbers of pods on the edge, shape (..., services) to (...)."""
        quality: Floats = self.each(on_edge).sum(axis=-1)
        return quality

    def each(self, on_edge: Ints) -> Floats:
        """F(Delta) of every service (Eq. 2-4), of the same shape. The program's: 0.8 times the
        square root of share / target; 0.99 at the target, and 1 with all pods on the edge."""
        share = on_edge / np.maximum(self.total, 1)
        delta = share - self.target
        is_below = delta < -TOLERANCE  # rounding can put a share slightly below its target
        if not self.is_programs:
            return np.where(is_below, self.a * delta, self.b * delta + self.gamma)
        reached = np.clip(share, 0, None) / np.where(self.target > 0, self.target, 1)
        beyond = np.maximum(delta, 0) / np.maximum(1 - self.target, TOLERANCE)
        above = _PROGRAM_REACHED + (1 - _PROGRAM_REACHED) * beyond
        return np.where(is_below, _PROGRAM_BELOW * np.sqrt(reached), above)


@dataclass(frozen=True, slots=True, eq=False)
class EdgePod:
    """A pod as the algorithms see it."""

    key: str
    service: int  # its index
    requests: Ints  # shape (resources,)
    feasible: Bools  # the edge nodes that pass the filters, shape (nodes,)
    size: float  # Eq. 11
    cloud_feasible: bool = True  # whether a cloud node passes the filters
    node: int = NO_NODE  # its edge node, or NO_NODE for a new pod and one in the cloud
    is_running: bool = False  # it is on a node, of the edge or the cloud


@dataclass(frozen=True, slots=True, eq=False)
class EdgeState:
    """The state of the edge, immutable."""

    edge: Edge
    quality: Quality
    on_edge: Ints  # pods of each service on the edge, shape (services,)
    pods: tuple[EdgePod, ...] = ()  # the pods on the edge that may be moved
    # How many running pods of each service may still be moved, None for any number.
    may_move: Ints | None = None
    may_leave: bool = False  # whether pods may leave the edge to make room
    # Whether room for them is only what is free on nodes that can take one of them; what is free
    # elsewhere hides a shortage, but reorderEdge may join it.
    by_node: bool = False

    def room_for(self, pods: Sequence[EdgePod]) -> Ints:
        """The sum of the free resources that count for these pods, shape (resources,)."""
        free = self.edge.free
        if self.by_node and pods:
            fits = [fits_in(pod.requests, free) & pod.feasible for pod in pods]
            free = free[np.any(fits, axis=0)]
        room: Ints = free.sum(axis=0)
        return room

    def allows(self, pod: EdgePod) -> bool:
        """Whether the pod may be moved; a pod that does not run yet may always be placed."""
        return not pod.is_running or self.may_move is None or bool(self.may_move[pod.service] > 0)

    def counted(self, pod: EdgePod) -> "EdgeState":
        """The state in which a pod from the cloud counts as one on the edge, on no node yet."""
        on_edge = self.on_edge.copy()
        on_edge[pod.service] += 1
        return replace(self, on_edge=on_edge, may_move=self._may_move_after(pod))

    def _may_move_after(self, pod: EdgePod) -> Ints | None:
        if self.may_move is None or not pod.is_running:
            return self.may_move
        left = self.may_move.copy()
        left[pod.service] -= 1
        return left

    def moved(self, pod: EdgePod, node: int) -> "EdgeState":
        """The state after a pod came to an edge node, from wherever it was, or left the edge for
        the cloud (NO_NODE). It does not move again."""
        edge, on_edge = self.edge, self.on_edge.copy()
        if pod.node != NO_NODE:
            edge = edge.without_pod(pod.requests, pod.node)
            on_edge[pod.service] -= 1
        if node != NO_NODE:
            edge = edge.with_pod(pod.requests, node)
            on_edge[pod.service] += 1
        pods = tuple(each for each in self.pods if each is not pod)
        left = self._may_move_after(pod)
        return replace(self, edge=edge, on_edge=on_edge, pods=pods, may_move=left)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeDecision:
    """The result of makeDecision: pods for the edge, pods that leave it for the cloud, and pods
    that move within it."""

    onto_edge: tuple[EdgePod, ...] = ()
    freed: tuple[EdgePod, ...] = ()
    reordered: tuple[tuple[EdgePod, int], ...] = ()
    exact: bool = True  # the search was exhaustive

    @property
    def migrations(self) -> int:
        """Eq. 6 for the running pods: each counts once."""
        return len(self.freed) + len(self.reordered)


@dataclass(frozen=True, slots=True, eq=False)
class AppliedDecision:
    """The result of applyDecision: new pods with their edge nodes, new pods for the cloud, and the
    decision's migrations."""

    placed: tuple[tuple[EdgePod, int], ...]
    to_cloud: tuple[EdgePod, ...]
    freed: tuple[EdgePod, ...]
    reordered: tuple[tuple[EdgePod, int], ...]
    missed: int  # pods that were to be on the edge and for which match found no node
    state: EdgeState  # the state after it
    exact: bool  # the search was exhaustive


def pod_size(requests: Ints, largest: Ints) -> float:
    """sqrt(cpu / M_CPU * mem / M_MEM) (Eq. 11). requests: CPU and memory first. largest: the
    largest capacity of an edge node, in the same order."""
    fractions = requests[:2] / np.maximum(largest[:2], 1)
    return max(float(np.sqrt(fractions.prod())), _MIN_SIZE)


def total_requests(state: EdgeState, pods: Iterable[EdgePod]) -> Ints:
    """Sum of the pods' requests, shape (resources,)."""
    none = np.zeros(state.edge.capacity.shape[1], dtype=np.int64)
    return sum((pod.requests for pod in pods), start=none)


def quality_with(state: EdgeState, onto: Iterable[EdgePod], freed: Iterable[EdgePod]) -> float:
    """QoS with some more pods on the edge and without others, rounded so that ties are ties."""
    on_edge = state.on_edge.copy()
    for step, pods in ((1, onto), (-1, freed)):
        for pod in pods:
            on_edge[pod.service] += step
    return round(float(state.quality.of(on_edge)), 9)


def immediate_schedule(state: EdgeState, new: Sequence[EdgePod]) -> AppliedDecision:
    """Place new pods without migration (Algorithm 1)."""
    return apply_decision(state, new, make_decision(state, new))


def suggest(
    state: EdgeState,
    cloud: Sequence[EdgePod],
    cloud_to_edge: int,
    edge_reorder: int,
) -> AppliedDecision:
    """Move up to `cloud_to_edge` pods (M_C2E) from the cloud to the edge, and up to `edge_reorder`
    (M_ER) within the edge (Algorithm 2)."""
    chosen = _select_for_edge(state, cloud, cloud_to_edge)
    return apply_decision(state, chosen, make_decision(state, chosen, edge_reorder))


def _select_for_edge(state: EdgeState, cloud: Sequence[EdgePod], most: int) -> list[EdgePod]:
    """Up to `most` pods, the most QoS per size first (Eq. 10), scored again after each choice.

    Together they must fit into the sum of the edge's free resources (lines 5 and 9); or, if pods
    may leave, of its capacity, of which bestFit then makes some free.
    """
    candidates = [pod for pod in cloud if pod.feasible.any()]
    chosen: list[EdgePod] = []
    room = (state.edge.capacity if state.may_leave else state.edge.free).sum(axis=0)
    later = state  # the counts of the state in which the chosen pods are on the edge
    while candidates and len(chosen) < most:
        pod = _highest_gain(state.quality, later.on_edge, candidates, 1)
        candidates = [each for each in candidates if each is not pod]
        if later.allows(pod) and fits_in(total_requests(state, [*chosen, pod]), room):
            chosen.append(pod)
            later = later.counted(pod)
    return chosen


def _highest_gain(quality: Quality, on_edge: Ints, pods: Iterable[EdgePod], step: int) -> EdgePod:
    """The pod with the highest QoS gain per size when it arrives on the edge (Eq. 10, step 1) or
    leaves it (Eq. 12, step -1); the first of equals."""
    gains = quality.each(on_edge + step) - quality.each(on_edge)
    return max(pods, key=lambda pod: round(float(gains[pod.service]) / pod.size, 9))


def make_decision(
    state: EdgeState, new: Sequence[EdgePod], edge_reorder: int | None = None
) -> EdgeDecision:
    """The subset of the new pods for the edge with the highest QoS (Algorithm 3). edge_reorder: as
    for suggest, or None for no migration.

    Ties go to fewer migrations, then to the subset of which match places the most QoS, then to the
    smaller one, by size. Without migration only the sum of the free resources is checked, as in
    the paper; match then finds out what fits. With migration, the edge is reordered even if there
    are no new pods.
    """
    feasible = [pod for pod in new if pod.feasible.any()]
    groups = group_equal(
        [(pod.service, pod.requests.tobytes(), pod.feasible.tobytes()) for pod in feasible]
    )
    counts = [len(members) for members in groups]
    if edge_reorder is None:
        if subset_count(counts) > MAX_EXACT_SUBSETS:
            return _best_within_bounds(state, feasible)
        return _best_subset(state, feasible, groups)
    equal: list[tuple[float, EdgeDecision]] = [(0.0, EdgeDecision())]  # by size
    rank = -np.inf, 0
    for row in all_subsets(counts) if groups else np.zeros((1, 0), dtype=np.int64):
        pods = tuple(
            feasible[at] for group, members in enumerate(groups) for at in members[: row[group]]
        )
        choices = best_fit(state, pods, edge_reorder, rank[0])
        if not choices:
            continue
        found = quality_with(state, pods, choices[0].freed), -choices[0].migrations - len(pods)
        if found >= rank:
            size = round(sum(pod.size for pod in pods), 9)
            equal = [*(equal if found == rank else []), *((size, each) for each in choices)]
            rank = found
    equal.sort(key=lambda each: each[0])
    return _best_applied(state, [choice for _, choice in equal])


def _best_applied(state: EdgeState, equal: Sequence[EdgeDecision]) -> EdgeDecision:
    """Of decisions that are equal in QoS, the first of which match places all pods, or else the one
    of which it places the most QoS; _MAX_EQUAL of them are tried."""
    best, most = equal[0], -np.inf
    for choice in equal[:_MAX_EQUAL] if len(equal) > 1 else ():
        applied = apply_decision(state, choice.onto_edge, choice)
        if not applied.to_cloud:
            return choice
        reached = round(float(state.quality.of(applied.state.on_edge)), 9)
        if reached > most:
            best, most = choice, reached
    return best


def _best_subset(
    state: EdgeState, pods: Sequence[EdgePod], groups: Sequence[Sequence[int]]
) -> EdgeDecision:
    """Without migration, the best of all subsets whose requests fit into the sum of the edge's free
    resources."""
    if not groups:
        return EdgeDecision()
    subsets = all_subsets([len(members) for members in groups])
    first = [pods[members[0]] for members in groups]
    need = subsets @ np.array([pod.requests for pod in first])
    services = sorted({pod.service for pod in first})  # QoS over these services is enough
    one_of = np.array([[pod.service == each for each in services] for pod in first])
    part = replace(
        state.quality, total=state.quality.total[services], target=state.quality.target[services]
    )
    qualities = np.round(part.of(state.on_edge[services] + subsets @ one_of.astype(np.int64)), 9)
    quality = np.where(fits_in(need, state.edge.free.sum(axis=0)), qualities, -np.inf)
    size = np.round(subsets @ np.array([pod.size for pod in first]), 9)
    order = np.lexsort((size, -quality))
    equal = subsets[order[quality[order] == quality[order[0]]]]
    picks = (
        tuple(pods[at] for group, held in enumerate(groups) for at in held[: row[group]])
        for row in equal[:_MAX_EQUAL]
    )
    return _best_applied(state, [EdgeDecision(pick) for pick in picks])


def _best_within_bounds(state: EdgeState, pods: Sequence[EdgePod]) -> EdgeDecision:
    """Without migration, for batches with too many subsets: adds service after service and keeps
    the subsets that no other dominates in QoS and in all requests. This is exact unless more than
    _MAX_FRONT are left, of which an even sample is kept, or unless the pods of a service differ in
    their requests, of which only the smallest of each number are tried."""
    free, exact = state.edge.free.sum(axis=0), True
    need = np.zeros((1, free.size), dtype=np.int64)
    quality, picks = np.zeros(1), [()]  # type: tuple[Floats, list[tuple[EdgePod, ...]]]
    before = float(state.quality.of(state.on_edge))
    for members in group_equal([pod.service for pod in pods]):
        # If the pods of a service have equal requests, no other subsets can be better.
        whole = len({pods[at].requests.tobytes() for at in members}) == 1
        smallest = sorted((pods[at] for at in members), key=lambda pod: (pod.size, pod.key))
        options = [tuple(smallest[:count]) for count in range(len(smallest) + 1)]
        requests = np.array([total_requests(state, option) for option in options])
        gain = np.array([round(quality_with(state, option, ()) - before, 9) for option in options])
        all_need = (need[:, np.newaxis] + requests).reshape(-1, free.size)
        all_quality = (quality[:, np.newaxis] + gain).ravel()
        kept, cut = _pareto_front(all_need, all_quality, free)
        exact = exact and whole and not cut
        picks = [picks[at // len(options)] + options[at % len(options)] for at in kept.tolist()]
        need, quality = all_need[kept], all_quality[kept]
    return EdgeDecision(picks[0], exact=exact)


def _pareto_front(need: Ints, quality: Floats, free: Ints) -> tuple[Ints, bool]:
    """Positions of the subsets that fit and that no other dominates, best QoS first, and whether
    the list was sampled."""
    order = np.lexsort((need.sum(axis=1), -quality))
    order = order[fits_in(need[order], free)]
    kept: list[int] = []
    front = np.empty((0, need.shape[1]), dtype=np.int64)
    for at in order.tolist():
        if not (front <= need[at]).all(axis=1).any():
            kept.append(at)
            front = need[kept]
    if len(kept) <= _MAX_FRONT:
        return np.array(kept, dtype=np.int64), False
    sample = np.linspace(0, len(kept) - 1, _MAX_FRONT).astype(np.int64)
    return np.array(kept, dtype=np.int64)[sample], True


def best_fit(
    state: EdgeState, pods: tuple[EdgePod, ...], edge_reorder: int, least_quality: float = -np.inf
) -> Sequence[EdgeDecision]:
    """The migrations that make room for these pods: first free the edge, then reorder it
    (Algorithm 4); several if they leave equally little fragmentation. None of them if there cannot
    be enough room, or if QoS would be below least_quality, which reordering does not change."""
    left = state  # what may still move after these pods have come from the cloud
    for pod in pods:
        left = left.counted(pod)
    state = replace(state, may_move=left.may_move)
    freed = free_edge_as_needed(state, pods)
    if freed is None or quality_with(state, pods, freed) < least_quality:
        return ()
    for pod in freed:
        state = state.moved(pod, NO_NODE)
    movable = [pod for pod in state.pods if state.allows(pod)]
    if not movable:
        return (EdgeDecision(pods, freed),)
    found = reorder_edge(
        state.edge,
        np.array([pod.requests for pod in movable]),
        np.array([pod.feasible for pod in movable]),
        np.array([pod.node for pod in movable]),
        edge_reorder,
        None
        if state.may_move is None
        else MoveLimits(np.array([pod.service for pod in movable]), state.may_move),
    )
    return [
        EdgeDecision(pods, freed, tuple((movable[at], node) for at, node in moves), found.exact)
        for moves in found.equal
    ]


def free_edge_as_needed(state: EdgeState, pods: Sequence[EdgePod]) -> tuple[EdgePod, ...] | None:
    """The pods that leave for the cloud until there is room for these on the edge, the least QoS
    loss per size first, scored again after each (Algorithm 5, Eq. 12). None if there are not enough
    pods that may leave."""
    need, freed = total_requests(state, pods), list[EdgePod]()
    while not fits_in(need, state.room_for(pods)):
        candidates = [pod for pod in state.pods if pod.cloud_feasible and state.allows(pod)]
        if not candidates:
            return None
        pod = _highest_gain(state.quality, state.on_edge, candidates, -1)
        state = state.moved(pod, NO_NODE)
        freed.append(pod)
    return tuple(freed)


def apply_decision(
    state: EdgeState, new: Sequence[EdgePod], choice: EdgeDecision
) -> AppliedDecision:
    """Migrate, then match the chosen pods to edge nodes; new pods that are not chosen or not
    matched go to the cloud (Algorithm 7)."""
    for pod in choice.freed:
        state = state.moved(pod, NO_NODE)
    for pod, node in choice.reordered:
        state = state.moved(pod, node)
    placed: list[tuple[EdgePod, int]] = []
    exact = choice.exact
    if choice.onto_edge:
        # Of pods that are alike to match, the first get a node.
        onto, counts, left = list[EdgePod](), state, list(choice.onto_edge)
        while left:
            onto.append(_highest_gain(state.quality, counts.on_edge, left, 1))
            counts = counts.counted(onto[-1])
            left = [pod for pod in left if pod is not onto[-1]]
        requests = np.array([pod.requests for pod in onto])
        feasible = np.array([pod.feasible for pod in onto])
        found = match(state.edge, requests, feasible)
        exact = exact and found.exact
        pairs = zip(onto, found.nodes, strict=True)
        placed = [(pod, node) for pod, node in pairs if node != NO_NODE]
    for pod, node in placed:
        state = state.moved(pod, node)
    on_edge = {pod.key for pod, _ in placed}
    to_cloud = tuple(pod for pod in new if pod.key not in on_edge)
    missed = len(choice.onto_edge) - len(placed)
    return AppliedDecision(
        tuple(placed), to_cloud, choice.freed, choice.reordered, missed, state, exact
    )
