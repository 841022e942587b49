"""Move pods again after a pause."""

import click
from leadline_wire.v1 import rescheduling_pb2 as pb
from leadline_wire.v1.rescheduling_pb2_grpc import ReschedulingStub

from leadline_controller.cli import rescheduling as shown
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline resume")
@output_option
@connection_options
def resume(output: Format, endpoint: Endpoint) -> None:
    """End a pause: running pods are moved again as configured."""
    state = ask(endpoint, lambda stub: stub.Resume, pb.ResumeRequest, service=ReschedulingStub)
    emit(output, lambda: shown.state_document(state), lambda _: shown.state_lines(state))
