"""Show changes as they happen."""

import json
import time
from collections import OrderedDict
from datetime import datetime
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import decisions, nodes
from leadline_controller.cli.client import Endpoint, connected, connection_options
from leadline_controller.cli.errors import Unreachable
from leadline_controller.cli.listing import AGES, without
from leadline_controller.cli.output import clean

_RETRY_S = 2.0
_MAX_REMEMBERED = 20_000


@click.command(epilog="Example: leadline watch --only placements -o json | jq .placement")
@click.option(
    "--only",
    type=click.Choice(["nodes", "placements"]),
    multiple=True,
    help="Only events about nodes and what is measured there, or only decisions.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="One line for each event: for people, or one JSON object.",
)
@connection_options
def watch(output: str, only: tuple[str, ...], endpoint: Endpoint) -> None:
    """Show the nodes and the decisions, then every change, until Ctrl-C. A placement whose outcome
    becomes "deleted" is a pod that was deleted. When the controller stops, the watch connects again
    and shows what is new, also which nodes have left meanwhile."""
    shown = _Shown()
    away = False
    try:
        while True:
            try:
                with connected(endpoint) as controller:
                    stream = controller.Watch(pb.WatchRequest(only=only, sync=True))
                    try:
                        for event in stream:
                            shown.connected, away = True, False
                            _show(event, output, shown)
                    finally:
                        stream.cancel()
            except Unreachable:
                if not shown.connected:
                    raise
            if not away:
                where = endpoint.address
                click.echo(f"leadline: {where} has stopped answering; connecting again", err=True)
            away = True
            shown.replay()
            time.sleep(_RETRY_S)
    except KeyboardInterrupt:
        return  # the usual end of a watch


class _Shown:
    """The last event about each node and pod, so that a new connection, which begins with all of
    them, does not show them again. connected: whether there was any event."""

    def __init__(self) -> None:
        self.connected = False
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._replayed: set[tuple[str, str]] | None = None

    def replay(self) -> None:
        """The next connection begins with everything."""
        self._replayed = set()

    def is_news(self, kind: str, name: str, document: dict[str, Any]) -> bool:
        """Note an event. False if it only repeats the last one before the connection was lost."""
        key, state = (kind, name), json.dumps(without(document, AGES))
        last = self._last.pop(key, None)
        self._last[key] = state
        if len(self._last) > _MAX_REMEMBERED:
            self._last.popitem(last=False)
        if self._replayed is None or key in self._replayed or len(self._replayed) > _MAX_REMEMBERED:
            return True
        self._replayed.add(key)
        return state != last

    def left_nodes(self) -> list[str]:
        """The nodes that were shown before the connection was lost, and that the new one does not
        have. Ask when it has shown all nodes."""
        replayed = self._replayed
        if replayed is None or len(replayed) > _MAX_REMEMBERED:
            return []
        return [
            name for kind, name in self._last if kind == "node" and (kind, name) not in replayed
        ]


def _show(event: pb.WatchEvent, output: str, shown: _Shown) -> None:
    match event.WhichOneof("what"):
        case "node":
            kind, name, document = "node", event.node.name, nodes.document(event.node)
            line = f"node       {name}: {nodes.summary(event.node)}"
            told: dict[str, Any] = {"node": document}
        case "placement":
            placement = event.placement
            kind, name, document = "placement", placement.pod, decisions.document(placement)
            line = f"placement  {decisions.summary(placement)}"
            told = {"placement": document}
        case "synced":
            for left in shown.left_nodes():
                _show(pb.WatchEvent(node_gone=left), output, shown)
            return
        case "node_gone":
            kind, name, document = "node", event.node_gone, {}
            line, told = f"gone       node {name}", {"node_gone": name}
        case _:
            kind = name = ""
            line, told = "unknown    an event that only a newer leadline can read", {}
            document = told
    if not shown.is_news(kind, name, document):
        return
    if output == "json":
        click.echo(json.dumps(told, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(f"{datetime.now().astimezone():%H:%M:%S}  {clean(line)}")
