"""kube-scheduler: what Kubernetes' own scheduler would choose, as a baseline.

The default profile's Score plugins with their weights, as of Kubernetes 1.36
(pkg/scheduler/apis/config/v1/default_plugins.go), beside its filters, which Leadline has. The
paper's formula, without images, affinities and balance, is kube-default.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from leadline_controller.framework.cycle import Scores, Strategy, best
from leadline_controller.framework.image_layers import full_name
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.framework.view import ClusterView, Floats, Ints
from leadline_controller.preferences import PREFERENCES

_MOST = 100  # MaxNodeScore
_RESOURCES = (CPU, MEMORY)
# For each container without requests: DefaultMilliCPURequest, DefaultMemoryRequest.
_DEFAULTS = {CPU: 100, MEMORY: 200 * 1024**2}
# imagelocality/image_locality.go
_MB = 1024 * 1024
_LEAST_BYTES, _MOST_BYTES = 23 * _MB, 1000 * _MB


def defaults_of(pod: Pod) -> dict[str, int]:
    """What kube-scheduler adds to the requests of a pod that states none, as it does for each of
    its containers. Of a pod that states some, nobody here knows which container does not."""
    count = max(len(pod.images), 1)
    return {
        name: count * each for name, each in _DEFAULTS.items() if not pod.requests.get(name, 0)
    }


class Unstated:
    """What defaults_of adds on each node, kept current by whoever knows the pods. on_nodes: node ->
    resource -> amount."""

    def __init__(self) -> None:
        self.on_nodes: dict[str, Counter[str]] = {}
        self._pods: dict[str, tuple[str, dict[str, int]]] = {}

    def put(self, pod: Pod) -> None:
        """A pod as it is now."""
        self.drop(pod.uid)
        if pod.node_name is not None and not pod.finished and (added := defaults_of(pod)):
            self._pods[pod.uid] = pod.node_name, added
            self.on_nodes.setdefault(pod.node_name, Counter()).update(added)

    def drop(self, uid: str) -> None:
        """It is gone."""
        if (found := self._pods.pop(uid, None)) is not None:
            self.on_nodes[found[0]].subtract(found[1])


@dataclass(frozen=True, slots=True)
class KubeScheduler(Strategy):
    """The highest sum of NodeResourcesFit (LeastAllocated), NodeResourcesBalancedAllocation,
    ImageLocality, TaintToleration, NodeAffinity, PodTopologySpread and InterPodAffinity, each 0 to
    100 with its default weight; ties at random. Needs nothing measured.

    assumed: Unstated.on_nodes; without it, pods on nodes count with what they state.
    """

    name = "kube-scheduler"
    better = "higher"
    paper = "none: Kubernetes 1.36, its default profile"
    needs = ()

    assumed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """The weighted sum of the plugins' scores."""
        parts = {
            "NodeResourcesFit": self._least_allocated(view, pod, candidates),
            "NodeResourcesBalancedAllocation": _balanced_allocation(view, pod, candidates),
            "ImageLocality": _image_locality(view, pod, candidates),
        }
        total = np.zeros(candidates.size, dtype=np.int64)
        for column in parts.values():
            total += column
        for name, (score, weight) in PREFERENCES.items():
            if (found := score(view, pod, candidates)) is not None:
                parts[name] = found.normalized
                total += weight * found.normalized
        sums = total.astype(np.float64)

        def why(at: int) -> str:
            return ", ".join(f"{name} {column[at]}" for name, column in parts.items())

        columns: dict[str, Floats] = {name: c.astype(np.float64) for name, c in parts.items()}
        return Scores(candidates, sums, best(sums, self.better), why, columns)

    def _least_allocated(self, view: ClusterView, pod: Pod, nodes: Ints) -> Ints:
        """noderesources/least_allocated.go: the mean of the free shares of CPU and memory."""
        own = defaults_of(pod)
        total, count = np.zeros(nodes.size, dtype=np.int64), np.zeros(nodes.size, dtype=np.int64)
        for name in _RESOURCES:
            capacity = view.table.allocatable(name)[nodes]
            requested = view.requested_of(name)[nodes] + pod.requests.get(name, 0)
            requested += own.get(name, 0)
            if self.assumed:
                names = view.table.names
                more = [self.assumed.get(names[at], {}).get(name, 0) for at in nodes.tolist()]
                requested += np.array(more, dtype=np.int64)
            known = capacity > 0
            left = np.where(requested > capacity, 0, capacity - requested)
            total += np.where(known, left * _MOST // np.maximum(capacity, 1), 0)
            count += known
        return total // np.maximum(count, 1)


def _balanced_allocation(view: ClusterView, pod: Pod, nodes: Ints) -> Ints:
    """noderesources/balanced_allocation.go: whether the shares of CPU and memory become more alike.
    It skips pods without requests."""
    if not any(pod.requests.get(name, 0) for name in _RESOURCES):
        return np.zeros(nodes.size, dtype=np.int64)
    capacity = np.array([view.table.allocatable(name)[nodes] for name in _RESOURCES])
    before = np.array([view.requested_of(name)[nodes] for name in _RESOURCES])
    own = np.array([[pod.requests.get(name, 0)] for name in _RESOURCES])

    def balance(requested: Ints) -> Ints:
        shares = np.minimum(requested / np.maximum(capacity, 1), 1.0)
        deviation = np.where((capacity > 0).all(axis=0), np.abs(shares[0] - shares[1]) / 2, 0.0)
        found: Ints = ((1 - deviation) * _MOST).astype(np.int64)
        return found

    found: Ints = _MOST // 2 + (_MOST // 2 + balance(before + own) - balance(before)) // 2
    return found


def _image_locality(view: ClusterView, pod: Pod, nodes: Ints) -> Ints:
    """imagelocality/image_locality.go: the size of the pod's images in the node's status, each by
    the share of nodes that have it."""
    total = np.zeros(len(view), dtype=np.int64)
    images = (*pod.init_images, *pod.images)
    for image in images:
        name = full_name(image)
        sizes = np.zeros(len(view))
        for at, node in enumerate(view.nodes):
            for each in node.images:
                if full_name(each.name) == name:
                    sizes[at] = sum(layer.size_mb for layer in each.layers) * 1e6
                    break
        total += (sizes * (np.count_nonzero(sizes) / max(len(view), 1))).astype(np.int64)
    most = _MOST_BYTES * max(len(images), 1)
    clipped = np.clip(total[nodes], _LEAST_BYTES, most)
    found: Ints = _MOST * (clipped - _LEAST_BYTES) // (most - _LEAST_BYTES)
    return found
