"""`leadline version`."""

import platform

import click

from leadline_controller import __version__
from leadline_controller.cli.output import Format, emit, output_option, table


@click.command(epilog="Example: leadline version -o json")
@output_option
def version(output: Format) -> None:
    """Print the versions of leadline and of the Python that runs it."""
    found = {"leadline": __version__, "python": platform.python_version()}
    emit(output, lambda: found, lambda _: [table(("PART", "VERSION"), found.items())])
