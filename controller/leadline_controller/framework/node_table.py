"""The nodes as columns: the part of a view that placing a pod does not change.

Every array has one entry for each node, in the order of `NodeTable.nodes`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from leadline_controller.framework.model import CPU, MEMORY, Layer, Node, Pod, Taint, Toleration
from leadline_controller.framework.selectors import Requirement, Selector, Terms, integer_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CLASS_LABEL = "leadline.dev/class"

# Pods determine the keys of the caches, so the caches need a bound.
_MAX_CACHED = 4096
_MAX_COLUMNS = 256


class Topology:
    """The topology domains of one node label. codes: shape (n,), the number of each node's
    domain, from 1, or 0 for a node without the label."""

    def __init__(self, labels: Sequence[str | None]) -> None:
        self._code_of: dict[str, int] = {}
        codes = [
            0 if value is None else self._code_of.setdefault(value, len(self._code_of) + 1)
            for value in labels
        ]
        self.codes: Ints = np.array(codes, dtype=np.int64)
        self.codes.flags.writeable = False

    def __len__(self) -> int:
        """The number of domains."""
        return len(self._code_of)

    @property
    def labelled(self) -> Bools:
        """The nodes with the label, shape (n,)."""
        return self.codes > 0

    def column(self, value_of: Mapping[str, float]) -> Floats:
        """The value of each node's label in `value_of`, shape (n,); NaN if there is none."""
        by_code = np.full(len(self) + 1, np.nan)
        for label, value in value_of.items():
            if code := self._code_of.get(label):
                by_code[code] = value
        return by_code[self.codes]

    def totals(self, per_node: Ints | Floats | Bools) -> Ints:
        """The sum of each domain, by code; index 0, the nodes without the label, is 0."""
        totals = np.bincount(self.codes, weights=per_node, minlength=len(self) + 1)
        totals[0] = 0
        return totals.astype(np.int64)

    def codes_with_empty(self) -> Ints:
        """`codes`, but a node without the label counts as one whose label is empty."""
        empty = self._code_of.get("")
        return self.codes if empty is None else np.where(self.codes == 0, empty, self.codes)

    def where(self, requirement: Requirement) -> Bools:
        """The nodes whose label meets the requirement, shape (n,)."""
        match requirement.operator:
            case "In":
                return self._is_among(requirement.values)
            case "NotIn":
                return ~self._is_among(requirement.values)
            case "Exists":
                return self.labelled
            case "DoesNotExist":
                return ~self.labelled
            case _:  # Gt and Lt compare integers; anything else does not match
                values = requirement.values
                bound = integer_of(values[0]) if len(values) == 1 else None
                number, is_integer = self._integers
                if bound is None:
                    return np.zeros(self.codes.size, dtype=np.bool_)
                beyond = number > bound if requirement.operator == "Gt" else number < bound
                return (is_integer & beyond)[self.codes]

    @cached_property
    def _integers(self) -> tuple[Ints, Bools]:
        """The label's values as integers, and which of them are integers, by code."""
        numbers = [None, *map(integer_of, self._code_of)]
        known = np.array([number is not None for number in numbers], dtype=np.bool_)
        return np.array([number or 0 for number in numbers], dtype=np.int64), known

    def _is_among(self, values: Sequence[str]) -> Bools:
        chosen = np.zeros(len(self) + 1, dtype=np.bool_)
        chosen[[code for value in values if (code := self._code_of.get(value))]] = True
        return chosen[self.codes]


