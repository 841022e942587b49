"""`leadline experiment`: run the papers' experiments and compare the results with the papers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import Format, check_writable, clean, emit, progress
from leadline_controller.parsing.entry_points import PluginError
from leadline_controller.strategies import STRATEGIES

from leadline_experiments import EXPERIMENTS
from leadline_experiments.result import Claim, Result
from leadline_experiments.running import run, run_all
from leadline_experiments.tables import (
    NUMBERS,
    Cells,
    details,
    summary,
    tables,
    tally_text,
    to_csv,
    to_dict,
)

if TYPE_CHECKING:  # rich is slow to import, and JSON does not need it
    from rich.console import RenderableType

ALL = "all"


@click.command(epilog="Example: leadline experiment netsched --plot plots")
@click.argument("name", type=click.Choice([*EXPERIMENTS, ALL]))
@click.option("--seed", default=0, show_default=True, help="Repeats everything left to chance.")
@click.option(
    "--plot",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the figures there, SVG and PNG, and the tables as Markdown.",
)
@click.option(
    "--strategy",
    "joining",
    type=click.Choice(list(STRATEGIES)),
    help="Let it join the paper's methods, with its default options.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "csv"]),
    default="table",
    show_default=True,
    help="Format; wide is a table that shows more, csv has the rows only.",
)
def experiment(
    name: str, seed: int, folder: Path | None, joining: str | None, output: Format | Literal["csv"]
) -> None:
    """Run a paper's experiment again, or all of them, and print the paper's values, ours and
    the difference; then what the paper claims, and whether it came out."""
    if folder is not None:
        check_writable("--plot", folder)
    try:
        results = _run(name, seed, joining)
    except PluginError as error:
        raise BadInput(str(error)) from None
    if folder is not None:
        _plot(results, folder)
    if output == "csv":
        click.echo(to_csv(results), nl=False)
        return

    def data() -> Any:
        documents = [to_dict(result) for result in results]
        return {"experiments": documents} if name == ALL else documents[0]

    emit(output, data, lambda wide: [part for each in results for part in _render(each, wide)])


def _run(name: str, seed: int, joining: str | None) -> list[Result]:
    if name == ALL:
        with progress(f"running {len(EXPERIMENTS)} experiments") as report:
            return run_all(EXPERIMENTS, seed, report, strategy=joining)
    with progress(f"running {name}") as report:
        return [run(EXPERIMENTS[name], seed, report, joining)]


def _plot(results: Sequence[Result], folder: Path) -> None:
    from leadline_experiments import plots

    try:
        for result in results:
            for figure in result.figures:
                plots.save(figure, folder)
            for name, page in (
                (f"{result.experiment}-summary.md", summary(result)),
                (f"{result.experiment}.md", details(result)),
            ):
                (folder / name).write_text(page, encoding="utf-8")
    except OSError as error:
        raise Failed(f"--plot {folder}: {error.strerror}") from None


def _render(result: Result, wide: bool) -> Iterator["RenderableType"]:
    from rich.text import Text

    yield Text(f"{result.experiment}: {result.paper}", style="bold")
    for title, columns, rows in tables(result):
        yield Text(f"\n{title}", style="bold")
        yield _table(columns, rows)
    yield Text("\nclaims", style="bold")
    yield _claims(result.claims, wide)
    if wide:
        yield Text("\nsettings, the same for every method", style="bold")
        settings = [(name, *setting) for name, setting in result.settings.items()]
        yield _table(("setting", "value", "from"), settings)
    yield Text(f"\n{tally_text(result.claims)}\n", style="bold")


def _claims(claims: Sequence[Claim], wide: bool) -> "RenderableType":
    """Narrow: the claim above its outcome in one column, as both can be long."""
    rows: list[Cells] = []
    for claim in claims:
        held = "held" if claim.holds else "missed"
        if wide:
            where = (claim.table, claim.case, claim.says)
            rows.append((f"{held}\n{claim.kind}", *where, claim.paper, claim.ours, claim.why))
        else:
            why = f"\n{claim.why}" if claim.why else ""
            values = f"paper {claim.paper}, here {claim.ours} ({claim.kind})"
            text = f"{claim.where}: {claim.says}\n{values}{why}"
            rows.append((held, text))
    columns = ("table", "case", "claim", "the paper", "here", "why") if wide else ("claim",)
    return _table(("result", *columns), rows)


def _table(columns: Cells, rows: Iterable[Cells]) -> "RenderableType":
    from leadline_controller.cli.output import table
    from rich.text import Text

    headers = [name.upper() for name in columns]
    cells = (
        [Text("\n").join(Text(clean(line)) for line in cell.split("\n")) for cell in row]
        for row in rows
    )
    return table(headers, cells, numbers=[name.upper() for name in NUMBERS])
