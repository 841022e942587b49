"""The pods that are assigned to nodes, as columns, so that a count of matching pods per domain
takes a few array operations.

Pods with the same namespace and labels are one kind. The kinds are indexed by label, so that the
cost of a selector does not grow with the kinds that do not match.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from leadline_controller.framework.model import AffinityTerm, Pod
from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.selectors import Requirement, Selector

Value = TypeVar("Value", bound=Hashable)
R = TypeVar("R")
_MAX_CACHED = 1024


def mask_of(size: int, columns: Iterable["array[int] | None"]) -> Bools:
    """Which of the numbers below `size` are in one of the columns, shape (size,). A column is an
    array("q"): it grows, and numpy reads it without a copy."""
    mask = np.zeros(size, dtype=np.bool_)
    for numbers in columns:
        if numbers is not None:
            mask[np.frombuffer(numbers, dtype=np.int64)] = True
    return mask


class LabelIndex:
    """Sets of labels, numbered in the order of `add`, so that a selector need not test each."""

    def __init__(self, labels: Iterable[Mapping[str, str]] = ()) -> None:
        self._size = 0
        self._with_key: dict[str, array[int]] = {}
        self._with_value: dict[tuple[str, str], array[int]] = {}
        for each in labels:
            self.add(each)

    def __len__(self) -> int:
        return self._size

    def add(self, labels: Mapping[str, str]) -> None:
        """Add a set of labels."""
        for pair in labels.items():
            self._with_key.setdefault(pair[0], array("q")).append(self._size)
            self._with_value.setdefault(pair, array("q")).append(self._size)
        self._size += 1

    def selected(self, selector: Selector) -> Bools:
        """Which sets match the selector, shape (len(self),)."""
        passes = np.ones(self._size, dtype=np.bool_)
        for requirement in dict.fromkeys(selector):
            passes &= self._where(requirement)
        return passes

    def _where(self, requirement: Requirement) -> Bools:
        key = requirement.key
        match requirement.operator:
            case "In" | "NotIn":
                pairs = ((key, value) for value in requirement.values)
                found = mask_of(self._size, map(self._with_value.get, pairs))
            case "Exists" | "DoesNotExist":
                found = mask_of(self._size, [self._with_key.get(key)])
            case _:  # Gt and Lt exist only in node selectors
                found = mask_of(self._size, [])
        return ~found if requirement.operator in ("NotIn", "DoesNotExist") else found


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
        number = self._index.get(value)
        if number is None:
            number = self._index[value] = len(self.values)
            self.values.append(value)
            self._added(value, number)
        return number

    def _added(self, value: Value, number: int) -> None:
        """Called for each new value."""

    def where(self, key: Hashable, test: Callable[[R], bool], each: Sequence[R]) -> Bools:
        """Whether `test` holds for each of these, which have the numbers of the values. Cached
        under `key`, so that each is tested once."""
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
    """The kinds of pods, by number. by_label, by_namespace: their indexes."""

    def __init__(self) -> None:
        super().__init__()
        self.by_label = LabelIndex()
        self.by_namespace: dict[str, array[int]] = {}
        self._terminating = array("q")

    def _added(self, value: PodKind, number: int) -> None:
        self.by_label.add(value.labels)
        self.by_namespace.setdefault(value.namespace, array("q")).append(number)
        if value.terminating:
            self._terminating.append(number)

    def in_namespaces(self, namespaces: Iterable[str]) -> Bools:
        """The kinds in these namespaces, by number."""
        return mask_of(len(self), map(self.by_namespace.get, namespaces))

    def terminating(self) -> Bools:
        """The kinds whose pods are being deleted, by number."""
        return mask_of(len(self), [self._terminating])


ExistingAntiAffinity = tuple[AffinityTerm, ...]


class ExistingAntiAffinities(Interner[ExistingAntiAffinity]):
    """The required anti-affinity terms of assigned pods. topology_keys: of all terms. by_topology:
    topology key -> terms, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.topology_keys: set[str] = set()
        self.by_topology: list[dict[str, list[AffinityTerm]]] = []

    def _added(self, value: ExistingAntiAffinity, number: int) -> None:  # noqa: ARG002  # terms come in order
        terms: dict[str, list[AffinityTerm]] = {}
        for term in dict.fromkeys(value):
            terms.setdefault(term.topology_key, []).append(term)
        self.by_topology.append(terms)
        self.topology_keys.update(terms)


def kind_of(pod: Pod) -> PodKind:
    """The kind of a pod."""
    return PodKind(pod.namespace, frozenset(pod.labels.items()), pod.terminating, pod.labels)


@dataclass(frozen=True, slots=True, eq=False)
class AssignedPods:
    """The assigned pods of known nodes. rows: shape (4, pods): index of the node, number
    of the kind, number of the anti-affinity terms, priority."""

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
        return self.kinds.where(key, test, self.kinds.values)[self.kind]

    def having_anti_affinity(
        self, label: str, key: Hashable, test: Callable[[AffinityTerm], bool]
    ) -> Bools:
        """The pods with an anti-affinity term with this topology key that passes `test`, shape
        (pods,). See Interner.where."""
        terms = self.anti_affinities
        having = terms.where(
            (label, key), lambda each: any(map(test, each.get(label, ()))), terms.by_topology
        )
        return having[self._column(2)]

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
