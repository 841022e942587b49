"""Writes what repeats the commands' help and the comments of the .proto files: docs/commands.md,
docs/api.md, and pages of the manual, which the roles install. `make reference` runs it."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import cleandoc
from pathlib import Path

import click
import leadline_agent.__main__ as agent
import leadline_controller.__main__ as controller
from leadline_controller.cli.__main__ import leadline

from tests.docs import api
from tests.docs.api import escaped

REPOSITORY = Path(__file__).parents[2]
# An option that so many commands have is shown once.
_SHARED_BY = 6
_BEFORE = """\
# Every command and option
The help of each command, as `leadline COMMAND --help` shows it; `make reference` writes this page.
[cli.md](cli.md) says how to reach a controller, and what exit codes mean.

"""


Option = tuple[str, str]  # how it is typed, and what it means


@dataclass(frozen=True)
class Help:
    """What a command says of itself."""

    name: str  # as it is typed
    usage: str  # what may follow it
    text: str  # paragraphs, with blank lines between them
    options: tuple[Option, ...]
    example: str


def of_click(command: click.Command, name: str) -> Iterator[Help]:
    """The help of a command, then of those in it."""
    context = click.Context(command, info_name=name)
    records = (each.get_help_record(context) for each in command.get_params(context))
    known = ((typed, " ".join(meaning.split())) for typed, meaning in filter(None, records))
    options = tuple(each for each in known if each[1] and "--help" not in each[0])
    usage = " ".join(command.collect_usage_pieces(context))
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(command.help or ""))
    yield Help(name, usage, text, options, _example(command.epilog))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            if found := command.get_command(context, inner):
                yield from of_click(found, f"{name} {inner}")


def of_argparse(parser: argparse.ArgumentParser) -> Help:
    """The help of a daemon."""
    options = []
    for action in parser._actions:
        if "--help" not in action.option_strings:
            value = action.metavar if action.option_strings else "|".join(action.choices or ())
            typed = " ".join((*action.option_strings, *((str(value),) if value else ())))
            options.append((typed, action.help or ""))
    usage = " ".join(f"[{typed}]" for typed, _ in options)
    return Help(
        parser.prog, usage, parser.description or "", tuple(options), _example(parser.epilog)
    )


def _example(epilog: str | None) -> str:
    return " ".join((epilog or "").partition("Example: ")[2].split())


def generated() -> dict[Path, str]:
    """Each file as it should be."""
    commands = list(of_click(leadline, "leadline"))
    daemons = {"agent": of_argparse(agent.parser()), "controller": of_argparse(controller.parser())}
    roles = REPOSITORY / "ansible/roles"
    return {
        REPOSITORY / "docs/commands.md": page(commands, daemons.values()),
        REPOSITORY / "docs/api.md": api.page(),
        roles / "controller/files/leadline.1": manual(*commands),
        **{roles / f"{role}/files/{each.name}.1": manual(each) for role, each in daemons.items()},
    }


def page(commands: list[Help], daemons: Iterable[Help]) -> str:
    """The page of all commands. What many of them take comes first."""
    first, *others = commands
    shared, rest = _apart(others)
    parts = [
        _BEFORE,
        "## Options of many commands\n",
        *_table(shared),
        "\n",
        *_section("##", first),
    ]
    for each, also in rest:
        parts += _section("###", each, also)
    for each in daemons:
        parts += _section("##", each)
    return "".join(parts).rstrip("\n") + "\n"


def _apart(commands: list[Help]) -> tuple[list[Option], list[tuple[Help, list[Option]]]]:
    """The options that many commands have; each command without them, and which of them it has."""
    counted = Counter(option for each in commands for option in each.options)
    shared = [option for option, count in counted.items() if count >= _SHARED_BY]
    rest = []
    for each in commands:
        own = tuple(option for option in each.options if option not in shared)
        rest.append((replace(each, options=own), [o for o in each.options if o in shared]))
    return shared, rest


def _section(mark: str, each: Help, also: Sequence[Option] = ()) -> Iterator[str]:
    yield f"{mark} {each.name}\n```\n{each.name} {each.usage}\n```\n{escaped(each.text)}\n\n"
    if each.options:
        yield from (*_table(each.options), "\n")
    if also:
        names = ", ".join(f"`{_short(option)}`" for option in also)
        yield f"Also {names}: see [above](#options-of-many-commands).\n\n"
    yield f"Example: `{each.example}`\n\n"


def _short(option: Option) -> str:
    return option[0].split()[0].rstrip(",")


def _table(options: Iterable[Option]) -> Iterator[str]:
    yield "| option | meaning |\n| --- | --- |\n"
    for typed, meaning in options:
        yield f"| {escaped(f'`{typed}`')} | {escaped(meaning)} |\n"


def manual(first: Help, *others: Help) -> str:
    """A page of the manual, in the macros `man` of troff."""
    shared, rest = _apart(list(others))
    summary = first.text.partition(".")[0]
    lines = [f'.TH {first.name.upper()} 1 "" "Leadline" "User Commands"', ".SH NAME"]
    lines += [_roff(f"{first.name} - {summary[0].lower()}{summary[1:]}"), ".SH SYNOPSIS"]
    lines += [f".B {_roff(first.name)}", _roff(first.usage), ".SH DESCRIPTION", *_text(first)]
    lines += [".SH OPTIONS", *_options((*first.options, *shared))]
    if rest:
        lines.append(".SH COMMANDS")
    for each, also in rest:
        lines += [f".SS {_roff(f'{each.name} {each.usage}')}", *_text(each)]
        lines += _options(each.options)
        if also:
            lines += [".PP", _roff(f"Also {', '.join(map(_short, also))}, as above.")]
    return "\n".join([*lines, ""])


def _text(each: Help) -> Iterator[str]:
    yield from "\n.PP\n".join(map(_roff, each.text.split("\n\n"))).splitlines()
    yield from (".PP", "Example:", f".B {_roff(each.example)}")


def _options(options: Iterable[Option]) -> Iterator[str]:
    for typed, meaning in options:
        yield from (".TP", f".B {_roff(typed)}", _roff(meaning))


def _roff(text: str) -> str:
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


def main() -> None:
    """Write the files."""
    for file, text in generated().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
