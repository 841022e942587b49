"""Which of the new pods belong on the edge when nothing may move: KubeDSM's makeDecision without
migration, over every subset or within bounds.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Algorithm 3 for Algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leadline_controller.framework.view import Floats, Ints
from leadline_controller.strategies.kubedsm.edge_state import (
    Choice,
    EdgePod,
    EdgeState,
    need_of,
    quality_with,
)
from leadline_controller.strategies.kubedsm.packing import fits_in, kinds_of, lattice

_FRONT = 256


def best_subset(
    board: EdgeState, pods: Sequence[EdgePod], kinds: Sequence[Sequence[int]]
) -> Choice:
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


def _room(board: EdgeState, pods: Sequence[EdgePod]) -> Ints:
    """What is free on the nodes that any of these pods may go to."""
    reachable = np.any([pod.fits for pod in pods], axis=0)
    room: Ints = board.edge.free[reachable].sum(axis=0)
    return room


def _qualities(board: EdgeState, states: Ints, first: Sequence[EdgePod]) -> Floats:
    """QoS of each set, shape (sets,); only the services that take part differ."""
    services = sorted({pod.service for pod in first})
    one_of = np.array([[pod.service == each for each in services] for pod in first])
    part = replace(
        board.quality, total=board.quality.total[services], target=board.quality.target[services]
    )
    return np.round(part.of(board.on_edge[services] + states @ one_of.astype(np.int64)), 9)


def best_within_bounds(board: EdgeState, pods: Sequence[EdgePod]) -> Choice:
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
        wants = np.array([need_of(board, option) for option in options])
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


def _alone(board: EdgeState, pods: Sequence[EdgePod]) -> float:
    """What these pods of one service add to the QoS."""
    before = float(board.quality.of(board.on_edge))
    return round(quality_with(board, pods, ()) - before, 9)


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
