"""Show round trips and bandwidth between the nodes."""

from collections.abc import Iterator

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType

from leadline_controller.cli import links
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option

_TITLES: dict[links.Kind, str] = {"rtt": "ROUND TRIP ms", "bandwidth": "BANDWIDTH Mbit/s"}


@click.command(epilog="Example: leadline matrix --rtt -o wide")
@click.option("--rtt", is_flag=True, help="Only the round-trip times.")
@click.option("--bandwidth", is_flag=True, help="Only the bandwidth.")
@output_option
@connection_options
def matrix(rtt: bool, bandwidth: bool, output: Format, endpoint: Endpoint) -> None:
    """Show round-trip times and bandwidth between every two nodes. "-" is unknown, "<=" and
    ">=" are bounds, "~" is an estimate and "?" is stale."""
    asked = {"rtt": rtt, "bandwidth": bandwidth}
    kinds = tuple(kind for kind in links.KINDS if asked[kind] or not any(asked.values()))
    answer = ask(endpoint, lambda stub: stub.GetMatrix, pb.GetMatrixRequest)

    def tables(wide: bool) -> Iterator[RenderableType]:
        for at, kind in enumerate(kinds):
            yield f"\n{_TITLES[kind]}" if at else _TITLES[kind]
            yield links.matrix_of(answer, kind, wide=wide)

    emit(
        output,
        lambda: {
            "nodes": list(answer.nodes),
            "links": [links.document(link, kinds) for link in answer.links],
        },
        tables,
    )
