"""The constraints of a placement for a programme: the nodes that the filters allow each pod, and
the capacity of the nodes.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from leadline_controller.framework.cycle import Filter, pre_filter_failure
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Floats
from leadline_controller.framework.view import ClusterView

# These filters may pass once another pod is placed, so their result for the current cluster rules
# out no placement.
_DEPEND_ON_OTHER_PODS = frozenset({"InterPodAffinity", "PodTopologySpread"})


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """requests: shape (resources, pods). capacity: shape (resources, nodes). The unit of a resource
    is the largest in which its requests are whole numbers."""

    requests: Floats
    capacity: Floats

    def most(self, allowed: Bools) -> list[int]:
        """An upper bound of the pods on each node: the smallest pods that fit, by the scarcest
        resource. allowed: shape (pods, nodes)."""
        most = []
        for node in range(allowed.shape[1]):
            pods = allowed[:, node]
            fit = [
                int(np.searchsorted(np.cumsum(np.sort(requests[pods])), size[node], side="right"))
                for requests, size in zip(self.requests, self.capacity, strict=True)
            ]
            most.append(min([int(pods.sum()), *fit]))
        return most


def resources_of(
    view: ClusterView, pods: Sequence[Pod], leaving: Sequence[tuple[Pod, int]] = ()
) -> Resources:
    """The free capacity (DACS Eq. 6, KubeDSM Eq. 8) without the `leaving` pods: every resource
    that a pod requests, and the link (DACS Eq. 16)."""
    requests: list[Floats] = []
    capacity: list[Floats] = []
    for resource in sorted({name for pod in pods for name, n in pod.requests.items() if n}):
        amounts = [pod.requests.get(resource, 0) for pod in pods]
        free = view.free(resource).copy()
        for pod, node in leaving:
            free[node] += pod.requests.get(resource, 0)
        unit = gcd(*amounts)
        requests.append(np.array(amounts, dtype=np.float64) / unit)
        capacity.append(np.maximum(free // unit, 0).astype(np.float64))
    links = [pod.annotations.bandwidth_mbps or 0.0 for pod in pods]
    if any(links):
        free_mbps = view.bandwidth_free_mbps().copy()
        for pod, node in leaving:
            free_mbps[node] += pod.annotations.bandwidth_mbps or 0.0
        requests.append(np.array(links))
        capacity.append(np.maximum(np.nan_to_num(free_mbps), 0.0))
    kinds = len(requests)
    return Resources(
        np.array(requests).reshape(kinds, len(pods)), np.array(capacity).reshape(kinds, len(view))
    )


def identical(keys: Iterable[Hashable]) -> list[list[int]]:
    """The indexes of equal keys, grouped."""
    found: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return list(found.values())


def allowed(
    view: ClusterView,
    pods: Sequence[Pod],
    filters: Mapping[str, Filter],
    places: Mapping[str, int] | None = None,
) -> Bools:
    """The nodes that the filters allow each pod without the other pods, shape (pods, nodes).

    places: the node index of each running pod, by key. With it, other pods make room, and a running
    pod may stay. If a pod has constraints on other pods, filters that depend on other pods are left
    out; `refusal` checks them.
    """
    dependent = any(pod.affinity or pod.spread for pod in pods)
    skipped = _DEPEND_ON_OTHER_PODS if dependent else frozenset()
    tests = [test for name, test in filters.items() if name not in skipped]
    mask = np.ones((len(pods), len(view)), dtype=np.bool_)
    for pod, row in zip(pods, mask, strict=True):
        place = None if places is None else places.get(pod.key)
        without = view if place is None else view.without_placement(pod, place)
        for test in tests:
            result = test(without, pod)
            row &= result.passes if places is None else result.passes_with_preemption
        if place is not None:
            row[place] = True
    return mask


def unschedulable_reason(view: ClusterView, pods: Iterable[Pod]) -> str:
    """Why one of the pods can't be placed on any node; empty if all can."""
    problems = ((pod, pre_filter_failure(view, pod)) for pod in pods)
    return next((f"pod {pod.key}: {problem}" for pod, problem in problems if problem), "")


def refusal(
    view: ClusterView,
    pods: Iterable[Pod],
    placement: Mapping[str, str],
    filters: Mapping[str, Filter],
) -> str:
    """The first reason of a filter against placing the pods in this order; empty if there is
    none."""
    for pod in pods:
        node = view.table.index[placement[pod.key]]
        for name, test in filters.items():
            result = test(view, pod)
            if not result.passes[node]:
                where = f"pod {pod.key} on {placement[pod.key]}"
                return f"{where}: {name}: {result.reason(node)}"
        view = view.with_placement(pod, node)
    return ""
