"""List where pods were placed recently."""

from collections.abc import Iterator
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType

from leadline_controller.cli import decisions
from leadline_controller.cli.client import Endpoint, ask, connection_options, duration_s
from leadline_controller.cli.output import DIM, Format, cell, emit, output_option


@click.command(epilog="Example: leadline placements --since 10m -n default --pending")
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    callback=duration_s,
    help="Only decisions younger than this, such as 10m.",
)
@click.option("-n", "--namespace", default="", help="Only pods of this namespace.")
@click.option("--node", default="", help="Only decisions that chose this node.")
@click.option("--strategy", default="", help="Only decisions of this strategy.")
@click.option("--pending", is_flag=True, help="Only pods that are on no node yet.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=None, help="At most so many, the newest."
)
@output_option
@connection_options
def placements(output: Format, endpoint: Endpoint, limit: int | None, **wanted: Any) -> None:
    """List the last decision about each pod, oldest first: its node, its outcome and the reason.
    Decisions of earlier runs of the controller are included, and those about pods that were
    deleted since. The options can be combined."""
    answer = ask(
        endpoint,
        lambda stub: stub.ListPlacements,
        pb.ListPlacementsRequest,
        limit=limit or 0,
        **wanted,
    )

    def document() -> dict[str, Any]:
        fields = {"placements": [decisions.document(each) for each in answer.placements]}
        return fields | ({"truncated": True} if answer.truncated else {})

    def tables(wide: bool) -> Iterator[RenderableType]:
        if answer.truncated:
            reason = f"--limit {limit}" if limit == len(answer.placements) else "they are too many"
            yield cell(f"older decisions are left out: {reason}", DIM)
        yield decisions.placements_table(answer.placements, wide=wide)

    emit(output, document, tables)
