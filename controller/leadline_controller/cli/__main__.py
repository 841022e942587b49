"""The `leadline` command. Its commands are the modules of `commands`, and the entry points that
other packages declare in the group `leadline.commands`. A command is imported when it is called,
so that `leadline score` needs no gRPC, and `leadline --help` answers at once on a slow board."""

import errno
import importlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadline_controller import __version__
from leadline_controller.cli import commands
from leadline_controller.cli.errors import Failed

if TYPE_CHECKING:  # only help and plug-ins need it, and it takes long to import
    from importlib.metadata import EntryPoint

    from click.shell_completion import CompletionItem

INTERRUPTED = 130
# Commands of our own packages that may be missing: the line in the help, and what to do.
OPTIONAL: Mapping[str, tuple[str, str]] = {
    "experiment": (
        "Run a paper's experiment again, and compare with its values.",
        "experiments are a package of their own: "
        "install it with pip install 'leadline-controller[experiments]'",
    ),
    "lab": (
        "Run real agents on this machine, on links that differ.",
        "the lab is a package of its own: install it with pip install 'leadline-controller[demo]'",
    ),
    "replay": (
        "Run recorded hours again under other strategies, and compare.",
        "replays are a part of the lab, a package of its own: "
        "install it with pip install 'leadline-controller[demo]'",
    ),
}
# The commands in the help; those of other packages come last.
_SECTIONS: Mapping[str, str] = {
    "What is measured": "nodes node matrix traffic watch budget images profile",
    "Where pods go, and why": "placements explain reschedule pause resume",
    "Whether all is well": "status doctor version",
    "Trying strategies": "strategies snapshot score compare recording replay map experiment lab",
    "Setting up": "kube completion",
}
# Options that may stand before the command, too: all of them take a value.
_ANYWHERE = ("--address", "--ca", "--cert", "--key", "--output", "--namespace", "-o", "-n")
_ALIKE = 0.7  # as difflib has it: 1 is the same
_LONGEST_ERROR = 800
# What writing to a full, closed or vanished standard output says.
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)


def _modules() -> dict[str, Path]:
    files = (file for folder in commands.__path__ for file in Path(folder).glob("[!_]*.py"))
    return {file.stem.replace("_", "-"): file for file in files}


def built_in() -> dict[str, str]:
    """The commands that are modules of `commands`: name -> line in the help, which is the first
    paragraph of the module's docstring, read without importing it."""
    lines = {}
    for name, file in _modules().items():
        docstring = file.read_text("utf-8").partition('"""')[2].partition('"""')[0]
        lines[name] = " ".join(docstring.partition("\n\n")[0].split())
    return lines


def _plugins() -> "dict[str, EntryPoint]":
    from leadline_controller.parsing.entry_points import COMMANDS, declared

    return {each.name: each for each in reversed(declared(COMMANDS))}


def _load_plugin(plugin: "EntryPoint") -> click.Command:
    from leadline_controller.parsing.entry_points import PluginError, load

    try:
        command = load(plugin)
        if not isinstance(command, click.Command):
            problem = f"expected a click command, got {type(command).__name__}"
            raise PluginError(plugin, problem, "correct the entry point")
    except PluginError as error:
        missing = getattr(error.__cause__, "name", None) or ""
        if plugin.name in OPTIONAL and missing.partition(".")[0] == plugin.module.partition(".")[0]:
            raise Failed(OPTIONAL[plugin.name][1]) from None
        raise Failed(str(error)) from error
    return command


