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


class _Duration(click.ParamType[float]):
    """A duration such as 90s, 10m or 1.5h, in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The duration in seconds."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?)([smhd]?)", str(value))
        if found is None or float(found[1]) <= 0:
            self.fail(f"{value!r}: expected a duration such as 90s, 10m, 2h or 1d", param, ctx)
        return float(found[1]) * _UNITS_S[found[2]]


@click.command(epilog="Example: leadline placements --since 10m")
@click.option("--since", type=_Duration(), help="Only decisions younger than this, such as 10m.")
@output_option
@connection_options
def placements(since: float | None, output: Format, endpoint: Endpoint) -> None:
    """List the last decision about each pod, oldest first: its node, its outcome and the reason.
    Decisions of earlier runs of the controller are included."""
    since_s = since or 0.0
    answer = ask(
        endpoint, lambda stub: stub.ListPlacements, pb.ListPlacementsRequest, since_s=since_s
    )

    def document() -> dict[str, Any]:
        told = {"placements": [decisions.document(each) for each in answer.placements]}
        return told | ({"truncated": True} if answer.truncated else {})

    def tables(wide: bool) -> Iterator[RenderableType]:
        if answer.truncated:
            yield cell("older decisions are left out, as one answer cannot hold them all", DIM)
        yield decisions.placements_table(answer.placements, wide=wide)

    emit(output, document, tables)
