"""List the strategies and their options."""

import math
from collections.abc import Iterable, Sequence
from inspect import getdoc
from typing import Any

import click

from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import table
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.options import Option, options_of, value_text
from leadline_controller.strategies import STRATEGIES

Named = tuple[str, type[Strategy]]
_BEST = {"lower": "lowest", "higher": "highest"}


@click.command(epilog="Example: leadline strategies -o json")
@listing({"strategy": "name", "paper": "paper", "better": "better"})
def strategies() -> Listed[Named]:
    """List the strategies: what each picks, the paper, the metrics that it needs and its
    options."""
    return Listed(
        "strategy",
        list(STRATEGIES.items()),
        key=lambda named: named[0],
        document=_document,
        whole=lambda documents: documents,
        tables=_tables,
    )


def _document(named: Named) -> dict[str, Any]:
    name, strategy = named
    return {
        "name": name,
        "picks": _picks(strategy),
        "paper": strategy.paper,
        "better": strategy.better,
        "needs": list(strategy.needs),
        "options": [_option(option) for option in options_of(strategy)],
    }


def _picks(strategy: type[Strategy]) -> str:
    """The first paragraph of its docstring."""
    return " ".join((getdoc(strategy) or "").partition("\n\n")[0].split())


def _option(option: Option) -> dict[str, Any]:
    allowed: dict[str, Any] = {
        "unit": option.unit,
        "minimum": option.minimum,
        "maximum": option.maximum if math.isfinite(option.maximum) else None,
    }
    if option.choices:
        allowed = {"choices": list(option.choices)}
    return {"name": option.name, "default": option.default, **allowed, "help": option.help}


def _tables(shown: Sequence[Named], wide: bool) -> Iterable[Any]:
    yield table(("STRATEGY", "PICKS"), ((name, _picks(strategy)) for name, strategy in shown))
    yield ""
    columns = ("STRATEGY", "PAPER", *(("BEST TOTAL",) if wide else ()), "NEEDS MEASURED")
    yield table(
        columns,
        [
            (name, s.paper, *((_BEST[s.better],) if wide else ()), ", ".join(s.needs) or "nothing")
            for name, s in shown
        ],
    )
    yield ""
    if wide:
        columns = ("STRATEGY", "OPTION", "DEFAULT", "RANGE", "UNIT", "MEANING")
    else:
        columns = ("OPTIONS OF", "DEFAULT", "UNIT", "MEANING")
    rows: list[tuple[str, ...]] = []
    for name, strategy in shown:
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