class LazyGroup(click.Group):
    """A group that imports a command only when it is called."""

    def list_commands(self, _: click.Context) -> list[str]:
        """The names, sorted."""
        return sorted({*_modules(), *OPTIONAL, *_plugins()})

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command. Raises Failed where its package is missing or broken."""
        if module := _modules().get(cmd_name):
            made = importlib.import_module(f"{commands.__name__}.{module.stem}")
            command = getattr(made, module.stem)
            assert isinstance(command, click.Command)  # noqa: S101  # a test holds it of every module
            return command
        if plugin := _plugins().get(cmd_name):
            return _load_plugin(plugin)
        if cmd_name in OPTIONAL:
            raise Failed(OPTIONAL[cmd_name][1])
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The names of commands that begin so, without importing them."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        lines = built_in() | {name: line for name, (line, _) in OPTIONAL.items()}
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [CompletionItem(name, help=lines.get(name)) for name in names]

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        # The line of a plug-in's command is the summary of its distribution.
        lines = {
            name: (plugin.dist.metadata["Summary"] or "") if plugin.dist else ""
            for name, plugin in _plugins().items()
        }
        lines |= {name: line for name, (line, _) in OPTIONAL.items()}
        lines |= built_in()
        width = max(map(len, lines))
        sections = {title: names.split() for title, names in _SECTIONS.items()}
        known = {name for names in sections.values() for name in names}
        sections["More commands"] = sorted(lines.keys() - known)
        for title, names in sections.items():
            if rows := [(name.ljust(width), lines[name]) for name in names if name in lines]:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in every group, and a wrong name is answered with those that may be meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = " or ".join(get_close_matches(args[0], self.list_commands(ctx), cutoff=_ALIKE))
            meant = f"{error.message} Did you mean {near}?" if near else error.message
            raise click.UsageError(meant, error.ctx) from None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in every group, and options that commands share may stand before the command."""
        before, rest = [], list(args)
        while rest and (option := _anywhere(rest[0])):
            count = 2 if rest[0] == option else 1
            before += rest[:count]
            rest = rest[count:]
        if before and not rest:
            raise click.UsageError("Missing command.", ctx)
        at = 0
        command: click.Command | None = self if before else None
        while isinstance(command, click.Group) and rest[at:] and not rest[at].startswith("-"):
            command = command.get_command(ctx, rest[at])
            at += 1
        return super().parse_args(ctx, [*rest[:at], *before, *rest[at:]] if at else rest)


def _anywhere(word: str) -> str | None:
    """The option that this word begins with: --address, --address=x, -o or -ojson."""
    for option in _ANYWHERE:
        is_short = not option.startswith("--")
        if word == option or word.startswith(option if is_short else f"{option}="):
            return option
    return None


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: leadline score --snapshot docs/examples/dacs-fig2.yaml --strategy dacs",
)
@click.version_option(__version__, message="leadline %(version)s")
def leadline() -> None:
    """See what Leadline measures, where it places pods and why, and try strategies offline.
    --address, --ca, --cert, --key, -o and -n may stand before the command, too."""


def main() -> None:
    """Run the command line and exit with its code."""
    _open_closed_streams()
    logging.basicConfig(format="leadline: %(message)s")  # warnings and errors, as one line each
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text stream
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(1)  # the reader has closed the pipe
    except OSError as error:
        # An answer that did not arrive is no success; what failed already has said so.
        code = code or _fail(_unwritten(error))
        _discard(1)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Of a shell's `>&-` and `2>&-`: writing to standard output fails, errors are discarded, and
    no file or socket gets the number of either."""
    if sys.stdout is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        _discard(2)
        sys.stderr = os.fdopen(2, "w")


def _discard(stream: int) -> None:
    """The interpreter must not flush into this file again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _unwritten(error: OSError) -> str:
    return f"standard output cannot be written: {error.strerror}"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are one line on standard error."""
    try:
        code = leadline.main(list(arguments), prog_name="leadline", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        told = error.format_message().rstrip(".")
        see = " See" if told.endswith(("?", "?)")) else "; see"
        hint = f"{see} '{context.command_path} --help'" if context else ""
        return _fail(told + hint, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # users never see a traceback
        if isinstance(error, OSError) and not error.filename and error.errno in _OUTPUT_ERRORS:
            return _fail(_unwritten(error))
        if os.environ.get("LEADLINE_DEBUG"):
            raise
        message = f"{type(error).__name__}: {error}"
        return _fail(f"internal error, please report it: {message} (LEADLINE_DEBUG=1 shows more)")
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int = 1) -> int:
    line = " ".join(message.split())
    if len(line) > _LONGEST_ERROR:  # it quotes a long file or argument
        line = f"{line[: _LONGEST_ERROR // 2]} ... {line[-_LONGEST_ERROR // 2 :]}"
    with suppress(OSError):  # the exit code still tells
        click.echo(f"leadline: {line}", err=True)
    return code


if __name__ == "__main__":
    main()
