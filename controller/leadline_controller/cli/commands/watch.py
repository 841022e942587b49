"""Show changes as they happen."""

import json
from datetime import datetime
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import decisions, nodes
from leadline_controller.cli.client import Endpoint, connected, connection_options
from leadline_controller.cli.errors import Unreachable
from leadline_controller.cli.output import clean


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
                document, line = _shown(event)
                click.echo(
                    json.dumps(document, ensure_ascii=False, allow_nan=False)
                    if output == "json"
                    else f"{datetime.now().astimezone():%H:%M:%S}  {clean(line)}"
                )
        except KeyboardInterrupt:
            return  # the usual end of a watch
        finally:
            stream.cancel()
    raise Unreachable(f"the controller at {endpoint.address} has stopped: start it and watch again")


def _shown(event: pb.WatchEvent) -> tuple[dict[str, Any], str]:
    """The event for scripts, and in one line for people."""
    match event.WhichOneof("what"):
        case "node":
            node = event.node
            return (
                {"node": nodes.document(node)},
                f"node       {node.name}: {nodes.summary(node)}",
            )
        case "placement":
            placement = event.placement
            return (
                {"placement": decisions.document(placement)},
                f"placement  {decisions.summary(placement)}",
            )
        case "node_gone":
            return {"node_gone": event.node_gone}, f"gone       node {event.node_gone}"
        case _:
            return {}, "unknown    an event that only a newer leadline can read"