class NodeTable:
    """The nodes, with cached columns and indexes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self.names: tuple[str, ...] = tuple(node.name for node in self.nodes)
        self.index: Mapping[str, int] = {name: i for i, name in enumerate(self.names)}
        self._allocatable: dict[str, Ints] = {}
        self._masks: dict[object, Bools] = {}
        self._holding: dict[tuple[str, int], Bools] = {}
        self._topologies: dict[str, Topology] = {}
        self._reaches: dict[Terms, Ints] = {}
        # Masks of the table before, each with the places of the nodes that have changed since.
        self._earlier: dict[object, tuple[Bools, frozenset[int]]] = {}

    def with_nodes(self, nodes: Sequence[Node]) -> "NodeTable":
        """The table with these nodes in place of those of the same names. It keeps all that cannot
        have changed: a pull by one of a thousand boards changes that board's images alone."""
        changed = {self.index[node.name]: node for node in nodes}
        table = NodeTable([changed.get(at, node) for at, node in enumerate(self.nodes)])
        table.names, table.index = self.names, self.index
        places = frozenset(changed)
        earlier = {key: (mask, since | places) for key, (mask, since) in self._earlier.items()}
        earlier |= {key: (mask, places) for key, mask in self._masks.copy().items()}
        if len(earlier) <= _MAX_CACHED:
            table._earlier = earlier
        if all(_differ_by_images(self.nodes[at], node) for at, node in changed.items()):
            for name in _WITHOUT_IMAGES & vars(self).keys():
                vars(table)[name] = vars(self)[name]
            table._allocatable, table._holding = self._allocatable.copy(), self._holding.copy()
            table._topologies, table._reaches = self._topologies.copy(), self._reaches.copy()
        return table

    def __len__(self) -> int:
        return len(self.nodes)

    def allocatable(self, resource: str) -> Ints:
        """Base units of `resource` on each node, shape (n,); 0 if a node has none."""
        if resource not in self.resources:
            return self._zeros  # pods can request any name; time and memory must not grow with it
        column = self._allocatable.get(resource)
        if column is None:
            if len(self._allocatable) >= _MAX_COLUMNS:
                self._allocatable.clear()
            column = np.array([n.allocatable.get(resource, 0) for n in self.nodes], dtype=np.int64)
            column.flags.writeable = False
            self._allocatable[resource] = column
        return column

    def holds(self, resource: str, amount: int) -> Bools:
        """The nodes that have so much of `resource` when they are empty, shape (n,). Cached."""
        mask = self._holding.get((resource, amount))
        if mask is None:
            if len(self._holding) >= _MAX_COLUMNS:  # pods determine the amounts
                self._holding.clear()
            mask = self._holding[resource, amount] = self.allocatable(resource) >= amount
            mask.flags.writeable = False
        return mask

    @cached_property
    def resources(self) -> frozenset[str]:
        """The resources of all nodes."""
        return frozenset(name for node in self.nodes for name in node.allocatable)

    @cached_property
    def _zeros(self) -> Ints:
        column = np.zeros(len(self), dtype=np.int64)
        column.flags.writeable = False
        return column

    def mask(self, key: object, test: Callable[[Node], bool]) -> Bools:
        """The nodes that pass `test`, shape (n,). Cached under `key`."""
        mask = self._masks.get(key)
        if mask is None:
            if len(self._masks) > _MAX_CACHED:
                self._masks.clear()
            if (earlier := self._earlier.get(key)) is not None:
                mask = earlier[0].copy()
                for at in earlier[1]:
                    mask[at] = test(self.nodes[at])
            else:
                passes = (test(node) for node in self.nodes)
                mask = np.fromiter(passes, dtype=np.bool_, count=len(self))
            mask.flags.writeable = False
            self._masks[key] = mask
        return mask

    def topology(self, label: str) -> Topology:
        """The topology domains of this label."""
        if label not in self._labels:
            return self._unlabelled
        topology = self._topologies.get(label)
        if topology is None:
            if len(self._topologies) >= _MAX_COLUMNS:
                self._topologies.clear()
            topology = Topology([node.labels.get(label) for node in self.nodes])
            self._topologies[label] = topology
        return topology

    @cached_property
    def _labels(self) -> frozenset[str]:
        return frozenset(label for node in self.nodes for label in node.labels)

    @cached_property
    def _unlabelled(self) -> Topology:
        return Topology([None] * len(self))

    @cached_property
    def classes(self) -> Topology:
        """The classes of boards: the label `leadline.dev/class`, else the boards of one size, whose
        names no label can have."""
        return Topology([_class_of(node) for node in self.nodes])

    def class_of(self, name: str) -> str | None:
        """The class of the node with this name; None if there is none. See `classes`."""
        at = self.index.get(name)
        return None if at is None else _class_of(self.nodes[at])

    def all(self) -> Bools:
        """All True, shape (n,); the caller may write to it."""
        return np.ones(len(self), dtype=np.bool_)

    def none(self) -> Bools:
        """All False, shape (n,); the caller may write to it."""
        return np.zeros(len(self), dtype=np.bool_)

    def selected(self, selector: Selector) -> Bools:
        """The nodes that meet all requirements, shape (n,)."""
        passes = self.all()
        for requirement in selector:
            passes &= self._where(requirement)
        return passes

    def matching(self, terms: Terms) -> Bools:
        """The nodes that match one of the terms, shape (n,). An empty or malformed term matches
        no node."""
        passes = self.none()
        for term in terms:
            if term and all(requirement.is_well_formed() for requirement in term):
                passes |= self.selected(term)
        return passes

    def indexes_matching(self, terms: Terms | None) -> Ints:
        """Indexes of the nodes that match one of the terms, cached; None matches all nodes."""
        if terms is None:
            return np.arange(len(self))
        found = self._reaches.get(terms)
        if found is None:
            if len(self._reaches) > 4 * _MAX_CACHED:
                self._reaches.clear()
            found = self._reaches[terms] = np.flatnonzero(self.matching(terms))
        return found

    def matching_node_affinity(self, pod: Pod) -> Bools:
        """The nodes that match the pod's nodeSelector and required node affinity, shape (n,)."""
        passes = self.all()
        for label, value in pod.node_selector.items():
            passes &= self._where(Requirement(label, "In", (value,)))
        if pod.required_affinity is not None:
            passes &= self.matching(pod.required_affinity)
        return passes

    def tolerated_by(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """The nodes whose hard taints are all tolerated, shape (n,)."""
        untolerated = {
            taint
            for taint in self._hard_taints
            if not any(toleration.tolerates(taint) for toleration in tolerations)
        }
        return self.mask(
            ("taints", frozenset(untolerated)), lambda node: untolerated.isdisjoint(node.taints)
        )

    @cached_property
    def _hard_taints(self) -> frozenset[Taint]:
        """The distinct hard taints of all nodes, usually few."""
        return frozenset(taint for node in self.nodes for taint in node.taints if taint.is_hard)

    def untolerated_soft_taints(self, tolerations: tuple[Toleration, ...]) -> Ints | None:
        """How many PreferNoSchedule taints of each node are not tolerated, shape (n,); None if that
        is none on all nodes."""
        untolerated = [
            taint
            for taint in self._soft_taints
            if not any(toleration.tolerates(taint) for toleration in tolerations)
        ]
        if not untolerated:
            return None
        count = np.zeros(len(self), dtype=np.int64)
        for taint in untolerated:
            count += self._tainted_with(taint)
        return count

    def _tainted_with(self, taint: Taint) -> Bools:
        return self.mask(("taint", taint), lambda node: taint in node.taints)

    @cached_property
    def _soft_taints(self) -> frozenset[Taint]:
        """The distinct soft taints of all nodes, usually few."""
        taints = (taint for node in self.nodes for taint in node.taints)
        return frozenset(taint for taint in taints if taint.effect == "PreferNoSchedule")

    def _where(self, requirement: Requirement) -> Bools:
        if not requirement.on_name:
            return self.topology(requirement.key).where(requirement)
        named = self.none()
        named[[self.index[name] for name in requirement.values if name in self.index]] = True
        return named if requirement.operator == "In" else ~named

    @cached_property
    def bandwidth_mbps(self) -> Floats:
        """Stated capacity of each node's link, Mbit/s, shape (n,), NaN if unknown."""
        return _column(node.bandwidth_mbps for node in self.nodes)

    @cached_property
    def registry_mbps(self) -> Floats:
        """Stated bandwidth from the registry to each node, Mbit/s, shape (n,), NaN if unknown."""
        return _column(node.registry_mbps for node in self.nodes)

    @cached_property
    def pulling_mb(self) -> Floats:
        """Stated size of each node's download queue, MB, shape (n,), NaN if unknown."""
        return _column(node.pulling_mb for node in self.nodes)

    @cached_property
    def images(self) -> Mapping[str, tuple[Layer, ...]]:
        """Image name -> layers, from the nodes' status; of several nodes the first counts."""
        listed = (image for node in reversed(self.nodes) for image in node.images)
        return {image.name: image.layers for image in listed}


# The cached properties that images do not change.
_WITHOUT_IMAGES = {
    "resources",
    "_zeros",
    "_labels",
    "_unlabelled",
    "classes",
    "_hard_taints",
    "_soft_taints",
    "bandwidth_mbps",
    "registry_mbps",
    "pulling_mb",
}


def _differ_by_images(one: Node, other: Node) -> bool:
    return one == replace(other, images=one.images, image_layers=one.image_layers)


def _class_of(node: Node) -> str:
    cores, size = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
    return node.labels.get(CLASS_LABEL) or f"{cores}m/{round(size / 1024**3)}Gi"


def _column(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
