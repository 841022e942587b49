"""Label selectors and node selector terms, with Kubernetes' rules for matching."""

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

_LONGEST = 1000
_COMMA = re.compile(r",(?![^(]*\))")  # not one between parentheses
_OF_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(r"([^\s=!<>]+)\s*(==|=|!=|>|<)\s*(\S*)")
_ALONE = re.compile(r"(!?)\s*(\S+)")
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn"}
_OPERATORS |= {">": "Gt", "<": "Lt", "": "Exists", "!": "DoesNotExist"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a selector."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt or Lt
    values: tuple[str, ...] = ()
    on_name: bool = False  # it is a matchFields requirement on the node's name, not on a label

    def holds(self, value: str | None) -> bool:
        """Whether a label of this value satisfies it; None means that the label is missing."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:  # Gt and Lt compare integers; anything else does not match
                have = integer_of(value or "")
                bound = integer_of(self.values[0]) if len(self.values) == 1 else None
                if have is None or bound is None:
                    return False
                return have > bound if self.operator == "Gt" else have < bound

    def is_well_formed(self) -> bool:
        """Whether Kubernetes accepts it. If not, nothing matches, not even with NotIn."""
        if self.on_name:
            return self.operator in ("In", "NotIn") and len(self.values) == 1
        if len(self.values) not in _VALUES_OF[self.operator] or not _KEY.fullmatch(self.key):
            return False
        if self.operator in ("Gt", "Lt") and integer_of(self.values[0]) is None:
            return False
        return all(_VALUE.fullmatch(value) for value in self.values)


# All requirements must hold. An empty selector matches everything.
Selector = tuple[Requirement, ...]
# One of the terms must hold. An empty term matches nothing.
Terms = tuple[tuple[Requirement, ...], ...]


def parse_selector(text: str) -> Selector:
    """A selector as kubectl's -l takes it: a=b, a!=b, a in (b,c), a notin (b), a, !a, a>1 or a<1,
    with commas between. Empty text is an empty selector. Raises ValueError with the reason."""
    if len(text) > _LONGEST:
        raise ValueError(f"expected a selector of at most {_LONGEST} characters, got {len(text)}")
    made = []
    for part in map(str.strip, _COMMA.split(text) if text.strip() else ()):
        values: tuple[str, ...] = ()
        if found := _OF_SET.fullmatch(part):
            key, operator = found[1], found[2]
            values = tuple(map(str.strip, found[3].split(",")))
        elif found := _COMPARED.fullmatch(part):
            key, operator, values = found[1], found[2], (found[3],)
        elif found := _ALONE.fullmatch(part):
            operator, key = found[1], found[2]
        requirement = Requirement(key, _OPERATORS[operator], values) if found else None
        if requirement is None or not requirement.is_well_formed():
            expected = "expected a=b, a!=b, a in (b,c), a notin (b), a or !a"
            raise ValueError(f"{part[:200]!r}: {expected}")
        made.append(requirement)
    return tuple(made)


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels match; None matches nothing."""
    return selector is not None and all(r.holds(labels.get(r.key)) for r in selector)


def integer_of(text: str) -> int | None:
    """The text as a 64-bit integer; None if it is not one."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None
