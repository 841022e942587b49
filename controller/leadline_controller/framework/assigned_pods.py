"""The pods that are on nodes, as columns, so that "how many of such pods has each domain" is a
few array operations however many pods there are.

Pods with the same namespace and labels are one kind. The kinds are indexed by their labels, so
that what a selector costs does not grow with the number of kinds that it leaves out.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from leadline_controller.framework.demands import AffinityTerm
from leadline_controller.framework.labels import LabelIndex, Numbers
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.selectors import Selector

Value = TypeVar("Value", bound=Hashable)
Some = TypeVar("Some")
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
        return self._remembered(key, test, self.values)

    def _remembered(
        self, key: Hashable, test: Callable[[Some], bool], each: Sequence[Some]
    ) -> Bools:
        """See `where`. each: what is tested, by number."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST_REMEMBERED:  # pods choose the keys
                self._found.clear()
            found = np.zeros(0, dtype=np.bool_)
        if found.size < len(each):
            fresh = [test(value) for value in each[found.size :]]
            found = np.concatenate((found, np.array(fresh, dtype=np.bool_)))
            found.flags.writeable = False
        self._found[key] = found
        return found


@dataclass(frozen=True)
class Namespaces:
    """What is known of the namespaces' labels."""

    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def selected(self, selector: Selector) -> list[str]:
        """The names of those whose labels match."""
        return [self._names[i] for i in np.flatnonzero(self._index.selected(selector))]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.labels)

    @cached_property
    def _index(self) -> LabelIndex:
        return LabelIndex(self.labels.values())


@dataclass(frozen=True, slots=True)
class PodKind:
    """What selectors can tell pods apart by. `labels` is `pairs` to look things up in."""

    namespace: str
    pairs: frozenset[tuple[str, str]]
    terminating: bool
    labels: Mapping[str, str] = field(compare=False)


class Kinds(Interned[PodKind]):
    """The kinds of pods that were met, indexed by namespace and labels."""

    def __init__(self) -> None:
        super().__init__()
        self._by_label = LabelIndex()
        self._by_namespace: dict[str, Numbers] = {}
        self._terminating = Numbers()

    @property
    def namespaces(self) -> Set[str]:
        """All namespaces that there are kinds in."""
        return self._by_namespace.keys()

    def number(self, value: PodKind) -> int:
        """See Interned."""
        number = super().number(value)
        if number == len(self._by_label):
            self._by_label.add(value.labels)
            self._by_namespace.setdefault(value.namespace, Numbers()).append(number)
            if value.terminating:
                self._terminating.append(number)
        return number

    def selected(self, selector: Selector) -> Bools:
        """The kinds whose labels match, by number."""
        return self._by_label.selected(selector)

    def living_in(self, namespaces: Iterable[str]) -> Bools:
        """The kinds in these namespaces, by number."""
        return self._marked(self._by_namespace.get(name) for name in namespaces)

    def terminating(self) -> Bools:
        """The kinds of pods that are being deleted, by number."""
        return self._marked([self._terminating])

    def _marked(self, found: Iterable[Numbers | None]) -> Bools:
        marked = np.zeros(len(self), dtype=np.bool_)
        for numbers in found:
            if numbers is not None:
                marked[numbers.column] = True
        return marked


ExistingAntiAffinity = tuple[AffinityTerm, ...]


class ExistingAntiAffinities(Interned[ExistingAntiAffinity]):
    """The required anti-affinity terms that pods have. topology_keys: of all the terms."""

    def __init__(self) -> None:
        super().__init__()
        self.topology_keys: set[str] = set()
        self._by_topology: list[dict[str, list[AffinityTerm]]] = []

    def number(self, value: ExistingAntiAffinity) -> int:
        """See Interned."""
        number = super().number(value)
        if number == len(self._by_topology):
            terms: dict[str, list[AffinityTerm]] = {}
            for term in dict.fromkeys(value):
                terms.setdefault(term.topology_key, []).append(term)
            self._by_topology.append(terms)
            self.topology_keys.update(terms)
        return number

    def against(self, label: str, key: Hashable, test: Callable[[AffinityTerm], bool]) -> Bools:
        """Whether `test` holds for one of the terms over this label, by number. See where."""
        return self._remembered(
            (label, key), lambda terms: any(map(test, terms.get(label, ()))), self._by_topology
        )


def kind_of(pod: Pod) -> PodKind:
    """The kind that a pod belongs to."""
    return PodKind(pod.namespace, frozenset(pod.labels.items()), pod.terminating, pod.labels)


def _no_rows() -> Ints:
    return np.zeros((4, 0), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class AssignedPods:
    """One column a pod that is on a known node; rows: shape (4, pods), see the properties."""

    kinds: Kinds = field(default_factory=Kinds)
    aversions: ExistingAntiAffinities = field(default_factory=ExistingAntiAffinities)
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
    def anti_affinity_id(self) -> Ints:
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
        kind, anti_affinity_id = (
            self.kinds.number(kind_of(pod)),
            self.aversions.number(pod.anti_affinity),
        )
        return node, kind, anti_affinity_id, pod.priority

    def of_kind(self, key: Hashable, test: Callable[[PodKind], bool]) -> Bools:
        """Which pods are of a kind for which `test` holds, shape (pods,). See Interned.where."""
        if not self.rows.shape[1]:
            return np.zeros(0, dtype=np.bool_)
        return self.kinds.where(key, test)[self.kind]

    def having_anti_affinity(
        self, label: str, key: Hashable, test: Callable[[AffinityTerm], bool]
    ) -> Bools:
        """Which pods have an anti-affinity term over this label for which `test` holds, shape
        (pods,). See Aversions.against."""
        if not self.rows.shape[1]:
            return np.zeros(0, dtype=np.bool_)
        return self.aversions.against(label, key, test)[self.anti_affinity_id]

    def per_node(self, chosen: Bools, nodes: int) -> Ints:
        """How many of the chosen pods each of that many nodes has, shape (nodes,)."""
        return np.bincount(self.node[chosen], minlength=nodes)

    def with_pods(self, pods: Iterable[tuple[Pod, int]]) -> "AssignedPods":
        """These and more, each with the index of its node."""
        added = [self.row(pod, node) for pod, node in pods]
        rows = np.array(added, dtype=np.int64).reshape(len(added), 4).T
        return replace(self, rows=np.concatenate((self.rows, rows), axis=1))

    def without(self, pod: Pod, node: int) -> "AssignedPods":
        """These without one pod like this on the node; the same where there is none."""
        row = np.array(self.row(pod, node), dtype=np.int64)
        found = np.flatnonzero((self.rows == row[:, np.newaxis]).all(axis=0))
        return replace(self, rows=np.delete(self.rows, found[:1], axis=1))
