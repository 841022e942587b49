"""Show everything about one node."""

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import history, links, names, nodes
from leadline_controller.cli.client import Endpoint, ask, connection_options, duration_s
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline node raspberrypi-3 --since 6h")
@click.argument("name", shell_complete=names.nodes)
@click.option(
    "--since",
    "since_s",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=duration_s,
    help="How much history to show, such as 6h; two weeks at most.",
)
@output_option
@connection_options
def node(name: str, since_s: float, output: Format, endpoint: Endpoint) -> None:
    """Show everything about one node: its board, the speed of its interface, its users' traffic,
    its metrics and their history as charts, its links and the pods placed on it. A bandwidth is
    exact, a lower bound, or suspect. Exit code 1 when there is no such node."""
    step_s = since_s / history.CHART_STEPS
    wanted = pb.GetHistoryRequest(from_unix_s=-since_s, step_s=step_s)
    with names.suggesting(names.nodes, name):
        answer = ask(
            endpoint, lambda stub: stub.GetNode, pb.GetNodeRequest, name=name, history=wanted
        )
    emit(
        output,
        lambda: {
            **nodes.document(answer.node),
            "links": [links.document(link) for link in answer.links],
            "placed_pods": list(answer.placed_pods),
            "history": history.document(answer.history) if answer.HasField("history") else None,
        },
        lambda _: nodes.node_details(answer),
    )
