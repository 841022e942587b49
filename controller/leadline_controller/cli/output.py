"""How every command prints its result: tables for people, JSON and YAML for scripts."""

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:  # rich takes long to import, and JSON needs none of it
    from rich.console import Console, RenderableType
    from rich.table import Table

Item = TypeVar("Item")
Format = Literal["table", "wide", "json", "yaml"]
UNKNOWN = "unknown"
_BAR_AFTER_S = 1.0
_UNBOUNDED = 100_000
_BREAK = "\n"

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format; wide is a table that shows more.",
)


def emit(
    output: Format,
    data: Callable[[], object],
    tables: Callable[[bool], Iterable["RenderableType"]],
) -> None:
    """Print in this format. Only the needed one of `data` and `tables` is called; the argument of
    `tables` is whether the format is wide."""
    if output == "json":
        click.echo(_json(data()))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data(), sort_keys=False, allow_unicode=True), nl=False)
    else:
        show(*tables(output == "wide"))


def stream(
    output: Literal["json", "yaml"],
    head: Mapping[str, Any],
    name: str,
    items: Iterable[object],
    tail: Mapping[str, Any],
) -> None:
    """Print {**head, name: [*items], **tail} as `emit` would, with one item at a time in memory."""
    if output == "json":
        _stream_json(head, name, items, tail)
    else:
        _stream_yaml(head, name, items, tail)


def _stream_json(
    head: Mapping[str, Any], name: str, items: Iterable[object], tail: Mapping[str, Any]
) -> None:
    write = partial(click.echo, nl=False)
    write(_json({**head, name: []}).removesuffix("]\n}"))
    separator, closing = "\n", "]"
    for item in items:
        # Every line break is JSON's own: in a text it is escaped.
        write(f"{separator}    {_json(item).replace(_BREAK, f'{_BREAK}    ')}")
        separator, closing = ",\n", "\n  ]"
    write(closing)
    for key, value in tail.items():
        write(f",{_json({key: value}).removeprefix('{').removesuffix(f'{_BREAK}}}')}")
    write("\n}\n")


def _stream_yaml(
    head: Mapping[str, Any], name: str, items: Iterable[object], tail: Mapping[str, Any]
) -> None:
    import yaml

    dump = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True)
    click.echo(f"{dump(dict(head))}{name}:", nl=False)
    empty = True
    for item in items:
        click.echo(("\n" if empty else "") + str(dump([item])), nl=False)
        empty = False
    if empty:
        click.echo(" []")
    if tail:
        click.echo(dump(dict(tail)), nl=False)


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)


def show(*renderables: "RenderableType") -> None:
    """Print for people: fitted to a terminal, or in full and without colours into a file."""
    console = _console(stderr=False)
    if console.is_terminal:
        console.print(*renderables, sep="\n")
        return
    with console.capture() as captured:
        console.print(*renderables, sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> "Table":
    """A table of these columns. A cell that is None reads "unknown"."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(clean(cell), style="dim" if cell is None else "") for cell in row))
    return made


def clean(cell: object) -> str:
    """Text that is safe on a terminal. Names and reasons come from files and the network, and
    escape sequences in them could rewrite the screen."""
    if cell is None:
        return UNKNOWN
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(cell))


def track(items: Collection[Item], label: str) -> Iterator[Item]:
    """The items, with a progress bar on standard error if that is a terminal and the iteration
    takes longer than a second."""
    with progress(label) as report:
        for number, item in enumerate(items, start=1):
            yield item
            report(number / len(items))


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, if that is a terminal and the work takes longer than a
    second. Yields a function to call with the share that is done, 0 to 1."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    started_s = time.monotonic()
    with Progress(
        console=_console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,  # else everything printed meanwhile goes to standard error, too
    ) as bar:
        task = bar.add_task(label, total=1.0, visible=False)

        def report(done: float) -> None:
            late = time.monotonic() - started_s > _BAR_AFTER_S
            bar.update(task, completed=done, visible=late)
            if late:
                bar.refresh()

        yield report


def working(label: str) -> AbstractContextManager[Any]:
    """A spinner on standard error, if that is a terminal, for work of unknown length."""
    return _console(stderr=True).status(label) if sys.stderr.isatty() else nullcontext()


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _UNBOUNDED,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )
