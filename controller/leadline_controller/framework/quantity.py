"""Kubernetes quantities ("500m", "4Gi", "1e3") as exact integers."""

import math
import re
from fractions import Fraction
from functools import lru_cache

# The cap on amounts, as Kubernetes has one of 2^63 - 1: more than any node has, and small enough
# that sums in a column do not overflow.
MAX_AMOUNT = 2**53
_MAX_TEXT = 64
_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]{1,3}|[a-zA-Z]{0,2})")
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{unit: Fraction(1000**n) for n, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024**n) for n, unit in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str, *, per_unit: int = 1) -> int:
    """The quantity times `per_unit`, rounded up as in Kubernetes, at most MAX_AMOUNT.

    `parse_quantity("1.5", per_unit=1000)` is 1500 thousandths. Raises QuantityError.
    """
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, math.ceil(exact_quantity(text) * per_unit)))


def exact_quantity(text: str) -> Fraction:
    """The quantity, neither rounded nor capped. Raises QuantityError."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    sign, whole, decimals, suffix = match.groups(default="") if match else ("", "", "", "")
    if not whole + decimals:
        raise QuantityError(
            f"{text[:_MAX_TEXT]!r} is no quantity: expected a number like 500m, 4Gi or 2"
        )
    try:  # only an exponent is a number after its first letter
        scale = _SUFFIXES.get(suffix) or Fraction(10) ** int(suffix[1:])
    except ValueError:
        raise QuantityError(
            f"{text!r} is no quantity: {suffix!r} is no unit that Kubernetes has"
        ) from None
    number = Fraction(int(whole + decimals), 10 ** len(decimals)) * scale
    return -number if sign == "-" else number


def format_quantity(resource: str, value: int) -> str:
    """An amount in base units as text: "1.5" cores, "4Gi" of memory, "2" of anything else."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if resource in ("memory", "ephemeral-storage"):
        for unit in ("Ti", "Gi", "Mi", "Ki"):
            size = int(_SUFFIXES[unit])
            if abs(value) >= size:
                return f"{value / size:.4g}{unit}"
    return str(value)


def format_shortage(resource: str, needed: int, free: int) -> str:
    """ "needs 5Gi, has 3Gi"; exact if both amounts would round to the same text."""
    shown = format_quantity(resource, needed), format_quantity(resource, free)
    if shown[0] == shown[1]:
        unit = "m" if resource == "cpu" else ""
        shown = f"{needed}{unit}", f"{free}{unit}"
    return f"needs {shown[0]}, has {shown[1]}"
