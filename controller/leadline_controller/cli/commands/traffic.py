"""Show who talks to whom, how much, and where it would be nearest."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import click
from leadline_wire.v1 import traffic_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human, names
from leadline_controller.cli.client import Endpoint, ask, connection_options, optional, plain
from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import DIM, cell, table
from leadline_controller.framework.model import NODE_PEER

Edge = pb.TrafficEdge
_NUMBERS = ("MBIT/S", "REQUESTS\n/s", "RTT\nms", "BEST\nms")
_WIDE = (
    "HOUR\nMbit/s",
    "DAY\nMbit/s",
    "DECLARED\nMbit/s",
    "PACKETS\n/s",
    "CONNECTIONS\n/s",
    "PORT",
)
_DECLARED, _ONE_SIDED = "~", "*"
_NOBODY = "no board reports traffic: set agent_flows in the inventory, see docs/traffic.md"


@click.command(epilog="Example: leadline traffic --sort-by=-share -o wide")
@click.argument("workload", required=False, shell_complete=names.ends)
@click.option(
    "-n",
    "--namespace",
    default="",
    help="Of WORKLOAD; else only what this namespace takes part in.",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces; the default.")
@listing(
    {
        **{"from": "source", "to": "destination", "mbps": "minute.mbps"},
        **{"requests": "requests_most_per_s", "rtt": "rtt_ms", "best": "best_rtt_ms"},
        **{"on": "best_node", "share": "link_share", "age": "age_s", "port": "port"},
    },
    watches=True,
)
@connection_options
def traffic(
    workload: str | None, namespace: str, all_namespaces: bool, endpoint: Endpoint
) -> Listed[Edge]:
    """Show who talks to whom, or only what WORKLOAD takes part in: a name in the namespace,
    namespace/name, node/NAME or an address. Mbit/s are those of the last minute, both directions
    together. Requests are as declared, or between the connections that began and the packets of the
    rarer direction. BEST is the round trip that it would have on the board ON; what fits there is
    not asked. SHARE is what it takes of a link, where that is most. "~" is declared and not
    counted, "*" is reported by one end alone. Exit code 1 when there is no such workload."""
    if all_namespaces and namespace:
        raise BadInput("--all-namespaces and --namespace: expected one of them")
    of = "" if workload is None else _full_name(workload, namespace)
    with names.suggesting(names.ends, of):
        answer = ask(endpoint, lambda stub: stub.GetTraffic, pb.GetTrafficRequest, of=of)
    edges: Sequence[Edge] = answer.edges
    if namespace and workload is None:
        own = f"{namespace}/"
        edges = [x for x in edges if x.source.startswith(own) or x.destination.startswith(own)]

    def whole(documents: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "edges": documents,
            **plain(answer, "report_age_s dropped"),
            "nodes": [*answer.nodes],
        }

    return Listed(
        "edge",
        edges,
        # A slash would be the end of a namespace.
        key=lambda edge: f"{edge.source}:{edge.destination}:{edge.port}".replace("/", "."),
        document=document,
        whole=whole,
        tables=lambda items, wide: tables(answer, items, wide=wide),
    )


def document(edge: Edge) -> dict[str, Any]:
    """One edge. Rates that are not known are None."""
    return plain(
        edge,
        "source destination port? minute hour day requests_least_per_s requests_most_per_s "
        "declared declared_mbps one_sided age_s source_nodes destination_nodes rtt_ms moves? "
        "best_rtt_ms best_node? link_share",
    )


def tables(
    answer: pb.GetTrafficResponse, edges: Sequence[Edge], *, wide: bool
) -> Iterator[RenderableType]:
    """The edges, and how many boards report."""
    if edges:
        more = (*_WIDE, "FROM IS ON", "TO IS ON") if wide else ()
        columns = ("FROM", "TO", *_NUMBERS, "ON", "SHARE\n%", "AGE", *more)
        numbers = {*_NUMBERS, *_WIDE, "SHARE\n%", "AGE"}
        rows = ((*_row(edge), *(_more(edge) if wide else ())) for edge in edges)
        yield table(columns, rows, numbers=numbers, keys=2)
    else:
        yield Text("nobody talks to anybody, as far as is counted or declared")
    if any(_is_only_declared(edge) for edge in edges):
        yield cell(f"{_DECLARED} declared, not counted", DIM)
    if any(edge.one_sided for edge in edges):
        yield cell(f"{_ONE_SIDED} one end alone reports it", DIM)
    if not answer.nodes:
        yield cell(_NOBODY, "yellow")
        return
    count = len(answer.nodes)
    said = f"{count} board{' reports' if count == 1 else 's report'} traffic"
    said += f", the last one {human.age(optional(answer, 'report_age_s'))} ago"
    if answer.dropped:
        said += f"; {answer.dropped} edges were too many, those with the least traffic"
    yield cell(said, DIM)


def _row(edge: Edge) -> Iterator[object]:
    yield edge.source
    yield edge.destination
    mark = _ONE_SIDED if edge.one_sided else ""
    if edge.HasField("minute"):
        yield f"{mark}{human.number(edge.minute.mbps)}"
    elif _is_only_declared(edge):
        yield f"{_DECLARED}{human.number(edge.declared_mbps)}"
    else:
        yield f"{mark}{human.UNKNOWN}"
    yield _requests(edge)
    yield human.number(optional(edge, "rtt_ms"))
    yield human.number(optional(edge, "best_rtt_ms"))
    yield edge.best_node or human.UNKNOWN
    share = optional(edge, "link_share")
    yield human.number(None if share is None else 100 * share, 2)
    yield human.age(optional(edge, "age_s"))


def _more(edge: Edge) -> Iterator[object]:
    for window in ("hour", "day"):
        yield human.number(getattr(edge, window).mbps if edge.HasField(window) else None)
    yield human.number(optional(edge, "declared_mbps"))
    known = edge.HasField("minute")
    yield human.number(edge.minute.packets_per_s if known else None)
    yield human.number(edge.minute.connections_per_s if known else None)
    yield edge.port or human.UNKNOWN
    yield _places(edge.source_nodes)
    yield _places(edge.destination_nodes)


def _requests(edge: Edge) -> str:
    """One number, or the least and the most."""
    least, most = (
        human.number(optional(edge, f"requests_{bound}_per_s")) for bound in ("least", "most")
    )
    return least if least == most else f"{least}-{most}"


def _places(nodes: Mapping[str, int]) -> str:
    """The nodes, the one with the most pods first, with how many where there is more than one."""
    most_first = sorted(nodes.items(), key=lambda each: (-each[1], each[0]))
    shown = (name if pods == 1 else f"{name} ({pods})" for name, pods in most_first)
    return ", ".join(shown) or human.UNKNOWN


def _is_only_declared(edge: Edge) -> bool:
    return edge.declared and not edge.HasField("age_s")


def _full_name(typed: str, namespace: str) -> str:
    """As the controller has it: of a workload namespace/name."""
    try:
        return str(ip_address(typed))
    except ValueError:
        if "/" not in typed:
            return f"{namespace or 'default'}/{typed}"
    if namespace and not typed.startswith((NODE_PEER, f"{namespace}/")):
        raise BadInput(f"{typed[:200]!r} and --namespace {namespace[:200]}: expected one namespace")
    return typed
