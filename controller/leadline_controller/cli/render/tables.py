"""The style of the tables of the commands that ask a controller, and how they fit a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from leadline_controller.cli.output import clean

DIM = "dim"


def table(*columns: str, numbers: Iterable[str] = (), folding: Iterable[str] = ()) -> Table:
    """An empty table without lines. numbers: columns that are aligned right. folding: columns
    whose text may take several lines; the others never break."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in numbers else "left",
            no_wrap=name not in folding,
            overflow="fold",
        )
    return made


def cell(value: object, style: str = "") -> Text:
    """A cell with text from the network, made safe for a terminal and without markup."""
    return Text(clean(value), style=style)


class FirstThatFits:
    """Prints the first variant that fits the console's width without broken cells, else the
    last one."""

    def __init__(self, variants: Sequence[Sequence[RenderableType]]) -> None:
        self._variants = variants

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for variant in self._variants[:-1]:
            needed = (Measurement.get(console, options.update(width=10_000), x) for x in variant)
            if max(each.maximum for each in needed) <= options.max_width:
                yield from variant
                return
        yield from self._variants[-1]
