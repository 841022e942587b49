"""Show round trips and bandwidth between the nodes."""

from collections.abc import Iterator, Sequence

import click
from leadline_wire.v1 import control_pb2 as pb
from rich.console import RenderableType

from leadline_controller.cli import links, names
from leadline_controller.cli.client import Endpoint, ask, connection_options, selected
from leadline_controller.cli.errors import BadInput
from leadline_controller.cli.listing import Listed, listing

_TITLES: dict[links.Kind, str] = {"rtt": "ROUND TRIP ms", "bandwidth": "BANDWIDTH Mbit/s"}


@click.command(epilog="Example: leadline matrix --rtt -o wide")
@click.argument("node", required=False, shell_complete=names.nodes)
@click.option("--rtt", is_flag=True, help="Only the round-trip times.")
@click.option("--bandwidth", is_flag=True, help="Only the bandwidth.")
@click.option(
    "--worst",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Only so many pairs: the longest round trips, and the least bandwidth.",
)
@click.option("--all", "every", is_flag=True, help="Every pair, however many there are.")
@listing(links.SORTED_BY, selects=True)
@connection_options
@click.pass_context
def matrix(
    ctx: click.Context,
    node: str | None,
    rtt: bool,
    bandwidth: bool,
    worst: int | None,
    every: bool,
    selector: str,
    endpoint: Endpoint,
) -> Listed[pb.LinkStatus]:
    """Show round-trip times and bandwidth between every two nodes, or of NODE to each other one.
    What is no matrix on this terminal is a list of pairs, and where they are more than 250 the 20
    worst, with their number; JSON and YAML always have all. --sort-by makes a list of pairs. "-" is
    unknown, "<=" and ">=" are bounds, "~" is an estimate and "?" is stale."""
    if worst and every:
        raise BadInput("--worst and --all: expected one of them")
    asked = {"rtt": rtt, "bandwidth": bandwidth}
    kinds = tuple(kind for kind in links.KINDS if asked[kind] or not any(asked.values()))
    if node is None:
        answer = ask(endpoint, lambda stub: stub.GetMatrix, pb.GetMatrixRequest)
    else:
        with names.suggesting(names.nodes, node):
            of_node = ask(endpoint, lambda stub: stub.GetNode, pb.GetNodeRequest, name=node)
        ends = dict.fromkeys(end for link in of_node.links for end in (link.a, link.b))
        answer = pb.GetMatrixResponse(nodes=ends, links=of_node.links)
    is_selected = selected(endpoint, selector)
    wanted = [name for name in answer.nodes if name == node or is_selected(name)]
    pairs = [link for link in answer.links if {link.a, link.b} <= {*wanted}]
    matrix = pb.GetMatrixResponse(nodes=wanted, links=pairs)
    if worst:
        few = (link for kind in kinds for link in links.worst(pairs, kind, worst))
        pairs = list({(link.a, link.b): link for link in few}.values())

    def tables(items: Sequence[pb.LinkStatus], wide: bool) -> Iterator[RenderableType]:
        if node is not None:
            yield links.links_of(node, items, kinds)
            return
        for at, kind in enumerate(kinds):
            yield f"\n{_TITLES[kind]}" if at else _TITLES[kind]
            if worst or ctx.params["sort_by"]:
                shown = links.known(items, kind)
                if worst:
                    few = {(link.a, link.b) for link in links.worst(shown, kind, worst)}
                    shown = [link for link in shown if (link.a, link.b) in few]
                yield from links.pairs_of(matrix, kind, shown, wide=wide)
            else:
                yield links.matrix_of(matrix, kind, wide=wide, every=every)

    return Listed(
        "link",
        pairs,
        key=lambda link: f"{link.a}:{link.b}",
        document=lambda link: links.document(link, kinds),
        whole=lambda documents: {"nodes": wanted, "links": documents},
        tables=tables,
    )
