"""Show changes as they happen."""

import json
from datetime import datetime

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import documents
from leadline_controller.cli.client import Endpoint, connected, connection_options
from leadline_controller.cli.errors import Unreachable
from leadline_controller.cli.output import clean
from leadline_controller.cli.render import boards, decisions


@click.command(epilog="Example: leadline watch -o json | jq .placement")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="One line for each event: for people, or one JSON object.",
)
@connection_options
def watch(output: str, endpoint: Endpoint) -> None:
    """Show the nodes and the decisions, then every change, until Ctrl-C."""
    with connected(endpoint) as controller:
        stream = controller.Watch(pb.WatchRequest())
        try:
            for event in stream:
                click.echo(_json(event) if output == "json" else _line(event))
        except KeyboardInterrupt:
            return  # the usual end of a watch
        finally:
            stream.cancel()
    raise Unreachable(f"the controller at {endpoint.address} has stopped: start it and watch again")


def _json(event: pb.WatchEvent) -> str:
    return json.dumps(documents.event(event), ensure_ascii=False, allow_nan=False)


def _line(event: pb.WatchEvent) -> str:
    match event.WhichOneof("what"):
        case "node":
            kind, told = "node", f"{event.node.name}: {boards.summary(event.node)}"
        case "placement":
            kind, told = "placement", decisions.summary(event.placement)
        case "node_gone":
            kind, told = "gone", f"node {event.node_gone}"
        case _:
            kind, told = "unknown", "an event that only a newer leadline can read"
    return f"{datetime.now().astimezone():%H:%M:%S}  {kind:9}  {clean(told)}"
