"""The nodes as columns: what does not change when a pod is placed.

Every array has one entry a node, in the order of `NodeTable.nodes`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from leadline_controller.core.model import Layer, Node, Pod, Toleration
from leadline_controller.core.selectors import Requirement, Selector, Terms

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CLASS_LABEL = "leadline.dev/class"

# Pods choose what is asked for, and memory must not grow with them.
_MOST_REMEMBERED = 4096


class Topology:
    """One label over all nodes. codes: shape (n,), 0 where a node has no such label, else the
    number of its value: nodes with equal codes are one domain. values: of the codes from 1."""

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
        """Where a node has the label, shape (n,)."""
        return self.codes > 0

    def column(self, value_of: Mapping[str, float]) -> Floats:
        """What each node's label stands for, shape (n,); NaN without a label or a value."""
        by_code = np.full(len(self) + 1, np.nan)
        for label, value in value_of.items():
            if code := self._code_of.get(label):
                by_code[code] = value
        return by_code[self.codes]

    def totals(self, per_node: Ints | Bools) -> Ints:
        """The sum over each domain, by code; index 0, the nodes without the label, is 0."""
        totals = np.bincount(self.codes, weights=per_node, minlength=len(self) + 1)
        totals[0] = 0
        return totals.astype(np.int64)

    def where(self, requirement: Requirement) -> Bools:
        """The nodes whose label satisfies the requirement, shape (n,)."""
        match requirement.operator:
            case "In":
                return self._is_among(requirement.values)
            case "NotIn":
                return ~self._is_among(requirement.values)
            case _:
                held = [requirement.holds(None), *map(requirement.holds, self._code_of)]
                return np.array(held, dtype=np.bool_)[self.codes]

    def _is_among(self, values: Sequence[str]) -> Bools:
        chosen = np.zeros(len(self) + 1, dtype=np.bool_)
        chosen[[code for value in values if (code := self._code_of.get(value))]] = True
        return chosen[self.codes]


class NodeTable:
    """What does not change when a pod is placed: the nodes, and indexes over them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes: tuple[Node, ...] = tuple(nodes)
        self.names: tuple[str, ...] = tuple(node.name for node in self.nodes)
        self.index: Mapping[str, int] = {name: i for i, name in enumerate(self.names)}
        self._allocatable: dict[str, Ints] = {}
        self._masks: dict[object, Bools] = {}
        self._topologies: dict[str, Topology] = {}
        self._reaches: dict[Terms, Ints] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def allocatable(self, resource: str) -> Ints:
        """Base units of `resource` on each node, shape (n,); 0 where a node has none."""
        column = self._allocatable.get(resource)
        if column is None:
            column = np.array([n.allocatable.get(resource, 0) for n in self.nodes], dtype=np.int64)
            column.flags.writeable = False
            if column.any():  # pods make names up; memory must not grow with them
                self._allocatable[resource] = column
        return column

    def mask(self, key: object, test: Callable[[Node], bool]) -> Bools:
        """Where `test` holds, shape (n,). Remembered under `key`, so a test that many
        pods share is made once."""
        mask = self._masks.get(key)
        if mask is None:
            if len(self._masks) > _MOST_REMEMBERED:
                self._masks.clear()
            mask = np.fromiter((test(node) for node in self.nodes), dtype=np.bool_, count=len(self))
            mask.flags.writeable = False
            self._masks[key] = mask
        return mask

    def topology(self, label: str) -> Topology:
        """The nodes by their value of this label."""
        topology = self._topologies.get(label)
        if topology is None:
            topology = Topology([node.labels.get(label) for node in self.nodes])
            if len(topology):
                self._topologies[label] = topology
        return topology

    def all(self) -> Bools:
        """Every node, shape (n,); the caller may write to it."""
        return np.ones(len(self), dtype=np.bool_)

    def none(self) -> Bools:
        """No node, shape (n,); the caller may write to it."""
        return np.zeros(len(self), dtype=np.bool_)

    def selected(self, selector: Selector) -> Bools:
        """The nodes for which all of the requirements hold, shape (n,)."""
        passes = self.all()
        for requirement in selector:
            passes &= self._where(requirement)
        return passes

    def matching(self, terms: Terms) -> Bools:
        """The nodes for which one of the terms holds, shape (n,); a term without requirements
        holds nowhere, and one that Kubernetes can't read neither."""
        passes = self.none()
        for term in terms:
            if term and all(requirement.is_well_formed() for requirement in term):
                passes |= self.selected(term)
        return passes

    def reach(self, terms: Terms | None) -> Ints:
        """Indexes of the matching nodes, remembered; all nodes where there are no terms."""
        if terms is None:
            return np.arange(len(self))
        found = self._reaches.get(terms)
        if found is None:
            if len(self._reaches) > 4 * _MOST_REMEMBERED:
                self._reaches.clear()
            found = self._reaches[terms] = np.flatnonzero(self.matching(terms))
        return found

    def wanted_by(self, pod: Pod) -> Bools:
        """The nodes that the pod's nodeSelector and required node affinity allow, shape (n,)."""
        passes = self.all()
        for label, value in pod.node_selector.items():
            passes &= self._where(Requirement(label, "In", (value,)))
        if pod.required_affinity is not None:
            passes &= self.matching(pod.required_affinity)
        return passes

    def tolerated_by(self, tolerations: tuple[Toleration, ...]) -> Bools:
        """The nodes without a hard taint that is not tolerated, shape (n,)."""
        return self.mask(("taints", tolerations), lambda n: n.untolerated(tolerations) is None)

    def _where(self, requirement: Requirement) -> Bools:
        if not requirement.on_name:
            return self.topology(requirement.key).where(requirement)
        named = self.none()
        named[[self.index[name] for name in requirement.values if name in self.index]] = True
        return named if requirement.operator == "In" else ~named

    @cached_property
    def classes(self) -> Topology:
        """The nodes by class. `topology` forgets a label that no node has, this does not."""
        return self.topology(CLASS_LABEL)

    @cached_property
    def bandwidth_mbps(self) -> Floats:
        """Stated capacity of each node's link, Mbit/s, NaN where unknown."""
        return _column(node.bandwidth_mbps for node in self.nodes)

    @cached_property
    def registry_mbps(self) -> Floats:
        """Stated bandwidth between each node and the registry, Mbit/s, NaN where unknown."""
        return _column(node.registry_mbps for node in self.nodes)

    @cached_property
    def pulling_mb(self) -> Floats:
        """Stated size of each node's download queue, MB, shape (n,), NaN where unknown."""
        return _column(node.pulling_mb for node in self.nodes)

    @cached_property
    def images(self) -> Mapping[str, tuple[Layer, ...]]:
        """The layers of the images that nodes list, by name; the first node's word counts."""
        listed = (image for node in reversed(self.nodes) for image in node.images)
        return {image.name: image.layers for image in listed}


def _column(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
