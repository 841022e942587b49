"""Print a shell's completion of this command."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_LEADLINE_COMPLETE"


@click.command(epilog="Example: leadline completion bash >> ~/.bash_completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete commands, options, and names of nodes and pods, which it
    asks the controller for. For this session only: eval "$(leadline completion bash)"."""
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101  # click has the shells above
    script = made(click.Group(), {}, "leadline", VARIABLE)
    # Not source(), which runs bash to see its version.
    click.echo(script.source_template % script.source_vars())
