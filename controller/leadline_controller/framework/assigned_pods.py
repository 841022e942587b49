"""The pods that are assigned to nodes, as columns, so that a count of matching pods per domain
takes a few array operations.

Pods with the same namespace and labels are one kind. The kinds are indexed by label, so that the
cost of a selector does not grow with the kinds that do not match.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from leadline_controller.framework.demands import AffinityTerm
from leadline_controller.framework.labels import GrowingColumn, LabelIndex, mask_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.selectors import Selector

Value = TypeVar("Value", bound=Hashable)
R = TypeVar("R")
_MAX_CACHED = 1024


class Interner(Generic[Value]):
    """Gives each distinct value a number. It only grows, so that views can share it."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._index: dict[Value, int] = {}
        self._found: dict[Hashable, Bools] = {}

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: Value) -> int:
        """The number of this value; a new value gets the next one."""
        number = self._index.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def where(self, key: Hashable, test: Callable[[Value], bool]) -> Bools:
        """Whether `test` holds for each value, by number. Cached under `key`, so that each value
        is tested once."""
        return self._cached(key, test, self.values)

    def _cached(self, key: Hashable, test: Callable[[R], bool], each: Sequence[R]) -> Bools:
        """See `where`. each: the tested objects, by number."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MAX_CACHED:  # pods determine the keys
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
    """The labels of the namespaces, by name; unknown ones are missing."""

    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def selected(self, selector: Selector) -> list[str]:
        """The names of the namespaces whose labels match."""
        return [self._names[i] for i in np.flatnonzero(self._index.selected(selector))]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.labels)

    @cached_property
    def _index(self) -> LabelIndex:
        return LabelIndex(self.labels.values())


@dataclass(frozen=True, slots=True)
class PodKind:
    """The properties of a pod that selectors can see. `pairs` and `labels` are the same labels,
    to compare and to look up."""

    namespace: str
    pairs: frozenset[tuple[str, str]]
    terminating: bool
    labels: Mapping[str, str] = field(compare=False)


class Kinds(Interner[PodKind]):
    """The kinds of pods, indexed by namespace and label."""

    def __init__(self) -> None:
        super().__init__()
        self._by_label = LabelIndex()
        self._by_namespace: dict[str, GrowingColumn] = {}
        self._terminating = GrowingColumn()

    @property
    def namespaces(self) -> Set[str]:
        """The namespaces of all kinds."""
        return self._by_namespace.keys()

    def number(self, value: PodKind) -> int:
        """See Interner."""
        number = super().number(value)
        if number == len(self._by_label):
            self._by_label.add(value.labels)
            self._by_namespace.setdefault(value.namespace, GrowingColumn()).append(number)
            if value.terminating:
                self._terminating.append(number)
        return number

    def selected(self, selector: Selector) -> Bools:
        """The kinds whose labels match, by number."""
        return self._by_label.selected(selector)

    def in_namespaces(self, namespaces: Iterable[str]) -> Bools:
        """The kinds in these namespaces, by number."""
        return mask_of(len(self), map(self._by_namespace.get, namespaces))

    def terminating(self) -> Bools:
        """The kinds whose pods are being deleted, by number."""
        return mask_of(len(self), [self._terminating])


ExistingAntiAffinity = tuple[AffinityTerm, ...]


class ExistingAntiAffinities(Interner[ExistingAntiAffinity]):
    """The required anti-affinity terms of assigned pods. topology_keys: of all terms."""

    def __init__(self) -> None:
        super().__init__()
        self.topology_keys: set[str] = set()
        self._by_topology: list[dict[str, list[AffinityTerm]]] = []

    def number(self, value: ExistingAntiAffinity) -> int:
        """See Interner."""
        number = super().number(value)
        if number == len(self._by_topology):
            terms: dict[str, list[AffinityTerm]] = {}
            for term in dict.fromkeys(value):
                terms.setdefault(term.topology_key, []).append(term)
            self._by_topology.append(terms)
            self.topology_keys.update(terms)
        return number

    def having_term(self, label: str, key: Hashable, test: Callable[[AffinityTerm], bool]) -> Bools:
        """Whether `test` holds for a term with this topology key, by number. See `where`."""
        return self._cached(
            (label, key), lambda terms: any(map(test, terms.get(label, ()))), self._by_topology
        )


def kind_of(pod: Pod) -> PodKind:
    """The kind of a pod."""
    return PodKind(pod.namespace, frozenset(pod.labels.items()), pod.terminating, pod.labels)


@dataclass(frozen=True, slots=True, eq=False)
class AssignedPods:
    """The assigned pods of known nodes. rows: shape (4, pods), one property in each row."""

    kinds: Kinds = field(default_factory=Kinds)
    anti_affinities: ExistingAntiAffinities = field(default_factory=ExistingAntiAffinities)
    rows: Ints = field(default_factory=lambda: np.zeros((4, 0), dtype=np.int64))

    @property
    def node(self) -> Ints:
        """Index of each pod's node."""
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
        """The properties of a pod on this node."""
        kind = self.kinds.number(kind_of(pod))
        return node, kind, self.anti_affinities.number(pod.anti_affinity), pod.priority

    def of_kind(self, key: Hashable, test: Callable[[PodKind], bool]) -> Bools:
        """The pods whose kind passes `test`, shape (pods,). See Interner.where."""
        if not self.rows.shape[1]:
            return np.zeros(0, dtype=np.bool_)
        return self.kinds.where(key, test)[self.kind]

    def having_anti_affinity(
        self, label: str, key: Hashable, test: Callable[[AffinityTerm], bool]
    ) -> Bools:
        """The pods with an anti-affinity term with this topology key that passes `test`, shape
        (pods,). See Interner.where."""
        if not self.rows.shape[1]:
            return np.zeros(0, dtype=np.bool_)
        return self.anti_affinities.having_term(label, key, test)[self.anti_affinity_id]

    def per_node(self, chosen: Bools, nodes: int) -> Ints:
        """The number of chosen pods on each of the nodes, shape (nodes,)."""
        return np.bincount(self.node[chosen], minlength=nodes)

    def with_pods(self, pods: Iterable[tuple[Pod, int]]) -> "AssignedPods":
        """With more pods, each with the index of its node."""
        added = [self.row(pod, node) for pod, node in pods]
        rows = np.array(added, dtype=np.int64).reshape(len(added), 4).T
        return replace(self, rows=np.concatenate((self.rows, rows), axis=1))

    def without(self, pod: Pod, node: int) -> "AssignedPods":
        """Without one such pod on the node; unchanged if there is none."""
        row = np.array(self.row(pod, node), dtype=np.int64)
        found = np.flatnonzero((self.rows == row[:, np.newaxis]).all(axis=0))
        return replace(self, rows=np.delete(self.rows, found[:1], axis=1))
