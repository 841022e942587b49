"""List the strategies and their options."""

import math
from collections.abc import Iterable
from typing import Any

import click

from leadline_controller.cli.output import Format, emit, output_option, table
from leadline_controller.framework.options import Option, options_of, value_text
from leadline_controller.strategies import STRATEGIES

_BEST = {"lower": "lowest", "higher": "highest"}


@click.command(epilog="Example: leadline strategies -o json")
@output_option
def strategies(output: Format) -> None:
    """List the strategies: the paper, the metrics that it needs and its options."""
    emit(output, _listed, _tables)


def _listed() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "paper": strategy.paper,
            "better": strategy.better,
            "needs": list(strategy.needs),
            "options": [_option(option) for option in options_of(strategy)],
        }
        for name, strategy in STRATEGIES.items()
    ]


def _option(option: Option) -> dict[str, Any]:
    allowed: dict[str, Any] = {
        "unit": option.unit,
        "minimum": option.minimum,
        "maximum": option.maximum if math.isfinite(option.maximum) else None,
    }
    if option.choices:
        allowed = {"choices": list(option.choices)}
    return {"name": option.name, "default": option.default, **allowed, "help": option.help}


def _tables(wide: bool) -> Iterable[Any]:
    columns = ("STRATEGY", "PAPER", *(("BEST TOTAL",) if wide else ()), "NEEDS MEASURED")
    yield table(
        columns,
        [
            (name, s.paper, *((_BEST[s.better],) if wide else ()), ", ".join(s.needs) or "nothing")
            for name, s in STRATEGIES.items()
        ],
    )
    yield ""
    if wide:
        columns = ("STRATEGY", "OPTION", "DEFAULT", "RANGE", "UNIT", "MEANING")
    else:
        columns = ("OPTIONS OF", "DEFAULT", "UNIT", "MEANING")
    rows: list[tuple[str, ...]] = []
    for name, strategy in STRATEGIES.items():
        options = options_of(strategy)
        if options and not wide:  # below their strategy's name they fit on 80 columns
            rows.append((name, "", "", ""))
        for o in options:
            if wide:
                rows.append((name, o.name, value_text(o.default), _range(o), o.unit, o.help))
            else:
                meaning = f"{o.help} ({_range(o)})" if o.choices else o.help
                rows.append((f"  {o.name}", value_text(o.default), o.unit, meaning))
    yield table(columns, rows, keys=2 if wide else 1)


def _range(option: Option) -> str:
    if option.choices:
        return " or ".join(option.choices)
    if math.isinf(option.maximum):
        return f"from {option.minimum:g}"
    return f"{option.minimum:g} to {option.maximum:g}"
