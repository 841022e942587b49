"""`leadline experiment`: what the papers measured, run again, and beside it what they print."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import Format, clean, emit, output_option, progress

from leadline_experiments import EXPERIMENTS
from leadline_experiments.result import Claim, Result
from leadline_experiments.running import run, run_all
from leadline_experiments.tables import NUMBERS, Cells, document, tables, tally

if TYPE_CHECKING:  # rich takes long to import, and JSON needs none of it
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
@output_option
def experiment(name: str, seed: int, folder: Path | None, output: Format) -> None:
    """Run a paper's experiment again, or all of them, and print the paper's values, ours and
    the difference; then what the paper claims, and whether it came out."""
    if folder is not None:
        _writable(folder)
    results = _run(name, seed)
    if folder is not None:
        _plot(results, folder)
    emit(
        output,
        lambda: _documents(results, together=name == ALL),
        lambda wide: [part for result in results for part in _shown(result, wide=wide)],
    )


def _run(name: str, seed: int) -> list[Result]:
    if name != ALL:
        with progress(f"running {name}") as report:
            return [run(EXPERIMENTS[name], seed, report)]
    with progress(f"running {len(EXPERIMENTS)} experiments") as report:
        return run_all(EXPERIMENTS, seed, report)


def _documents(results: Sequence[Result], *, together: bool) -> Any:
    made = [document(result) for result in results]
    return {"experiments": made} if together else made[0]


def _writable(folder: Path) -> None:
    """Found out before the work, which may take minutes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".leadline"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(f"--plot {folder}: {error.strerror}: give a folder to write to") from None


def _plot(results: Sequence[Result], folder: Path) -> None:
    from leadline_experiments import markdown, plots

    try:
        for result in results:
            for figure in result.figures:
                plots.save(figure, folder)
            (folder / f"{result.experiment}.md").write_text(
                markdown.section(result), encoding="utf-8"
            )
    except OSError as error:
        raise Failed(f"--plot {folder}: {error.strerror}") from None


def _shown(result: Result, *, wide: bool) -> Iterator["RenderableType"]:
    from rich.text import Text

    yield Text(f"{result.experiment}: {result.paper}", style="bold")
    for title, columns, rows in tables(result):
        yield Text(f"\n{title}", style="bold")
        yield _table(columns, rows)
    yield Text("\nclaims", style="bold")
    yield _claims_in_full(result.claims) if wide else _claims(result.claims)
    if wide:
        yield Text("\nset once, the same for every method", style="bold")
        yield _table(("number", "value"), list(result.calibration.items()))
    yield Text(f"\n{tally(result)}\n", style="bold")


def _claims(claims: Sequence[Claim]) -> "RenderableType":
    """What is said and what came out below each other, as both can be long."""
    rows = []
    for claim in claims:
        why = f"\n{claim.why}" if claim.why else ""
        told = f"{claim.where}: {claim.says}\npaper {claim.paper}, here {claim.ours}{why}"
        rows.append((_held(claim), told))
    return _table(("result", "claim"), rows)


def _claims_in_full(claims: Sequence[Claim]) -> "RenderableType":
    columns = ("result", "table", "case", "claim", "the paper", "here", "why")
    rows = [(_held(c), c.table, c.case, c.says, c.paper, c.ours, c.why) for c in claims]
    return _table(columns, rows)


def _held(claim: Claim) -> str:
    return "held" if claim.holds else "missed"


def _table(columns: Cells, rows: Iterable[Cells]) -> "RenderableType":
    from leadline_controller.cli.render.tables import table

    headed = [name.upper() for name in columns]
    made = table(
        *headed,
        numbers=[name.upper() for name in NUMBERS],
        folding=headed,
    )
    for row in rows:
        made.add_row(*(_lines(each) for each in row))
    return made


def _lines(text: str) -> "RenderableType":
    from rich.text import Text

    return Text("\n").join(Text(clean(line)) for line in text.split("\n"))
