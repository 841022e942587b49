"""What a placement must keep to, as rows for a programme: where the filters let each pod be,
and what each node can hold of them together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from leadline_controller.framework.cycle import Filter, obstacle
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Floats
from leadline_controller.framework.view import ClusterView

# A pod that comes can turn the refusal of these into consent, so that what they say of the
# cluster as it is now may be held against no placement.
_MAY_RELENT = frozenset({"InterPodAffinity", "PodTopologySpread"})


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What nodes can hold. wants: shape (resources, pods), capacity: shape (resources, nodes),
    in units so large that both are whole numbers where the cluster's are."""

    wants: Floats
    capacity: Floats

    def most(self, allowed: Bools) -> list[int]:
        """At most so many of the pods fit each node together, whichever they are: the smallest
        first, one resource at a time. allowed: shape (pods, nodes)."""
        return [self._most_on(node, allowed[:, node]) for node in range(allowed.shape[1])]

    def _most_on(self, node: int, allowed: Bools) -> int:
        held = [
            int(np.searchsorted(np.cumsum(np.sort(wants[allowed])), size[node], side="right"))
            for wants, size in zip(self.wants, self.capacity, strict=True)
        ]
        return min([int(allowed.sum()), *held])


def room(view: ClusterView, pods: Sequence[Pod], leaving: Sequence[tuple[Pod, int]] = ()) -> Room:
    """What is free on the nodes (DACS Eq. 6, KubeDSM Eq. 8) once `leaving` have left: every
    resource that a pod asks for, and the link (DACS Eq. 16)."""
    wants: list[Floats] = []
    capacity: list[Floats] = []
    for resource in sorted(
        {name for pod in pods for name, amount in pod.requests.items() if amount}
    ):
        asked = [pod.requests.get(resource, 0) for pod in pods]
        free = view.free(resource).copy()
        for pod, node in leaving:
            free[node] += pod.requests.get(resource, 0)
        unit = gcd(*asked)
        wants.append(np.array(asked, dtype=np.float64) / unit)
        capacity.append(np.maximum(free // unit, 0).astype(np.float64))
    links = [pod.hints.bandwidth_mbps or 0.0 for pod in pods]
    if any(links):
        free_mbps = view.bandwidth_free_mbps().copy()
        for pod, node in leaving:
            free_mbps[node] += pod.hints.bandwidth_mbps or 0.0
        wants.append(np.array(links))
        capacity.append(np.maximum(np.nan_to_num(free_mbps), 0.0))
    kinds = len(wants)
    return Room(
        np.array(wants).reshape(kinds, len(pods)), np.array(capacity).reshape(kinds, len(view))
    )


def allowed(view: ClusterView, pods: Sequence[Pod], filters: Mapping[str, Filter]) -> Bools:
    """Where the filters let each pod be while none of the others is there, shape (pods, nodes).

    Filters that might relent once another pod of the run is placed are left out if any pod
    of the run brings such a demand; see `refusal`.
    """
    mask = np.ones((len(pods), len(view)), dtype=np.bool_)
    for pod, row in zip(pods, mask, strict=True):
        for test in _asked(pods, filters):
            row &= test(view, pod).passes
    return mask


def stuck(view: ClusterView, pods: Iterable[Pod]) -> str:
    """Why one of the pods can't be placed whatever the nodes are like; empty if all might be."""
    problems = ((pod, obstacle(view, pod)) for pod in pods)
    return next((f"pod {pod.key}: {problem}" for pod, problem in problems if problem), "")


def refusal(
    view: ClusterView,
    pods: Iterable[Pod],
    placement: Mapping[str, str],
    filters: Mapping[str, Filter],
) -> str:
    """What the filters have against placing the pods so, one after the other; empty if nothing."""
    for pod in pods:
        node = view.table.index[placement[pod.key]]
        for name, test in filters.items():
            verdict = test(view, pod)
            if not verdict.passes[node]:
                where = f"pod {pod.key} on {placement[pod.key]}"
                return f"{where}: {name}: {verdict.reason(node)}"
        view = view.with_placement(pod, node)
    return ""


def reachable(
    view: ClusterView,
    pods: Sequence[Pod],
    places: Mapping[str, int],
    filters: Mapping[str, Filter],
) -> Bools:
    """Where the filters would let each pod be if others made room there, shape (pods, nodes);
    a pod that runs may stay. places: index of the node that a running pod is on, by key."""
    mask = np.ones((len(pods), len(view)), dtype=np.bool_)
    for pod, row in zip(pods, mask, strict=True):
        place = places.get(pod.key)
        lifted = view if place is None else view.without_placement(pod, place)
        for test in _asked(pods, filters):
            verdict = test(lifted, pod)
            open_to = verdict.resolvable_by_preemption
            row &= verdict.passes if open_to is None else verdict.passes | open_to
        if place is not None:
            row[place] = True
    return mask


def _asked(pods: Sequence[Pod], filters: Mapping[str, Filter]) -> list[Filter]:
    """The filters whose refusal is final."""
    mutual = any(pod.affinity or pod.spread for pod in pods)
    return [test for name, test in filters.items() if not (mutual and name in _MAY_RELENT)]
