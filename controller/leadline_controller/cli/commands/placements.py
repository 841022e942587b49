"""List where pods were placed recently."""

import re
from collections.abc import Iterator
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType

from leadline_controller.cli import decisions
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import DIM, Format, cell, emit, output_option

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration_s(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float:
    """The seconds of a duration such as 90s, 10m or 1.5h; 0 without one."""
    if text is None:
        return 0.0
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?)([smhd]?)", text)
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"{text!r}: expected a duration such as 90s, 10m, 2h or 1d")
    return float(found[1]) * _UNITS_S[found[2]]


@click.command(epilog="Example: leadline placements --since 10m")
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    callback=_duration_s,
    help="Only decisions younger than this, such as 10m.",
)
@output_option
@connection_options
def placements(since_s: float, output: Format, endpoint: Endpoint) -> None:
    """List the last decision about each pod, oldest first: its node, its outcome and the reason.
    Decisions of earlier runs of the controller are included."""
    answer = ask(
        endpoint, lambda stub: stub.ListPlacements, pb.ListPlacementsRequest, since_s=since_s
    )

    def document() -> dict[str, Any]:
        fields = {"placements": [decisions.document(each) for each in answer.placements]}
        return fields | ({"truncated": True} if answer.truncated else {})

    def tables(wide: bool) -> Iterator[RenderableType]:
        if answer.truncated:
            yield cell("older decisions are left out, as one answer cannot hold them all", DIM)
        yield decisions.placements_table(answer.placements, wide=wide)

    emit(output, document, tables)
