"""The pods that are assigned to nodes, as columns, so that a count of matching pods per domain
takes a few array operations.

Pods with the same namespace, labels and owner are one kind. The kinds are indexed by label, so that
the cost of a selector does not grow with the kinds that do not match.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from leadline_controller.framework.model import AffinityTerm, Pod, WeightedTerm
from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.selectors import Requirement, Selector
from leadline_controller.framework.services import Service, owner_name, service

Value = TypeVar("Value", bound=Hashable)
R = TypeVar("R")
_MAX_CACHED = 1024
ROWS = 5
# kube-scheduler's hardPodAffinityWeight: required terms of assigned pods attract others, too.
_REQUIRED_WEIGHT = 1


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
        self._found: dict[Hashable, NDArray[Any]] = {}

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

    def copied(self) -> Self:
        """The same values with the same numbers, for another thread."""
        made = type(self)()
        for value in tuple(self.values):  # at once, so that it may grow meanwhile
            made.number(value)
        return made

    def where(self, key: Hashable, test: Callable[[R], bool], each: Sequence[R]) -> Bools:
        """Whether `test` holds for each of these, which have the numbers of the values. Cached
        under `key`, so that each is tested once."""
        return self._column(key, test, each, np.bool_)

    def column(self, key: Hashable, of: Callable[[R], int], each: Sequence[R]) -> Ints:
        """`of` each of these, which have the numbers of the values. Cached under `key`."""
        return self._column(key, of, each, np.int64)

    def _column(
        self, key: Hashable, of: Callable[[R], int], each: Sequence[R], dtype: type[np.generic]
    ) -> NDArray[Any]:
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MAX_CACHED:  # pods determine the keys
                self._found.clear()
            found = np.zeros(0, dtype=dtype)
        if found.size < len(each):
            fresh = [of(value) for value in each[found.size :]]
            found = np.concatenate((found, np.array(fresh, dtype=dtype)))
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
    """The properties of a pod that selectors can see, and its owner. `pairs` and `labels` are the
    same labels, to compare and to look up."""

    namespace: str
    pairs: frozenset[tuple[str, str]]
    owner: str  # see `owner_name`
    terminating: bool
    labels: Mapping[str, str] = field(compare=False)


class Kinds(Interner[PodKind]):
    """The kinds of pods, by number. by_label, by_namespace, by_owner: their indexes, the last one
    by namespace and name."""

    def __init__(self) -> None:
        super().__init__()
        self.by_label = LabelIndex()
        self.by_namespace: dict[str, array[int]] = {}
        self.by_owner: dict[tuple[str, str], array[int]] = {}
        self._terminating = array("q")

    def _added(self, value: PodKind, number: int) -> None:
        self.by_label.add(value.labels)
        self.by_namespace.setdefault(value.namespace, array("q")).append(number)
        if value.owner:
            self.by_owner.setdefault((value.namespace, value.owner), array("q")).append(number)
        if value.terminating:
            self._terminating.append(number)

    def in_namespaces(self, namespaces: Iterable[str]) -> Bools:
        """The kinds in these namespaces, by number."""
        return mask_of(len(self), map(self.by_namespace.get, namespaces))

    def of_owner(self, namespace: str, name: str) -> Bools:
        """The kinds of the pods of a workload, by number."""
        return mask_of(len(self), [self.by_owner.get((namespace, name))])

    def living(self, namespace: str, selector: Selector) -> Bools:
        """The kinds in a namespace that a selector matches, without those whose pods are being
        deleted, by number."""
        chosen = self.by_label.selected(selector) & self.in_namespaces([namespace])
        return chosen & ~self.terminating()

    def terminating(self) -> Bools:
        """The kinds whose pods are being deleted, by number."""
        return mask_of(len(self), [self._terminating])


class _Term(Hashable, Protocol):
    @property
    def topology_key(self) -> str: ...


T = TypeVar("T", bound=_Term)


class ExistingTerms(Interner[tuple[T, ...]]):
    """The terms of assigned pods. topology_keys: of all terms. by_topology: topology key -> terms,
    by number."""

    def __init__(self) -> None:
        super().__init__()
        self.topology_keys: set[str] = set()
        self.by_topology: list[dict[str, list[T]]] = []

    def _added(self, value: tuple[T, ...], number: int) -> None:  # noqa: ARG002  # terms come in order
        terms: dict[str, list[T]] = {}
        for term in value:
            terms.setdefault(term.topology_key, []).append(term)
        self.by_topology.append(terms)
        self.topology_keys.update(terms)


def kind_of(pod: Pod) -> PodKind:
    """The kind of a pod."""
    pairs = frozenset(pod.labels.items())
    return PodKind(pod.namespace, pairs, owner_name(pod), pod.terminating, pod.labels)


def attractions_of(pod: Pod) -> tuple[WeightedTerm, ...]:
    """The terms by which an assigned pod attracts (or repels, with a negative weight) others."""
    if not pod.affinity:
        return pod.preferences.pods
    required = (WeightedTerm(_REQUIRED_WEIGHT, term) for term in pod.affinity)
    return (*required, *pod.preferences.pods)


@dataclass(frozen=True, slots=True, eq=False)
class AssignedPods:
    """The assigned pods of known nodes."""

    kinds: Kinds = field(default_factory=Kinds)
    # Their required terms.
    anti_affinities: ExistingTerms[AffinityTerm] = field(default_factory=ExistingTerms)
    # By how much their other terms attract or repel a pod that matches.
    attractions: ExistingTerms[WeightedTerm] = field(default_factory=ExistingTerms)
    # Shape (ROWS, pods): index of the node, number of the kind, number of the anti-affinity terms,
    # priority, number of the attractions.
    rows: Ints = field(default_factory=lambda: np.zeros((ROWS, 0), dtype=np.int64))

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

    def row(self, pod: Pod, node: int) -> tuple[int, ...]:
        """The properties of a pod on this node."""
        return (
            node,
            self.kinds.number(kind_of(pod)),
            self.anti_affinities.number(tuple(dict.fromkeys(pod.anti_affinity))),
            pod.priority,
            self.attractions.number(attractions_of(pod)),
        )

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

    def attraction(
        self, label: str, key: Hashable, weight: Callable[[WeightedTerm], int]
    ) -> Ints | None:
        """The sum of `weight` over each pod's attractions with this topology key, shape (pods,);
        None if all are 0. See Interner.column."""
        terms = self.attractions
        sums = terms.column(
            (label, key), lambda each: sum(map(weight, each.get(label, ()))), terms.by_topology
        )
        return sums[self._column(4)] if sums.any() else None

    def per_node(self, chosen: Bools, nodes: int) -> Ints:
        """The number of chosen pods on each of the nodes, shape (nodes,)."""
        return np.bincount(self.node[chosen], minlength=nodes)

    def replicas(self, wanted: Service, nodes: int) -> Ints:
        """The number of pods of a service on each of the nodes, shape (nodes,), without those that
        are being deleted: their successors are to take their places."""
        namespace, labels = wanted
        selector = tuple(Requirement(key, "In", (value,)) for key, value in labels)
        chosen, kinds = self.kinds.living(namespace, selector), self.kinds.values
        for number in np.flatnonzero(chosen).tolist():  # they may have more labels
            chosen[number] = service(namespace, kinds[number].pairs) == wanted
        return self.per_node(chosen[self.kind], nodes)

    def with_pods(self, pods: Iterable[tuple[Pod, int]]) -> "AssignedPods":
        """With more pods, each with the index of its node."""
        added = [self.row(pod, node) for pod, node in pods]
        rows = np.array(added, dtype=np.int64).reshape(len(added), ROWS).T
        return replace(self, rows=np.concatenate((self.rows, rows), axis=1))

    def for_another_thread(self) -> "AssignedPods":
        """The same pods with kinds and terms of their own. The shared ones grow while the cluster
        changes: an array that another thread reads then cannot, and masks differ in length."""
        return replace(
            self,
            kinds=self.kinds.copied(),
            anti_affinities=self.anti_affinities.copied(),
            attractions=self.attractions.copied(),
        )

    def without(self, pods: Iterable[tuple[Pod, int]]) -> "AssignedPods":
        """Without one such pod for each of these, each with the index of its node; one that is not
        there changes nothing."""
        left = Counter(self.row(pod, node) for pod, node in pods)
        at = np.flatnonzero(np.isin(self.node, [row[0] for row in left]))
        gone = []
        for index, row in zip(at.tolist(), map(tuple, self.rows[:, at].T.tolist()), strict=True):
            if left[row] > 0:
                left[row] -= 1
                gone.append(index)
        return replace(self, rows=np.delete(self.rows, gone, axis=1))
