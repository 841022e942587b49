"""A running pod asks for more than its node has: DACS, Section 6.2, for resizes in place. Pure.

The API server takes the new size of a pod at once (the subresource `resize`), and the kubelet
carries it out if it can. Where it cannot, this decides: the pod waits where it is, it goes to a
node that has the room, or to the one on which the most is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

import numpy as np

from leadline_controller.framework.cycle import Filter, Prefer, Strategy, filters_with
from leadline_controller.framework.model import CPU, MEMORY, PendingResize, Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.shared.changed_demand import decide_changed_demand

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class DemandAnswer:
    """What to do about a pod whose demand has changed. target: the node that it moves to, with the
    room of `pod`; None if it stays. why: one sentence."""

    case: Literal["stay", "migrate", "most left"]
    pod: Pod
    target: str | None
    why: str


def answer_demand(
    view: ClusterView,
    pod: Pod,
    filters: Mapping[str, Filter],
    strategy: Strategy,
    random: Random,
    prefer: Prefer | None = None,
) -> DemandAnswer | None:
    """Decide about a pod of `view` that is on its node; None if its demand has not changed. prefer:
    as in `decide`.

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
    every = filters_with(filters, strategy)
    found = decide_changed_demand(
        *(before, held, wanted, every, strategy, random),
        refused_here=resize.reason == "Infeasible",
        prefer=prefer,
    )
    asks = f"it asks for {_difference(resize)}"
    if found.case == "stay":
        return DemandAnswer("stay", pod, None, f"{asks}, for which {source} has the room")
    if found.case == "migrate":
        why = f"{asks}, which {source} does not have ({resize.reason}) and {found.node} has"
        return DemandAnswer("migrate", wanted, found.node, why)
    why = f"{asks}, which no node has; the most is left on {found.node}"
    if found.node == source:
        return DemandAnswer("most left", pod, None, why)
    without, there = before.without_placement(held, here), view.table.index[found.node]
    for name, run in every.items():
        result = run(without, held)
        if not result.passes[there]:
            refused = f"{why}, but not even its present size fits there: {name}: "
            return DemandAnswer("most left", pod, None, refused + result.reason(there))
    return DemandAnswer("most left", held, found.node, why)


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
