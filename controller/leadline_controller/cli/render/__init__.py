"""The controller's answers as tables, for the commands and the demo.

Everything here takes a message as it came over the wire. The console that prints it decides on
width and colours.
"""

from collections.abc import Iterable

from leadline_wire.v1 import control_pb2 as pb
from rich.console import Console

from leadline_controller.cli.render.boards import NodesTable, node_details
from leadline_controller.cli.render.decisions import (
    explanation_tables,
    placements_table,
    placements_tables,
)
from leadline_controller.cli.render.links import KINDS, Kind, matrix_of

__all__ = [
    "KINDS",
    "Kind",
    "NodesTable",
    "explanation",
    "explanation_tables",
    "matrix",
    "matrix_of",
    "node_details",
    "nodes",
    "placements",
    "placements_table",
    "placements_tables",
]


def nodes(console: Console, statuses: Iterable[pb.NodeStatus], *, wide: bool = False) -> None:
    """Print the nodes, one line each."""
    console.print(NodesTable(list(statuses), wide=wide))


def matrix(
    console: Console, response: pb.GetMatrixResponse, kind: Kind, *, wide: bool = False
) -> None:
    """Print one kind of measurement between the nodes: rtt in ms, bandwidth in Mbit/s."""
    console.print(matrix_of(response, kind, wide=wide))


def placements(console: Console, told: Iterable[pb.Placement], *, wide: bool = False) -> None:
    """Print decisions, one line each."""
    console.print(placements_table(told, wide=wide))


def explanation(console: Console, response: pb.ExplainPodResponse, *, wide: bool = False) -> None:
    """Print one decision with its scores and rejected nodes."""
    console.print(*explanation_tables(response, wide=wide), sep="\n")
