"""Show round trips and bandwidth between the nodes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import documents, render
from leadline_controller.cli.client import TIMEOUT_S, Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option

if TYPE_CHECKING:
    from rich.console import RenderableType

_TITLES: dict[render.Kind, str] = {"rtt": "ROUND TRIP ms", "bandwidth": "BANDWIDTH Mbit/s"}


@click.command(epilog="Example: leadline matrix --rtt -o wide")
@click.option("--rtt", is_flag=True, help="Only the round-trip times.")
@click.option("--bandwidth", is_flag=True, help="Only the bandwidth.")
@output_option
@connection_options
def matrix(rtt: bool, bandwidth: bool, output: Format, endpoint: Endpoint) -> None:
    """Show round-trip times and bandwidth between every two nodes. "-" is unknown, "<=" and
    ">=" are bounds, "~" is an estimate and "?" is stale."""
    asked = {"rtt": rtt, "bandwidth": bandwidth}
    kinds = tuple(kind for kind in render.KINDS if asked[kind] or not any(asked.values()))
    answer = ask(
        endpoint, lambda controller: controller.GetMatrix(pb.GetMatrixRequest(), timeout=TIMEOUT_S)
    )
    emit(
        output,
        lambda: documents.matrix(answer, kinds),
        lambda wide: _tables(answer, kinds, wide=wide),
    )


def _tables(
    answer: pb.GetMatrixResponse, kinds: tuple[render.Kind, ...], *, wide: bool
) -> Iterator["RenderableType"]:
    for at, kind in enumerate(kinds):
        yield f"\n{_TITLES[kind]}" if at else _TITLES[kind]
        yield render.matrix_of(answer, kind, wide=wide)
