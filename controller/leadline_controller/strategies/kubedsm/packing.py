"""How pods pack onto edge nodes: the arithmetic of KubeDSM's match and reorderEdge. Pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 13. Pods with equal requests and equal feasible nodes form a group, and subsets that
take equally many pods of each group are tried once. This is as exact as trying every subset. If
there are still too many, a bounded search runs instead, and its result is marked as not exact.

Amounts are in base units, CPU in the first column and memory in the second.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints

NO_NODE = -1
MAX_EXACT_SUBSETS = 4096  # 12 distinct pods have as many subsets
TOLERANCE = 1e-9  # sums of the same fractions in another order differ by less


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """The edge nodes. capacity, used: shape (nodes, resources)."""

    capacity: Ints
    used: Ints

    @property
    def free(self) -> Ints:
        """Free resources, shape (nodes, resources), never negative."""
        left: Ints = np.maximum(self.capacity - self.used, 0)
        return left

    def with_pod(self, requests: Ints, node: int) -> "Edge":
        """The edge with a pod's requests, shape (resources,), added to a node."""
        used = self.used.copy()
        used[node] += requests
        return replace(self, used=used)

    def without_pod(self, requests: Ints, node: int) -> "Edge":
        """The edge with a pod's requests removed from a node."""
        return self.with_pod(-requests, node)


def used_product(capacity: Ints, used: Ints) -> Floats:
    """Product of the used fractions of CPU and memory of each node, shape (...,); 0 for a node
    without CPU or memory."""
    sizes = capacity[..., :2].astype(np.float64)
    fractions = np.divide(used[..., :2], sizes, out=np.zeros(used[..., :2].shape), where=sizes > 0)
    product: Floats = fractions.prod(axis=-1)
    return product


def fragmentation(edge: Edge) -> float:
    """Eq. 13, whose text is lost: minus the sum over the nodes of the products of the used
    fractions, which the authors' program minimises."""
    return -float(used_product(edge.capacity, edge.used).sum())


def fits_in(need: Ints, room: Ints) -> Bools:
    """Whether every needed resource is available, over the last axis."""
    fit: Bools = np.all((need <= 0) | (need <= room), axis=-1, keepdims=False)
    return fit


def group_equal(keys: Sequence[Hashable]) -> list[list[int]]:
    """Positions of equal keys, in the order of first occurrence."""
    found: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return list(found.values())


def all_subsets(counts: Sequence[int]) -> Ints:
    """The number of pods of each group, for all subsets: shape (subsets, groups), the empty one
    first. counts: pods in each group."""
    grid = np.indices([count + 1 for count in counts])
    return grid.reshape(len(counts), -1).T.astype(np.int64)


def subset_count(counts: Sequence[int]) -> int:
    """The number of rows of `all_subsets`."""
    return prod(count + 1 for count in counts)
