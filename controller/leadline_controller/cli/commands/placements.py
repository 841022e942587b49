"""List where pods were placed recently."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType

from leadline_controller.cli import decisions, names
from leadline_controller.cli.client import Endpoint, ask, connection_options, duration_s
from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import DIM, cell


@click.command(epilog="Example: leadline placements --since 10m -n default --pending")
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    callback=duration_s,
    help="Only decisions younger than this, such as 10m.",
)
@click.option("-n", "--namespace", default="", help="Only pods of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces; the default.")
@click.option(
    "--node",
    default="",
    shell_complete=names.nodes,
    help="Only decisions that chose this node.",
)
@click.option("--strategy", default="", help="Only decisions of this strategy.")
@click.option("--pending", is_flag=True, help="Only pods that are on no node yet.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=None, help="At most so many, the newest."
)
@listing(
    {
        **{"pod": "pod", "node": "node", "strategy": "strategy", "decided": "time"},
        **{"times": "times", "outcome": "outcome", "age": "age_s", "why": "why"},
    },
    selects=True,
    watches=True,
)
@connection_options
def placements(
    endpoint: Endpoint, limit: int | None, all_namespaces: bool, **wanted: Any
) -> Listed[pb.Placement]:
    """List the last decision about each pod, oldest first: its node, its outcome and the reason.
    Decisions of earlier runs of the controller are included, and those about pods that were
    deleted since. The options can be combined."""
    if all_namespaces and wanted["namespace"]:
        raise BadInput("--all-namespaces and --namespace: expected one of them")
    answer = ask(
        endpoint,
        lambda stub: stub.ListPlacements,
        pb.ListPlacementsRequest,
        limit=limit or 0,
        **wanted,
    )

    def whole(documents: list[dict[str, Any]]) -> dict[str, Any]:
        return {"placements": documents} | ({"truncated": True} if answer.truncated else {})

    def tables(items: Sequence[pb.Placement], wide: bool) -> Iterator[RenderableType]:
        if answer.truncated:
            reason = f"--limit {limit}" if limit == len(answer.placements) else "they are too many"
            yield cell(f"older decisions are left out: {reason}", DIM)
        yield decisions.placements_table(items, wide=wide)

    return Listed(
        "pod", answer.placements, lambda each: each.pod, decisions.document, whole, tables
    )
