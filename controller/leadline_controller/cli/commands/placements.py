"""List where pods were placed recently."""

import re

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import documents, render
from leadline_controller.cli.client import TIMEOUT_S, Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option

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
    request = pb.ListPlacementsRequest(since_s=since or 0.0)
    answer = ask(endpoint, lambda stub: stub.ListPlacements(request, timeout=TIMEOUT_S))
    emit(
        output,
        lambda: documents.placements(answer),
        lambda wide: render.placements_tables(answer, wide=wide),
    )
