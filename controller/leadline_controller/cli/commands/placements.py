"""List where pods were placed recently."""

from collections.abc import Iterator
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType

from leadline_controller.cli import decisions
from leadline_controller.cli.client import Endpoint, ask, connection_options, duration_s
from leadline_controller.cli.output import DIM, Format, cell, emit, output_option


@click.command(epilog="Example: leadline placements --since 10m")
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    callback=duration_s,
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
