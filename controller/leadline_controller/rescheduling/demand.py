"""A running pod asks for more than its node has, by a resize in place. Pure.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes" (DACS), Section 6.2. The API server
takes the new size of a pod at once (the subresource `resize`), and the kubelet carries it out if it
can. Where it cannot, this decides: the pod waits where it is, it goes to a node that has the room,
or to the one on which the most is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from leadline_controller.framework.cycle import FilterResult, Rule, decide, feasible_nodes, filtered
from leadline_controller.framework.model import CPU, MEMORY, PendingResize, Pod
from leadline_controller.framework.view import ClusterView

Case = Literal["stay", "migrate", "most left"]
_RESOURCE_FILTERS = ("NodeResourcesFit", "NodeBandwidthFit")
_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class DemandAnswer:
    """What to do about a pod whose demand has changed."""

    case: Case
    pod: Pod
    target: str | None  # the node that it moves to, with the room of `pod`; None if it stays
    why: str  # one sentence


def answer_demand(view: ClusterView, pod: Pod, rule: Rule) -> DemandAnswer | None:
    """Decide about a pod of `view` that is on its node; None if its demand has not changed.

    A move where the most is left keeps room for the pod as it is now, because no node has any for
    what it asks for, and a kubelet admits no pod without room; there its resize is asked for
    again. Where not even that fits, it stays.
    """
    resize, here = pod.resize, view.table.index.get(pod.node_name or "")
    if resize is None or here is None or pod.finished or pod.terminating:
        return None
    source = view.table.names[here]
    held, wanted = _with_requests(pod, resize.held), _with_requests(pod, resize.wanted)
    before = view.without_placement(pod, here).with_placement(held, here)
    before = replace(before, placed_in_run=np.zeros(len(view), dtype=np.int64))
    is_refused = resize.reason == "Infeasible"
    case, node = decide_changed_demand(before, held, wanted, rule, refused_here=is_refused)
    asks = f"it asks for {_difference(resize)}"
    if case == "stay":
        return DemandAnswer("stay", pod, None, f"{asks}, for which {source} has the room")
    if case == "migrate":
        why = f"{asks}, which {source} does not have ({resize.reason}) and {node} has"
        return DemandAnswer("migrate", wanted, node, why)
    why = f"{asks}, which no node has; the most is left on {node}"
    if node == source:
        return DemandAnswer("most left", pod, None, why)
    without, there = before.without_placement(held, here), view.table.index[node]
    for name, run in rule.filters.items():
        result = run(without, held)
        if not result.passes[there]:
            refused = f"{why}, but not even its present size fits there: {name}: "
            return DemandAnswer("most left", pod, None, refused + result.reason(there))
    return DemandAnswer("most left", held, node, why)


def decide_changed_demand(
    view: ClusterView, pod: Pod, changed: Pod, rule: Rule, *, refused_here: bool = False
) -> tuple[Case, str]:
    """Apply Section 6.2 to `pod`, which is assigned to its `node_name` and counted in `view`.
    changed: the same pod with its new requests. refused_here: its kubelet will never do it,
    whatever room there seems to be. Returns the case and the node.

    It stays if r_i >= c' - c for CPU, memory and network. Otherwise it goes to a node that
    passes all filters with the new demand; the paper takes any of them, this takes the
    strategy's choice. If there is none, it goes to the node with the largest min{r^CPU, r^MEM} in
    cores and GiB, as in Algorithm 2, line 17, among its own node (without the pod) and the nodes
    that fail only the filters of resources. That node is then overcommitted and a kubelet would
    not admit the pod, which the caller must handle.

    A link of unknown bandwidth has no room for more, but keeps the current demand.
    """
    names, here = view.table.names, view.table.index[pod.node_name or ""]
    if not refused_here and _has_room(view, pod, changed, here):
        return "stay", names[here]
    without = view.without_placement(pod, here)
    results = filtered(without, changed, rule.filters)
    if refused_here:
        elsewhere = np.arange(len(view)) != here
        results["InPlaceResize"] = FilterResult(elsewhere, lambda _: "the kubelet refuses it")
    decision = decide(without, changed, rule, results)
    if decision.node is not None:
        return "migrate", decision.node
    others = {name: each for name, each in results.items() if name not in _RESOURCE_FILTERS}
    nodes = np.union1d(feasible_nodes(without, others), here)
    left = np.minimum(without.free(CPU) / 1000, without.free(MEMORY) / _GIB)
    there = here if left[here] == left[nodes].max() else int(nodes[left[nodes].argmax()])
    return "most left", names[there]


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


def _with_requests(pod: Pod, requests: Mapping[str, int]) -> Pod:
    return replace(pod, requests=requests, resize=None)


def _difference(resize: PendingResize) -> str:
    """Such as "cpu 1 -> 3 cores, memory 1 -> 2 GiB"."""
    units = {CPU: (1000, "cores"), MEMORY: (_GIB, "GiB")}
    parts = [
        f"{name} {resize.held.get(name, 0) / per_unit:.3g} -> {amount / per_unit:.3g} {unit}"
        for name, (per_unit, unit) in units.items()
        if (amount := resize.wanted.get(name, 0)) != resize.held.get(name, 0)
    ]
    return ", ".join(parts) or "another size"
