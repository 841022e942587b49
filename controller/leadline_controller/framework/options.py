"""Options of a strategy: declared as fields of its dataclass, set from text.

A strategy is a frozen dataclass. A field made by `option` or `choice` is an option with its unit,
range and help, which the CLI and the settings read from the class.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from leadline_controller.parsing.fields import quoted


class OptionError(ValueError):
    """An unknown option, or a value out of range."""


OptionValue = float | str


@dataclass(frozen=True, slots=True)
class Option:
    """One option: a number from `minimum` to `maximum` in `unit`, or one of `choices`."""

    name: str
    attribute: str
    default: OptionValue
    unit: str
    minimum: float
    maximum: float
    help: str
    choices: tuple[str, ...] = ()


def option(
    default: float,
    *,
    unit: str = "",
    help: str,  # noqa: A002  # argparse and click call it so
    minimum: float = 0.0,
    maximum: float = math.inf,
    name: str | None = None,
) -> Any:
    """Declare a field as a number option. name: the option's, if it differs from the field's."""
    return field(
        default=default,
        metadata={"option": Option(name or "", "", float(default), unit, minimum, maximum, help)},
    )


def choice(
    default: str,
    *choices: str,
    help: str,  # noqa: A002  # argparse and click call it so
) -> Any:
    """Declare a field as an option that is one of these words, of which `default` is the first."""
    declared = Option("", "", default, "", 0.0, math.inf, help, (default, *choices))
    return field(default=default, metadata={"option": declared})


def options_of(strategy: type) -> tuple[Option, ...]:
    """The options of a strategy's class, in the order of their declaration."""
    return tuple(
        replace(declared, name=declared.name or each.name, attribute=each.name)
        for each in fields(strategy)
        if (declared := each.metadata.get("option"))
    )


def build(strategy: type, given: Mapping[str, object]) -> Any:
    """The strategy with these options. Values are numbers or text. Raises OptionError."""
    known = {each.name: each for each in options_of(strategy)}
    values = {}
    for name, value in given.items():
        if name not in known:
            listed = ", ".join(known) or "none"
            raise OptionError(f"option {quoted(name)}: unknown; this strategy has: {listed}")
        values[known[name].attribute] = _checked(known[name], value)
    return strategy(**values)


def values_of(strategy: Any) -> dict[str, OptionValue]:
    """Option name -> value in use."""
    return {each.name: getattr(strategy, each.attribute) for each in options_of(type(strategy))}


def value_text(value: OptionValue) -> str:
    """The value as text, for tables and for the wire."""
    return value if isinstance(value, str) else f"{value:g}"


def value_of_text(text: str) -> OptionValue:
    """The inverse of `value_text`: a number, else the word."""
    try:
        return float(text)
    except ValueError:
        return text


def _checked(option: Option, value: object) -> OptionValue:
    if option.choices:
        if value not in option.choices:
            listed = " or ".join(option.choices)
            raise OptionError(f"option {option.name}: expected {listed}, got {quoted(value)}")
        return str(value)
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or not option.minimum <= number <= option.maximum:
        upto = "" if math.isinf(option.maximum) else f" to {option.maximum:g}"
        raise OptionError(
            f"option {option.name}: expected a number from {option.minimum:g}{upto}"
            f"{' (' + option.unit + ')' if option.unit else ''}, got {quoted(value)}"
        )
    return number
