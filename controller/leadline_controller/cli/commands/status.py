"""Tell whether Leadline is healthy, and what is wrong if not."""

import click

from leadline_controller.cli import status as shown
from leadline_controller.cli.client import Endpoint, connection_options
from leadline_controller.cli.output import Format, output_option


@click.command(epilog="Example: leadline status --quiet")
@shown.quiet_option
@output_option
@connection_options
def status(quiet: bool, output: Format, endpoint: Endpoint) -> int:
    """Tell how the controller, its broker, the API server, the boards and the pods are, and each
    problem in a line. Exit code 0: healthy; 1: degraded; 3: the controller cannot be reached."""
    return shown.print_and_exit_code(shown.answer(endpoint), output, quiet=quiet)
