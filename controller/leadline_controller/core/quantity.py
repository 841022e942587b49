"""Kubernetes quantities ("500m", "4Gi", "1e3") as exact integers."""

import re
from decimal import Decimal
from functools import lru_cache

_QUANTITY = re.compile(
    r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(e[+-]?[0-9]+|E[+-]?[0-9]+|[a-zA-Z]{0,2})"
)
_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** n for n, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """Text that is no Kubernetes quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str | int | float, *, per_unit: int = 1) -> int:
    """The quantity times `per_unit`, rounded up as Kubernetes does.

    `parse_quantity("1.5", per_unit=1000)` is 1500 thousandths. Raises QuantityError.
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise QuantityError(f"{text!r} is no quantity: expected a number like 500m, 4Gi or 2")
    number, suffix = match.groups()
    scale = Decimal(f"1{suffix}") if suffix[:1] in ("e", "E") and len(suffix) > 1 else None
    if scale is None and suffix not in _SUFFIXES:
        raise QuantityError(f"{text!r} is no quantity: {suffix!r} is no unit that Kubernetes has")
    value = Decimal(number) * (scale if scale is not None else _SUFFIXES[suffix]) * per_unit
    return int(value.to_integral_value("ROUND_CEILING"))


def format_quantity(resource: str, value: int) -> str:
    """A base-unit amount for people: "1.5" cores, "4Gi" of memory, "2" of anything else."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if resource in ("memory", "ephemeral-storage"):
        for unit in ("Ti", "Gi", "Mi", "Ki"):
            size = int(_SUFFIXES[unit])
            if abs(value) >= size:
                return f"{value / size:.4g}{unit}"
    return str(value)
