"""Which pods belong on the edge: KubeDSM's decisions, pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 10 and 12, Algorithms 1-5 and 7. The functions have the paper's names; what is an
event or a plan's step there is data here.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from leadline_controller.framework.view import Ints
from leadline_controller.strategies.kubedsm.edge_state import (
    Choice,
    EdgePod,
    EdgeState,
    Limits,
    Outcome,
    Quality,
    counted,
    need_of,
    quality_with,
)
from leadline_controller.strategies.kubedsm.match import match
from leadline_controller.strategies.kubedsm.packing import (
    EXACT_STATES,
    NOWHERE,
    fits_in,
    kinds_of,
    lattice,
    sets,
)
from leadline_controller.strategies.kubedsm.reorder import reorder_edge
from leadline_controller.strategies.kubedsm.subset import best_subset, best_within_bounds


def immediate_schedule(board: EdgeState, new: Sequence[EdgePod]) -> Outcome:
    """Place new pods with no migration (Algorithm 1)."""
    return apply_decision(board, new, make_decision(board, new))


def suggest(board: EdgeState, cloud: Sequence[EdgePod], limits: Limits) -> Outcome:
    """Bring pods from the cloud to the edge, and reorder the edge (Algorithm 2)."""
    chosen = _suggested(board, cloud, limits.cloud_to_edge)
    return apply_decision(board, chosen, make_decision(board, chosen, limits))


def _suggested(board: EdgeState, cloud: Sequence[EdgePod], most: int) -> list[EdgePod]:
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
            on_edge = counted(on_edge, pod, 1)
    return chosen


def _most_gained(quality: Quality, on_edge: Ints, pods: Iterable[EdgePod], step: int) -> EdgePod:
    """The pod with which QoS gains most per size when it comes to the edge (Eq. 10, step 1) or
    leaves it (Eq. 12, step -1); the first of equals."""
    gains = quality.each(on_edge + step) - quality.each(on_edge)
    return max(pods, key=lambda pod: round(float(gains[pod.service]) / pod.size, 9))


def make_decision(board: EdgeState, new: Sequence[EdgePod], limits: Limits | None = None) -> Choice:
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
            return best_within_bounds(board, able)
        return best_subset(board, able, kinds)
    best, rank = Choice(), (-np.inf, 0, 0.0)
    for row in lattice(counts) if kinds else np.zeros((1, 0), dtype=np.int64):
        pods = tuple(able[at] for kind, members in enumerate(kinds) for at in members[: row[kind]])
        choice = best_fit(board, pods, limits.edge_reorder, rank[0])
        if choice is None:
            continue
        size = round(sum(pod.size for pod in pods), 9)
        quality = quality_with(board, pods, choice.freed)
        found = (quality, -choice.migrations - len(pods), -size)
        if found > rank:
            best, rank = choice, found
    return best


def best_fit(
    board: EdgeState, pods: tuple[EdgePod, ...], edge_reorder: int, least_quality: float = -np.inf
) -> Choice | None:
    """The migrations that make room for these pods: first free the edge, then reorder it
    (Algorithm 4). None where there can't be enough room, or QoS would be below least_quality,
    which reordering can't change."""
    freed = free_edge_as_needed(board, need_of(board, pods))
    if freed is None or quality_with(board, pods, freed) < least_quality:
        return None
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


def free_edge_as_needed(board: EdgeState, need: Ints) -> tuple[EdgePod, ...] | None:
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


def apply_decision(board: EdgeState, new: Sequence[EdgePod], choice: Choice) -> Outcome:
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
