"""Print the versions of leadline and its parts."""

import platform
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller import __version__
from leadline_controller.cli.client import Endpoint, ask, connection_options, plain
from leadline_controller.cli.errors import Failed, Unreachable
from leadline_controller.cli.output import Format, emit, output_option, table

_TIMEOUT_S = 2.0


@click.command(epilog="Example: leadline version -o json")
@output_option
@connection_options
def version(output: Format, endpoint: Endpoint) -> None:
    """Print the versions of leadline, of Python and of the controller, if one answers, and whether
    that controller is the leader or a standby."""
    found: dict[str, Any] = {"leadline": __version__, "python": platform.python_version()}
    try:
        answer = ask(
            endpoint, lambda stub: stub.GetVersion, pb.GetVersionRequest, timeout_s=_TIMEOUT_S
        )
    except (Unreachable, Failed):
        answer = None
    if answer is None:
        controller, summary = None, f"none answers at {endpoint.address}"
    else:
        controller = plain(answer, "version cluster strategy leader lease_holder? unreachable")
        if answer.leader:
            role = "leads"
        elif "API server" in answer.unreachable:
            role = "does not lead"  # whoever held the Lease last may have lost it
        else:
            role = f"stands by; {answer.lease_holder or 'nobody'} leads"
        summary = f"{answer.version}, {role}"
        if answer.unreachable:
            away = " and the ".join(answer.unreachable)
            summary += f"; cannot reach the {away}, see leadline status"
    rows = [*found.items(), ("controller", summary)]
    found["controller"] = controller
    emit(output, lambda: found, lambda _: [table(("PART", "VERSION"), rows)])
