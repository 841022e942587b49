"""Show what strategies that decide without effect would have done."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
from leadline_wire.v1 import shadow_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import (
    Endpoint,
    ask,
    connection_options,
    duration_s,
    optional,
    plain,
)
from leadline_controller.cli.errors import Failed
from leadline_controller.cli.output import DIM, Format, Table, cell, emit, output_option, table

_COUNTS = ("DECISIONS", "SEEN %", "SAME %", "TIED %", "OTHER %", "NONE %")
_SCORES = ("BETTER\nBY", "PLACE")
_LATER = ("ON THE\nCHOSEN", "ON THE\nSHADOW'S", "PODS", "DIFFERENCE", "DECISIONS", "HOURS")
_NAMES = {
    "cpu_percent": "CPU %",
    "bandwidth_mbps": "bandwidth Mbit/s",
    "rtt_ms": "round trip to users ms",
}


@click.command(epilog="Example: leadline compare --since 1d")
@click.argument("strategies", nargs=-1, metavar="[STRATEGY]...")
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    callback=duration_s,
    default="7d",
    show_default=True,
    help="Only decisions younger than this, such as 1d.",
)
@output_option
@connection_options
def compare(
    strategies: tuple[str, ...], since_s: float, output: Format, endpoint: Endpoint
) -> None:
    """Show how often strategies that decide without effect would have chosen another node than the
    strategy in force, by how much, and what was measured of both boards later."""
    answer = ask(
        endpoint,
        lambda stub: stub.CompareStrategies,
        pb.CompareStrategiesRequest,
        since_s=since_s,
    )
    known = {*answer.strategies, *(each.strategy for each in answer.comparisons)}
    for name in strategies or ([] if known else ["netsched"]):
        if name not in known:
            raise Failed(
                f"no strategy decides beside {answer.strategy}, or not {name[:80]}: add it to "
                f'`[shadow] strategies = ["{name[:80]}"]` in the controller\'s settings'
            )
    found = [each for each in answer.comparisons if not strategies or each.strategy in strategies]
    emit(
        output,
        lambda: {
            "strategy": answer.strategy,
            "shadows": list(answer.strategies),
            "truncated": answer.truncated,
            "comparisons": [document(each) for each in found],
        },
        lambda _: tables(found, strategies or answer.strategies, truncated=answer.truncated),
    )


def document(found: pb.ShadowComparison) -> dict[str, Any]:
    """One comparison. `gain` is in the shadow's unit, `place` 1 for the best."""
    counts = "strategy decided_by better decisions missed same tied different pending scored gain"
    return {
        **plain(found, counts),
        "place": optional(found, "rank"),
        "later": {each.name: plain(each, _FIELDS) for each in found.later},
        "workloads": [plain(each) for each in found.workloads],
        "boards": [plain(each, "node shadow? different decisions") for each in found.boards],
        "verdicts": list(found.verdicts),
    }


_FIELDS = "decisions hours chosen shadow pods difference low high"


def tables(
    found: Sequence[pb.ShadowComparison], names: Sequence[str], *, truncated: bool
) -> Iterator[RenderableType]:
    """How often they differ; what was measured later; where they differ most; and what that
    shows. names: the strategies that are asked for."""
    if truncated:
        yield cell("older decisions are left out: they are too many", DIM)
    seen = {each.strategy for each in found}
    if unseen := [name for name in names if name not in seen]:
        yield cell(f"{', '.join(unseen)} saw no decision between several boards yet")
    if not found:
        return
    yield _counts(found)
    yield Text()
    yield _later(found)
    for each in found:
        yield from _most(each)
    yield Text()
    for each in found:
        for verdict in each.verdicts or (
            f"{each.strategy} beside {each.decided_by}: nothing measured tells yet which one chose "
            "the better boards",
        ):
            yield cell(verdict)


def _counts(found: Sequence[pb.ShadowComparison]) -> Table:
    rows = (
        (
            each.strategy,
            each.decided_by,
            each.decisions,
            _percent(each.decisions, each.decisions + each.missed),
            *(_percent(x, each.decisions) for x in (each.same, each.tied)),
            _percent(each.different - each.pending, each.decisions),
            _percent(each.pending, each.decisions),
            human.number(optional(each, "gain")),
            human.number(optional(each, "rank")),
        )
        for each in found
    )
    columns = (*_COUNTS, *_SCORES)
    return table(("SHADOW", "BESIDE", *columns), rows, numbers=columns, keys=2)


def _later(found: Sequence[pb.ShadowComparison]) -> Table:
    rows = (
        (each.strategy, each.decided_by, words, *_measured(each, name))
        for each in found
        for name, words in _NAMES.items()
    )
    columns = ("SHADOW", "BESIDE", "10 MINUTES LATER", *_LATER, "95 %")
    return table(columns, rows, numbers=_LATER, keys=3)


def _measured(found: pb.ShadowComparison, name: str) -> Iterator[object]:
    later = next((each for each in found.later if each.name == name), None)
    if later is None:
        yield from (human.UNKNOWN, human.UNKNOWN, "", "", 0, 0, cell("not measured yet", DIM))
        return
    yield human.number(later.chosen)
    yield human.number(later.shadow)
    yield human.number(later.pods) if later.pods else ""
    yield human.number(later.difference)
    yield later.decisions
    yield later.hours
    low, high = optional(later, "low"), optional(later, "high")
    if low is None:
        yield cell("too few hours", DIM)
    else:
        yield f"{human.number(low)} to {human.number(high)}"


def _most(found: pb.ShadowComparison) -> Iterator[RenderableType]:
    what = f"{found.strategy} beside {found.decided_by} differs most"
    if found.workloads:
        names = (f"{x.name} ({x.different} of {x.decisions})" for x in found.workloads)
        yield cell(f"{what} on {', '.join(names)}")
    if found.boards:
        boards = (
            f"{x.shadow or 'no node'} instead of {x.node} ({x.different} of {x.decisions})"
            for x in found.boards
        )
        yield cell(f"{what} with {', '.join(boards)}")


def _percent(part: int, whole: int) -> str:
    return human.number(100 * part / whole, 2) if whole else human.UNKNOWN
