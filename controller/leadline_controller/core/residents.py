"""The pods that are on nodes, as columns, so that "how many of such pods has each domain" is a
few array operations however many pods there are.

Pods with the same namespace and labels are one kind, and a selector is tried once on a kind.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from leadline_controller.core.demands import AffinityTerm
from leadline_controller.core.model import Pod
from leadline_controller.core.nodes import Bools, Ints

Value = TypeVar("Value", bound=Hashable)
_MOST_REMEMBERED = 1024


class Interned(Generic[Value]):
    """Numbered values, each kept once. Only ever grows, so that views may share it."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._index: dict[Value, int] = {}
        self._found: dict[Hashable, Bools] = {}

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: Value) -> int:
        """The number of this value, a new one if it was not met before."""
        number = self._index.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def where(self, key: Hashable, test: Callable[[Value], bool]) -> Bools:
        """Whether `test` holds for each value, by its number. Remembered under `key`, so a
        test is made once for each value."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST_REMEMBERED:  # pods choose the keys
                self._found.clear()
            found = np.zeros(0, dtype=np.bool_)
        if found.size < len(self.values):
            fresh = [test(value) for value in self.values[found.size :]]
            found = np.concatenate((found, np.array(fresh, dtype=np.bool_)))
            found.flags.writeable = False
        self._found[key] = found
        return found


@dataclass(frozen=True, slots=True)
class Namespaces:
    """What is known of the namespaces' labels. version: another one after every change."""

    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True, slots=True)
class PodKind:
    """What selectors can tell pods apart by. `labels` is `pairs` to look things up in."""

    namespace: str
    pairs: frozenset[tuple[str, str]]
    terminating: bool
    labels: Mapping[str, str] = field(compare=False)


Aversion = tuple[AffinityTerm, ...]


class Aversions(Interned[Aversion]):
    """The required anti-affinity terms that pods have. topology_keys: of all the terms."""

    def __init__(self) -> None:
        super().__init__()
        self.topology_keys: set[str] = set()

    def number(self, value: Aversion) -> int:
        """See Interned."""
        self.topology_keys.update(term.topology_key for term in value)
        return super().number(value)


def kind_of(pod: Pod) -> PodKind:
    """The kind that a pod belongs to."""
    return PodKind(pod.namespace, frozenset(pod.labels.items()), pod.terminating, pod.labels)


def _no_rows() -> Ints:
    return np.zeros((4, 0), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Residents:
    """One column a pod that is on a known node; rows: shape (4, pods), see the properties."""

    kinds: Interned[PodKind] = field(default_factory=Interned)
    aversions: Aversions = field(default_factory=Aversions)
    rows: Ints = field(default_factory=_no_rows)

    @property
    def node(self) -> Ints:
        """Index of the node that each pod is on."""
        return self._column(0)

    @property
    def kind(self) -> Ints:
        """Number of each pod's kind."""
        return self._column(1)

    @property
    def aversion(self) -> Ints:
        """Number of each pod's anti-affinity terms."""
        return self._column(2)

    @property
    def priority(self) -> Ints:
        """Each pod's priority."""
        return self._column(3)

    def _column(self, number: int) -> Ints:
        column: Ints = self.rows[number]
        return column

    def row(self, pod: Pod, node: int) -> tuple[int, int, int, int]:
        """The entries of a pod on this node."""
        kind, aversion = self.kinds.number(kind_of(pod)), self.aversions.number(pod.anti_affinity)
        return node, kind, aversion, pod.priority

    def of_kind(self, key: Hashable, test: Callable[[PodKind], bool]) -> Bools:
        """Which pods are of a kind for which `test` holds, shape (pods,). See Interned.where."""
        if not self.rows.shape[1]:
            return np.zeros(0, dtype=np.bool_)
        return self.kinds.where(key, test)[self.kind]

    def averse(self, key: Hashable, test: Callable[[Aversion], bool]) -> Bools:
        """Which pods have anti-affinity terms for which `test` holds, shape (pods,)."""
        if not self.rows.shape[1]:
            return np.zeros(0, dtype=np.bool_)
        return self.aversions.where(key, test)[self.aversion]

    def per_node(self, chosen: Bools, nodes: int) -> Ints:
        """How many of the chosen pods each of that many nodes has, shape (nodes,)."""
        return np.bincount(self.node[chosen], minlength=nodes)

    def with_pods(self, pods: Iterable[tuple[Pod, int]]) -> "Residents":
        """These and more, each with the index of its node."""
        added = [self.row(pod, node) for pod, node in pods]
        rows = np.array(added, dtype=np.int64).reshape(len(added), 4).T
        return replace(self, rows=np.concatenate((self.rows, rows), axis=1))

    def without(self, pod: Pod, node: int) -> "Residents":
        """These without one pod like this on the node; the same where there is none."""
        row = np.array(self.row(pod, node), dtype=np.int64)
        found = np.flatnonzero((self.rows == row[:, np.newaxis]).all(axis=0))
        return replace(self, rows=np.delete(self.rows, found[:1], axis=1))
