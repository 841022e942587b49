"""Show everything about one node."""

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import links, nodes
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline node raspberrypi-3")
@click.argument("name")
@output_option
@connection_options
def node(name: str, output: Format, endpoint: Endpoint) -> None:
    """Show everything about one node: its board, the speed of its interface, its users' traffic,
    its metrics, its links and the pods placed on it. A bandwidth is exact, a lower bound, or
    suspect. Exit code 1 when there is no such node."""
    answer = ask(endpoint, lambda stub: stub.GetNode, pb.GetNodeRequest, name=name)
    emit(
        output,
        lambda: {
            **nodes.document(answer.node),
            "links": [links.document(link) for link in answer.links],
            "placed_pods": list(answer.placed_pods),
        },
        lambda _: nodes.node_details(answer),
    )
