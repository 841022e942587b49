"""List the nodes and what is measured on each now."""

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import nodes as shown
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline nodes -o wide")
@output_option
@connection_options
def nodes(output: Format, endpoint: Endpoint) -> None:
    """List the nodes of the cluster and all agents that sent a message: what is measured on each
    now, and how old it is. "-" is unknown."""
    answer = ask(endpoint, lambda stub: stub.ListNodes, pb.ListNodesRequest)
    emit(
        output,
        lambda: {"nodes": [shown.document(status) for status in answer.nodes]},
        lambda wide: [shown.NodesTable(answer.nodes, wide=wide)],
    )
