"""An index over many sets of labels, so that a selector need not test each set."""

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from leadline_controller.framework.node_table import Bools, Ints
from leadline_controller.framework.selectors import Requirement, Selector


class GrowingColumn:
    """A list of integers that grows and is a numpy column without a copy."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def append(self, number: int) -> None:
        """Add one at the end."""
        self._numbers.append(number)

    @property
    def column(self) -> Ints:
        """All numbers. Release it before the next `append`: it shares the list's memory."""
        return np.frombuffer(self._numbers, dtype=np.int64)


def mask_of(size: int, columns: Iterable[GrowingColumn | None]) -> Bools:
    """Which of the numbers below `size` are in one of the columns, shape (size,)."""
    mask = np.zeros(size, dtype=np.bool_)
    for numbers in columns:
        if numbers is not None:
            mask[numbers.column] = True
    return mask


class LabelIndex:
    """Sets of labels, numbered in the order of `add`."""

    def __init__(self, labels: Iterable[Mapping[str, str]] = ()) -> None:
        self._size = 0
        self._with_key: dict[str, GrowingColumn] = {}
        self._with_value: dict[tuple[str, str], GrowingColumn] = {}
        for each in labels:
            self.add(each)

    def __len__(self) -> int:
        return self._size

    def add(self, labels: Mapping[str, str]) -> None:
        """Add a set of labels."""
        for pair in labels.items():
            self._with_key.setdefault(pair[0], GrowingColumn()).append(self._size)
            self._with_value.setdefault(pair, GrowingColumn()).append(self._size)
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
