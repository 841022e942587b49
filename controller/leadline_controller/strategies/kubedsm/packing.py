"""How pods pack onto the nodes of an edge: what KubeDSM's match and reorderEdge go by, pure.

"KubeDSM: A Kubernetes-based Dynamic Scheduling and Migration Framework for Cloud-Assisted Edge
Clusters", Eq. 13. Pods that want the same and may go to the same nodes are one kind, and sets
that differ only in which of them they name are tried once. That is as exact as trying every
subset, over fewer of them; where even those are too many, a bounded search says that it ran.

Amounts are in base units, CPU in the first column and memory in the second.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints

NOWHERE = -1
EXACT_STATES = 4096  # as many as 12 pods have subsets
ALIKE = 1e-9  # sums of the same fractions in another order differ by less


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """The edge nodes. capacity, used: shape (nodes, resources)."""

    capacity: Ints
    used: Ints

    @property
    def free(self) -> Ints:
        """What is left, shape (nodes, resources); never negative."""
        left: Ints = np.maximum(self.capacity - self.used, 0)
        return left

    def with_pod(self, wants: Ints, node: int) -> "Edge":
        """After a pod that wants this, shape (resources,), came to the node."""
        used = self.used.copy()
        used[node] += wants
        return replace(self, used=used)

    def without_pod(self, wants: Ints, node: int) -> "Edge":
        """After a pod that has this left the node."""
        return self.with_pod(-wants, node)


def packed(capacity: Ints, used: Ints) -> Floats:
    """Product of the used fractions of CPU and memory of each node, shape (...,); 0 where a node
    has none of one of them."""
    sizes = capacity[..., :2].astype(np.float64)
    fractions = np.divide(used[..., :2], sizes, out=np.zeros(used[..., :2].shape), where=sizes > 0)
    product: Floats = fractions.prod(axis=-1)
    return product


def fragmentation(edge: Edge) -> float:
    """Eq. 13, whose text is lost: less the sum over the nodes of the products of the used
    fractions, which is what the authors' program minimises."""
    return -float(packed(edge.capacity, edge.used).sum())


def fits_in(need: Ints, room: Ints) -> Bools:
    """Whether each resource that is needed at all is there, over the last axis."""
    fit: Bools = np.all((need <= 0) | (need <= room), axis=-1, keepdims=False)
    return fit


def kinds_of(keys: Sequence[Hashable]) -> list[list[int]]:
    """Positions of equal keys, in the order in which each first comes."""
    found: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, []).append(at)
    return list(found.values())


def lattice(counts: Sequence[int]) -> Ints:
    """How many of each kind a set holds, for all sets: shape (sets, kinds), the empty set first."""
    grid = np.indices([count + 1 for count in counts])
    return grid.reshape(len(counts), -1).T.astype(np.int64)


def sets(counts: Sequence[int]) -> int:
    """How many sets `lattice` has."""
    return prod(count + 1 for count in counts)
