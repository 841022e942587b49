"""Many sets of labels, indexed so that a selector is not tried on every one of them."""

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.selectors import Requirement, Selector


class Numbers:
    """A growing list of numbers that is a column at no cost."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def append(self, number: int) -> None:
        """Add one at the end."""
        self._numbers.append(number)

    @property
    def column(self) -> Ints:
        """All of them; to be let go before the next one is added."""
        return np.frombuffer(self._numbers, dtype=np.int64)


class LabelIndex:
    """Sets of labels, numbered in the order in which they are added."""

    def __init__(self, labels: Iterable[Mapping[str, str]] = ()) -> None:
        self._size = 0
        self._with_key: dict[str, Numbers] = {}
        self._with_value: dict[tuple[str, str], Numbers] = {}
        for each in labels:
            self.add(each)

    def __len__(self) -> int:
        return self._size

    def add(self, labels: Mapping[str, str]) -> None:
        """Add a set of labels."""
        for pair in labels.items():
            self._with_key.setdefault(pair[0], Numbers()).append(self._size)
            self._with_value.setdefault(pair, Numbers()).append(self._size)
        self._size += 1

    def selected(self, selector: Selector) -> Bools:
        """Where all of the requirements hold, by number."""
        passes = np.ones(self._size, dtype=np.bool_)
        for requirement in dict.fromkeys(selector):
            passes &= self._where(requirement)
        return passes

    def _where(self, requirement: Requirement) -> Bools:
        key = requirement.key
        match requirement.operator:
            case "In" | "NotIn":
                values = ((key, value) for value in requirement.values)
                found = self._marked(self._with_value.get(pair) for pair in values)
            case "Exists" | "DoesNotExist":
                found = self._marked([self._with_key.get(key)])
            case _:  # Gt and Lt are for nodes; Kubernetes has no such label selector
                found = self._marked([])
        return ~found if requirement.operator in ("NotIn", "DoesNotExist") else found

    def _marked(self, found: Iterable[Numbers | None]) -> Bools:
        marked = np.zeros(self._size, dtype=np.bool_)
        for numbers in found:
            if numbers is not None:
                marked[numbers.column] = True
        return marked
