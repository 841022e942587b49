"""How every command prints its result: tables for people, JSON and YAML for scripts."""

import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadline_controller.cli.errors import BadInput

if TYPE_CHECKING:  # rich takes long to import, and JSON needs none of it
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.measure import Measurement
    from rich.text import Text

Item = TypeVar("Item")
Format = str  # one of FORMATS; JSONPATH is followed by a template
FORMATS = ("table", "wide", "json", "yaml")
JSONPATH = "jsonpath="
UNKNOWN = "unknown"
DIM = "dim"
_BAR_AFTER_S = 1.0
_UNBOUNDED = 100_000
_GAP = 2  # columns between those of a table
_NARROWEST = 4
_BREAK = "\n"

_headers = ContextVar("headers", default=True)  # whether tables have a line with the columns' names


class _Formats(click.Choice[str]):
    """The formats of a command."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Format:
        """One of them, or one with its template."""
        text = str(value).removeprefix("=")  # of -o=json
        if not text.startswith(JSONPATH):
            return super().convert(text, param, ctx)
        try:
            _template(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return text


def output_options(*more: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add -o to a command, which gets it as `output`. more: formats that it has beside the usual
    ones."""
    return click.option(
        "-o",
        "--output",
        type=_Formats((*FORMATS, *more, JSONPATH)),
        default="table",
        show_default=True,
        help="Format; wide is a table that shows more, jsonpath= has a template as kubectl's.",
    )


output_option = output_options()


def _template(output: Format) -> Any:
    from leadline_controller.cli.jsonpath import Template

    return Template(output.removeprefix(JSONPATH))


def emit(
    output: Format,
    data: Callable[[], object],
    tables: Callable[[bool], Iterable["RenderableType"]],
    *,
    headers: bool = True,
) -> None:
    """Print in this format. Only the needed one of `data` and `tables` is called; the argument of
    `tables` is whether the format is wide. headers: whether tables have a line of them."""
    if output.startswith(JSONPATH):
        text = _template(output).filled(data())
        click.echo(text, nl=not text.endswith("\n"))
    elif output == "json":
        click.echo(_json(data()))
    elif output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data(), sort_keys=False, allow_unicode=True), nl=False)
    else:
        before = _headers.set(headers)
        show(*tables(output == "wide"))
        _headers.reset(before)


def stream(
    output: Format,
    head: Mapping[str, Any],
    name: str,
    items: Iterable[object],
    tail: Mapping[str, Any],
) -> None:
    """Print {**head, name: [*items], **tail} as `emit` would. JSON and YAML with one item at a time
    in memory."""
    if output.startswith(JSONPATH):
        emit(output, lambda: {**head, name: list(items), **tail}, lambda _: ())
        return
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


def check_writable(option: str, folder: Path) -> None:
    """Make the folder, and raise BadInput if it cannot be written: before work that takes
    minutes. option: that names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".leadline"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(f"{option} {folder}: {error.strerror}: give a place to write to") from None


def show(*renderables: "RenderableType") -> None:
    """Print for people: fitted to a terminal, or in full and without colours into a file."""
    console = _console(stderr=False)
    if console.is_terminal:
        console.print(*renderables, sep="\n")
        return
    with console.capture() as captured:
        console.print(*renderables, sep="\n")
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


class Table:
    """Rows below a header, without lines, fitted to the console's width so that no value is cut.

    Text folds: between words, and within those that are longer than a share of the width. Numbers
    do not, nor does a column with a cell that must not. What does not fit beside the key columns,
    the first `keys` ones, follows in further tables that begin with them again.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Iterable[object]],
        numbers: Collection[str],
        keys: int,
    ) -> None:
        from rich.cells import cell_len
        from rich.text import Text

        self._headers = [Text("\n".join(map(clean, each.split("\n")))) for each in columns]
        self._rows = [tuple(map(cell, row)) for row in rows]
        self._numbers = [each in numbers for each in columns]
        self._keys = keys
        self._whole, self._words, self._lines = list(self._numbers), [], []
        for column, header in enumerate(self._headers):
            cells = [header, *(row[column] for row in self._rows)]
            self._whole[column] |= any(each.no_wrap for each in cells)
            lines = [line for each in cells for line in each.plain.split("\n")]
            self._lines.append(max(1, *map(cell_len, lines)))
            self._words.append(
                max((cell_len(word) for x in lines for word in x.split()), default=0)
            )

    def __rich_measure__(self, _: "Console", __: "ConsoleOptions") -> "Measurement":
        from rich.measure import Measurement

        return Measurement(1, sum(self._lines) + _GAP * (len(self._headers) - 1))

    def __rich_console__(self, _: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.table import Table as Grid

        for at, group in enumerate(self._groups(options.max_width)):
            made = Grid(
                box=None,
                padding=(0, _GAP, 0, 0),
                pad_edge=False,
                header_style="bold",
                show_header=_headers.get() and any(each.plain for each in self._headers),
            )
            for column, width in zip(group, self._widths(group, options.max_width), strict=True):
                made.add_column(
                    self._headers[column],
                    justify="right" if self._numbers[column] else "left",
                    width=width,
                    overflow="fold",
                )
            for row in self._rows:
                made.add_row(*(row[column] for column in group))
            if at:
                yield ""
            yield made

    def _least(self, column: int, width: int) -> int:
        """The width below which a column is not narrowed while others can be."""
        if self._whole[column]:
            return self._lines[column]
        share = max(20, width // 3) // self._keys if column < self._keys else max(16, width // 4)
        return min(self._words[column], share)

    def _groups(self, width: int) -> Iterator[list[int]]:
        """The columns of each table."""
        group = keys = list(range(self._keys))
        for column in range(self._keys, len(self._headers)):
            larger = [*group, column]
            least = sum(self._least(each, width) for each in larger)
            if len(group) > len(keys) and least + _GAP * len(group) > width:
                yield group
                larger = [*keys, column]
            group = larger
        yield group

    def _widths(self, group: Sequence[int], width: int) -> list[int]:
        """The natural widths, and where they do not fit the widest is narrowed, numbers last."""
        room = width - _GAP * (len(group) - 1)
        least = [self._least(each, width) for each in group]
        widths = [min(self._lines[each], room) for each in group]

        def gives(at: int) -> tuple[bool, bool, int]:
            is_text = not self._whole[group[at]] and widths[at] > _NARROWEST
            return widths[at] > least[at], is_text, widths[at]

        while sum(widths) > max(room, len(group)):
            widths[max(range(len(group)), key=gives)] -= 1
        return widths


def table(
    columns: Sequence[str],
    rows: Iterable[Iterable[object]] = (),
    *,
    numbers: Collection[str] = (),
    keys: int = 1,
) -> Table:
    """A table; see there. numbers: columns that are aligned right and do not fold. keys: how many
    columns, the first ones, say what a row is about. Without any header it has no header line."""
    return Table(columns, rows, numbers, keys)


def cell(value: object, style: str = "", *, folds: bool = True) -> "Text":
    """A cell, safe for a terminal and without markup. None reads "unknown"; a Text stays. folds:
    whether it may take several lines."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    return Text(
        clean(value), style=DIM if value is None else style, no_wrap=None if folds else True
    )


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
