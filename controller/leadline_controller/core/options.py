"""Options of a strategy: declared as fields of its dataclass, set from text.

A strategy is a frozen dataclass; each field made by `option` is one option, with its unit
and range, so that the CLI, the configuration file and the docs read the same list.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


class OptionError(ValueError):
    """An option that the strategy does not have, or a value that it can't take."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it is shown to people. Every option is a number."""

    name: str
    attribute: str
    default: float
    unit: str
    minimum: float
    maximum: float
    help: str


def option(
    default: float,
    *,
    unit: str,
    help: str,  # noqa: A002  # the word that argument parsers use
    minimum: float = 0.0,
    maximum: float = math.inf,
    name: str | None = None,
) -> Any:
    """Declare a field as an option. `name` where the field's name is not the option's."""
    return field(
        default=default,
        metadata={"option": (name, default, unit, minimum, maximum, help)},
    )


def options_of(strategy: type) -> tuple[Option, ...]:
    """The options of a strategy's class, in the order of their declaration."""
    found = []
    for each in fields(strategy):
        if "option" in each.metadata:
            name, default, unit, minimum, maximum, text = each.metadata["option"]
            found.append(
                Option(name or each.name, each.name, float(default), unit, minimum, maximum, text)
            )
    return tuple(found)


def build(strategy: type, given: Mapping[str, object]) -> Any:
    """The strategy with these options set, values as numbers or text. Raises OptionError."""
    known = {each.name: each for each in options_of(strategy)}
    values = {}
    for name, value in given.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise OptionError(f"option {name!r}: unknown; this strategy has: {listed}")
        values[known[name].attribute] = _checked(known[name], value)
    return strategy(**values)


def values_of(strategy: Any) -> dict[str, float]:
    """The options that are in force, by name."""
    return {each.name: getattr(strategy, each.attribute) for each in options_of(type(strategy))}


def _checked(option: Option, value: object) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or not option.minimum <= number <= option.maximum:
        upto = "" if math.isinf(option.maximum) else f" to {option.maximum:g}"
        raise OptionError(
            f"option {option.name}: expected a number from {option.minimum:g}{upto}"
            f"{' (' + option.unit + ')' if option.unit else ''}, got {value!r}"
        )
    return number
