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
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

Item = TypeVar("Item")
Format = Literal["table", "wide", "json", "yaml"]
UNKNOWN = "unknown"
DIM = "dim"
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
    write = partial(click.echo, nl=False)
    separator = "\n"
    if output == "json":
        write(_json({**head, name: []}).removesuffix("]\n}"))
        closing = "]"
        for item in items:
            # Every line break is JSON's own: in a text it is escaped.
            write(f"{separator}    {_json(item).replace(_BREAK, f'{_BREAK}    ')}")
            separator, closing = ",\n", "\n  ]"
        write(closing)
        for key, value in tail.items():
            write(f",{_json({key: value}).removeprefix('{').removesuffix(f'{_BREAK}}}')}")
        write("\n}\n")
        return
    import yaml

    dump = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True)
    write(f"{dump(dict(head))}{name}:")
    for item in items:
        write(f"{separator}{dump([item])}")
        separator = ""
    write(" []\n" if separator else "")
    write(dump(dict(tail)) if tail else "")


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


def table(
    columns: Sequence[str],
    rows: Iterable[Iterable[object]] = (),
    *,
    numbers: Iterable[str] = (),
    folding: Iterable[str] | None = None,
) -> "Table":
    """A table without lines. numbers: columns that are aligned right. folding: columns whose text
    may take several lines, None for all; the others never break."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in numbers else "left",
            no_wrap=folding is not None and column not in folding,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*map(cell, row))
    return made


def cell(value: object, style: str = "") -> "Text":
    """A cell, safe for a terminal and without markup. None reads "unknown"; a Text stays."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    return Text(clean(value), style=DIM if value is None else style)


class FirstThatFits:
    """Prints the first variant that fits the console's width without broken cells, else the
    last one. Text may break anywhere. Only those that are tried are taken from `variants`."""

    def __init__(self, variants: Iterable[Sequence["RenderableType"]]) -> None:
        self._variants = variants

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.measure import Measurement
        from rich.text import Text

        wide = options.update(width=10_000)
        variant: Sequence[RenderableType] = ()
        for variant in self._variants:
            tables = (each for each in variant if not isinstance(each, Text))
            needed = (Measurement.get(console, wide, each).maximum for each in tables)
            if max(needed) <= options.max_width:
                break
        yield from variant


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
