"""Tell what to do about each problem, and what is fine."""

import click

from leadline_controller.cli import status as shown
from leadline_controller.cli.client import Endpoint, connection_options
from leadline_controller.cli.output import Format, output_option


@click.command(epilog="Example: leadline doctor")
@shown.quiet_option
@output_option
@connection_options
def doctor(quiet: bool, output: Format, endpoint: Endpoint) -> int:
    """Tell what to do about each problem of `leadline status`, with the commands to run, and what
    was checked and is fine. Exit codes as of `leadline status`."""
    return shown.print_and_exit_code(shown.answer(endpoint), output, quiet=quiet, doctor=True)
