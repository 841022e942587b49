"""A running pod's demand changes: it stays, migrates, or goes where the most is left.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Section 6.2. Nothing is moved
here; what to do comes back as data.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from leadline_controller.framework.cycle import Filter, Strategy, decide
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import Bools, ClusterView

RESOURCE_FILTERS = ("NodeResourcesFit", "NodeBandwidthFit")
_GIB = 1024**3


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Where a pod is from now on. case: "stay", its node has room for the change; "migrate", it
    has not, and another node has; "most left", none has, and this one has the most. node: its
    name, the old one too in the third case if that has the most. view: the cluster after it."""

    case: Literal["stay", "migrate", "most left"]
    node: str
    view: ClusterView


def settle(
    view: ClusterView,
    pod: Pod,
    changed: Pod,
    filters: Mapping[str, Filter],
    strategy: Strategy,
    random: Random,
    resource_filters: Collection[str] = RESOURCE_FILTERS,
) -> Settled:
    """Apply Section 6.2 to `pod`, which is on its `node_name` and counted in `view`, when it
    becomes `changed`, the same pod with other requests.

    It stays if r_i >= c' - c for CPU, memory and network. Otherwise it goes to a node that
    passes all filters with the new demand; of several the paper takes any, and this the one
    that `strategy` chooses. If there is none, it goes to the node with the most left, its own
    residual counted without it: the largest min{r^CPU, r^MEM} in cores and GiB, as in
    Algorithm 2, line 17; among nodes against which only `resource_filters` speak, and its own.
    It then asks for more than is there, and a kubelet would not take it on: what to do about
    that is the caller's to say.

    A link of unknown bandwidth has no room for more, but keeps what it was asked for.
    """
    here = view.table.index[pod.node_name or ""]
    gone = view.without_placement(pod, here)
    if _has_room(view, pod, changed, here):
        return Settled("stay", view.table.names[here], gone.with_placement(changed, here))
    decision = decide(gone, changed, filters, strategy, random)
    if decision.node is not None:
        there = gone.table.index[decision.node]
        after = gone.with_placement(changed, there, volumes=decision.volumes())
        return Settled("migrate", decision.node, after)
    others = {name: test for name, test in filters.items() if name not in resource_filters}
    there = _with_most_left(gone, _passing(gone, changed, others), here)
    return Settled("most left", view.table.names[there], gone.with_placement(changed, there))


def _has_room(view: ClusterView, pod: Pod, changed: Pod, node: int) -> bool:
    """Whether r_i >= c' - c, for every resource that is asked for."""
    more_mbps = (changed.hints.bandwidth_mbps or 0.0) - (pod.hints.bandwidth_mbps or 0.0)
    if more_mbps > 0 and not view.bandwidth_free_mbps()[node] >= more_mbps:
        return False
    return all(
        int(view.free(resource)[node]) >= amount - pod.requests.get(resource, 0)
        for resource, amount in changed.requests.items()
    )


def _passing(view: ClusterView, pod: Pod, filters: Mapping[str, Filter]) -> Bools:
    passing = view.table.all()
    for test in filters.values():
        passing &= test(view, pod).passes
    return passing


def _with_most_left(view: ClusterView, among: Bools, here: int) -> int:
    among = among.copy()
    among[here] = True
    room = np.minimum(view.free(CPU) / 1000, view.free(MEMORY) / _GIB)
    room = np.where(among, room, -np.inf)
    return here if room[here] == room.max() else int(room.argmax())
