"""The demand of a running pod changes: it stays, migrates, or goes to the node with the most left.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Section 6.2. This only decides;
the caller carries the decision out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from leadline_controller.framework.cycle import (
    Filter,
    FilterResult,
    Prefer,
    Strategy,
    decide,
    feasible_nodes,
)
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import ClusterView

RESOURCE_FILTERS = ("NodeResourcesFit", "NodeBandwidthFit")
_GIB = 1024**3


@dataclass(frozen=True, slots=True, eq=False)
class ChangedDemandDecision:
    """The node for a pod after its change. case: "stay" if its node has room for the change,
    "migrate" if only another node has, "most left" if none has. node: its name, in the third case
    possibly the old one. view: the view after it."""

    case: Literal["stay", "migrate", "most left"]
    node: str
    view: ClusterView


def decide_changed_demand(
    view: ClusterView,
    pod: Pod,
    changed: Pod,
    filters: Mapping[str, Filter],
    strategy: Strategy,
    random: Random,
    resource_filters: Collection[str] = RESOURCE_FILTERS,
    *,
    refused_here: bool = False,
    prefer: Prefer | None = None,
) -> ChangedDemandDecision:
    """Apply Section 6.2 to `pod`, which is assigned to its `node_name` and counted in `view`.
    changed: the same pod with its new requests. refused_here: its kubelet will never do it,
    whatever room there seems to be. prefer: as in `decide`.

    It stays if r_i >= c' - c for CPU, memory and network. Otherwise it goes to a node that
    passes all filters with the new demand; the paper takes any of them, this takes the
    strategy's choice. If there is none, it goes to the node with the largest min{r^CPU, r^MEM} in
    cores and GiB, as in Algorithm 2, line 17, among its own node (without the pod) and the nodes
    that fail only `resource_filters`. That node is then overcommitted and a kubelet would not
    admit the pod, which the caller must handle.

    A link of unknown bandwidth has no room for more, but keeps the current demand.
    """
    here = view.table.index[pod.node_name or ""]
    without_pod = view.without_placement(pod, here)
    if refused_here:
        elsewhere = FilterResult(np.arange(len(view)) != here, lambda _: "the kubelet refuses it")
        filters = {**filters, "InPlaceResize": lambda _view, _pod: elsewhere}
    elif _has_room(view, pod, changed, here):
        return ChangedDemandDecision(
            "stay", view.table.names[here], without_pod.with_placement(changed, here)
        )
    decision = decide(without_pod, changed, filters, strategy, random, prefer)
    if decision.node is not None:
        there = without_pod.table.index[decision.node]
        after = without_pod.with_placement(changed, there, volumes=decision.volumes())
        return ChangedDemandDecision("migrate", decision.node, after)
    others = {name: run for name, run in filters.items() if name not in resource_filters}
    results = {name: run(without_pod, changed) for name, run in others.items()}
    nodes = np.union1d(feasible_nodes(without_pod, results), here)
    left = np.minimum(without_pod.free(CPU) / 1000, without_pod.free(MEMORY) / _GIB)
    there = here if left[here] == left[nodes].max() else int(nodes[left[nodes].argmax()])
    return ChangedDemandDecision(
        "most left", view.table.names[there], without_pod.with_placement(changed, there)
    )


def _has_room(view: ClusterView, pod: Pod, changed: Pod, node: int) -> bool:
    """Whether r_i >= c' - c for every requested resource."""
    more_mbps = (changed.annotations.bandwidth_mbps or 0.0) - (
        pod.annotations.bandwidth_mbps or 0.0
    )
    if more_mbps > 0 and not view.bandwidth_possible_mbps()[node] >= more_mbps:
        return False
    return all(
        int(view.free(resource)[node]) >= amount - pod.requests.get(resource, 0)
        for resource, amount in changed.requests.items()
    )
