"""Move no pods for some time."""

import click
from leadline_wire.v1 import rescheduling_pb2 as pb
from leadline_wire.v1.rescheduling_pb2_grpc import ReschedulingStub

from leadline_controller.cli import rescheduling as shown
from leadline_controller.cli.client import Endpoint, ask, connection_options, duration_s
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog='Example: leadline pause --for 2h --reason "new switch"')
@click.option(
    "--for",
    "for_s",
    metavar="DURATION",
    callback=duration_s,
    help="For how long, such as 2h; until `leadline resume` without it.",
)
@click.option("--reason", default="", help="Shown to others who ask why nothing moves.")
@output_option
@connection_options
def pause(for_s: float, reason: str, output: Format, endpoint: Endpoint) -> None:
    """Move no running pods until `leadline resume`, also after a restart of the controller. A move
    that has begun ends; pending pods are still placed."""
    state = ask(
        endpoint,
        lambda stub: stub.Pause,
        pb.PauseRequest,
        service=ReschedulingStub,
        duration_s=for_s,
        reason=reason,
    )
    emit(output, lambda: shown.state_document(state), lambda _: shown.state_lines(state))
