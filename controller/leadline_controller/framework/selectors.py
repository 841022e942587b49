"""Label selectors, as Kubernetes matches them: over a pod's, a namespace's, a node's or a
volume's labels."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){_PART}(?:\.{_PART})*/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_VALUES_OF = {
    "In": range(1, 2**31),
    "NotIn": range(1, 2**31),
    "Exists": range(1),
    "DoesNotExist": range(1),
    "Gt": range(1, 2),
    "Lt": range(1, 2),
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector, over a label or, in a node selector, over the node's name.

    `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    on_name: bool = False

    def holds(self, value: str | None) -> bool:
        """Whether a label of this value satisfies it; None: there is no such label."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return self._compares(value)

    def is_well_formed(self) -> bool:
        """Whether Kubernetes can make a selector of it; else it matches nothing at all, not
        even with NotIn."""
        if self.on_name:
            return self.operator in ("In", "NotIn") and len(self.values) == 1
        if len(self.values) not in _VALUES_OF[self.operator] or not _KEY.fullmatch(self.key):
            return False
        if self.operator in ("Gt", "Lt") and integer_of(self.values[0]) is None:
            return False
        return all(_VALUE.fullmatch(value) for value in self.values)

    def _compares(self, value: str | None) -> bool:
        """Gt and Lt, over integers; anything else does not match."""
        have = integer_of(value or "")
        bound = integer_of(self.values[0]) if len(self.values) == 1 else None
        if have is None or bound is None:
            return False
        return have > bound if self.operator == "Gt" else have < bound


# All of the requirements must hold; one without any selects everything.
Selector = tuple[Requirement, ...]
# Any one of the terms will do; a term without requirements matches nothing.
Terms = tuple[tuple[Requirement, ...], ...]


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels match; no selector at all (None) selects nothing."""
    return selector is not None and all(r.holds(labels.get(r.key)) for r in selector)


def integer_of(text: str) -> int | None:
    """The number that Gt and Lt compare, of 64 bits; None where the text is none."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
