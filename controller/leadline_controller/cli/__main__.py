"""The `leadline` command. Commands are imported when they are called, so that `leadline
score` needs no gRPC and help comes up at once on a slow board."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from leadline_controller import __version__
from leadline_controller.cli.errors import Failed

INTERRUPTED = 130
_LONGEST_ERROR = 800
_EXPERIMENTS = "leadline_experiments"


class Lazy(NamedTuple):
    """Where a command is ("module:attribute"), and its line in the help."""

    target: str
    help: str


COMMANDS: Mapping[str, Lazy] = {
    "nodes": Lazy(
        "leadline_controller.cli.nodes:nodes", "List the nodes and what is measured on each now."
    ),
    "node": Lazy("leadline_controller.cli.nodes:node", "Show everything about one node."),
    "matrix": Lazy(
        "leadline_controller.cli.matrix:matrix", "Show round trips and bandwidth between the nodes."
    ),
    "placements": Lazy(
        "leadline_controller.cli.placements:placements", "List where pods went of late."
    ),
    "explain": Lazy("leadline_controller.cli.placements:explain", "Say why a pod is where it is."),
    "watch": Lazy("leadline_controller.cli.watch:watch", "Show what changes, as it happens."),
    "score": Lazy(
        "leadline_controller.cli.score:score",
        "Place the pods of a snapshot file, with no server at all.",
    ),
    "strategies": Lazy(
        "leadline_controller.cli.strategies:strategies", "List the strategies and their options."
    ),
    "experiment": Lazy(
        "leadline_experiments.command:experiment",
        "Run a paper's experiment again, beside its values.",
    ),
    "kube": Lazy(
        "leadline_controller.cli.kube:kube",
        "Print what a Kubernetes cluster needs: rights, and the extender.",
    ),
    "lab": Lazy(
        "leadline_controller.cli.lab:lab",
        "Real agents on this one machine, on links that really differ.",
    ),
    "version": Lazy(
        "leadline_controller.cli.version:version", "Print the versions of leadline and its parts."
    ),
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, _: click.Context) -> list[str]:
        """The names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].target.split(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != _EXPERIMENTS:
                raise
            raise Failed(
                "experiments are a package of their own: "
                "install it with pip install 'leadline-controller[experiments]'"
            ) from None
        assert isinstance(command, click.Command)  # noqa: S101  # COMMANDS would be wrong
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: leadline score --snapshot cluster.yaml --strategy dacs -o wide",
)
@click.version_option(__version__, message="leadline %(version)s")
def leadline() -> None:
    """See what Leadline measured, where pods went and why, and try strategies offline."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text stream
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away; keep the interpreter from flushing into the pipe once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are one line on standard error."""
    try:
        code = leadline.main(list(arguments), prog_name="leadline", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see '{context.command_path} --help'" if context else ""
        return _complain(error.format_message().rstrip(".") + hint, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # the last resort: users never see a traceback
        if os.environ.get("LEADLINE_DEBUG"):
            raise
        told = f"{type(error).__name__}: {error}"
        return _complain(f"internal error, please report it: {told} (LEADLINE_DEBUG=1 shows more)")
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int = 1) -> int:
    line = " ".join(message.split())
    if len(line) > _LONGEST_ERROR:  # it quotes a file or an argument at length
        line = f"{line[: _LONGEST_ERROR // 2]} ... {line[-_LONGEST_ERROR // 2 :]}"
    click.echo(f"leadline: {line}", err=True)
    return code


if __name__ == "__main__":
    main()
