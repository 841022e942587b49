"""Show what probing costs each link, and what is left of its budget."""

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import budget as shown
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline budget -o wide")
@output_option
@connection_options
def budget(output: Format, endpoint: Endpoint) -> None:
    """Show what bandwidth tests cost each node and uplink: the share of the link's time, the bytes
    of the last 24 hours and what is left of them, the tests, and those that run now."""
    answer = ask(endpoint, lambda stub: stub.GetBudget, pb.GetBudgetRequest)
    emit(output, lambda: shown.document(answer), lambda wide: shown.tables(answer, wide=wide))
