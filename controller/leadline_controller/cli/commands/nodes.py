"""List the nodes and what is measured on each now."""

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import nodes as shown
from leadline_controller.cli import status
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.errors import Failed
from leadline_controller.cli.listing import Listed, listing


@click.command(epilog="Example: leadline nodes -l leadline.dev/tier=edge --sort-by=-cpu -o wide")
@click.option("--problems", is_flag=True, help="Only boards that are ill, with why.")
@listing(shown.SORTED_BY, selects=True, watches=True)
@connection_options
def nodes(selector: str, problems: bool, endpoint: Endpoint) -> Listed[pb.NodeStatus]:
    """List the nodes of the cluster and all agents that sent a message: what is measured on each
    now, and how old it is. "-" is unknown. A board is ill if `leadline doctor` has a warning or an
    error about it, or the cluster says that it is not ready."""
    answer = ask(endpoint, lambda stub: stub.ListNodes, pb.ListNodesRequest, selector=selector)
    if not problems:
        return shown.listed(answer.nodes)
    told = status.answer(endpoint)
    if told.HasField("broker") and not told.broker.answers:
        raise Failed(
            "the broker does not answer, so nothing is known of the boards; see leadline doctor"
        )
    return shown.listed_problems(answer.nodes, told)
