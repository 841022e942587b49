"""Shows a comparison: in the terminal, as JSON or CSV, as pictures and as a page."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from leadline_controller.cli.errors import BadInput, Failed
from leadline_controller.cli.output import Format, cell, emit, table

from leadline_lab.replay import pictures, verdict
from leadline_lab.replay.comparison import (
    Comparison,
    ComparisonError,
    Difference,
    Estimate,
    Finding,
    compare,
    label,
)
from leadline_lab.replay.outcomes import Outcome
from leadline_lab.replay.page import page

if TYPE_CHECKING:  # rich is slow to import, and JSON does not need it
    from rich.console import RenderableType


def show(
    outcomes: Sequence[Outcome],
    output: Format | Literal["csv"],
    plot: Path | None = None,
    html: Path | None = None,
) -> None:
    """Compare the runs, print the comparison in this format, write pictures into the folder
    `plot` and the page to the file `html`. Raises BadInput and Failed."""
    try:
        comparison = compare(outcomes)
    except ComparisonError as error:
        raise BadInput(str(error)) from None
    if plot is not None:
        _write({plot / f"{each.name}.svg": each.file() for each in _drawn(comparison, outcomes)})
    if html is not None:
        _write({html: page(comparison, outcomes)})
    if output == "csv":
        click.echo(to_csv(comparison), nl=False)
        return
    emit(
        output,
        lambda: to_dict(comparison, outcomes),
        lambda wide: _tables(comparison, outcomes, wide),
    )


def _write(files: dict[Path, str]) -> None:
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise Failed(f"{path}: {error.strerror}: give a place to write to") from None


def _drawn(comparison: Comparison, outcomes: Sequence[Outcome]) -> Iterator[pictures.Picture]:
    for measure in dict.fromkeys(found.measure for found in comparison.findings):
        for draw in (pictures.levels, pictures.differences):
            if (picture := draw(comparison, measure)) is not None:
                yield picture
    if (curves := pictures.ready_curves(comparison, outcomes)) is not None:
        yield curves
    for _, picture in pictures.boards(comparison, outcomes):
        yield picture


def to_dict(comparison: Comparison, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All of it as plain data. What is unknown is null."""
    return {
        "base": comparison.base,
        "strategies": list(comparison.strategies),
        "options": {label(each, outcomes): dict(each.options) for each in outcomes},
        "windows": list(comparison.windows),
        "seeds": list(comparison.seeds),
        "drawn": {"unit": comparison.block, "count": comparison.blocks},
        "measures": [_row(found) for found in comparison.findings],
        "verdict": [
            verdict.summary(comparison),
            *_told(comparison),
        ],
        "caveats": list(verdict.caveats(comparison, outcomes)),
    }


def _told(comparison: Comparison) -> Iterator[str]:
    for each in comparison.strategies[1:]:
        yield f"{each}: {' '.join(verdict.paragraphs(comparison, each))}"


def to_csv(comparison: Comparison) -> str:
    """A line for each measure and strategy, below one of names. What is unknown is empty."""
    rows = [dict(_flat(_row(found))) for found in comparison.findings]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(found: Finding) -> dict[str, Any]:
    measure = found.measure
    row: dict[str, Any] = {
        "measure": measure.key,
        "strategy": found.strategy,
        "unit": measure.unit,
        "known": found.known,
        "unknown": found.unknown,
    }
    for name, estimate, difference in (
        ("mean", found.mean, found.mean_difference),
        ("worst", found.worst, found.worst_difference),
    ):
        row[name] = _estimate(estimate)
        row[f"{name}_difference"] = _estimate(difference.absolute if difference else None)
        row[f"{name}_difference_percent"] = _estimate(difference.percent if difference else None)
    return row


def _estimate(estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {"value": None, "low": None, "high": None}
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield name, value["value"]
            yield from ((f"{name}_{end}", value[end]) for end in ("low", "high"))
        else:
            yield name, value


def _tables(
    comparison: Comparison, outcomes: Sequence[Outcome], wide: bool
) -> Iterator["RenderableType"]:
    columns = ["MEASURE", "STRATEGY", "MEAN", "DIFFERENCE", "WORST 5 %"]
    if wide:
        columns += ["DIFFERENCE ", "PODS", "NOT KNOWN"]
    rows = []
    for found in comparison.findings:
        measure = found.measure
        unit = verdict.unit(measure)
        row: list[object] = [
            f"{measure.title}, {unit}" if unit else measure.title,
            found.strategy,
            cell(verdict.level(measure, found.mean), folds=False),
            _change(found, found.mean_difference),
            cell(verdict.level(measure, found.worst), folds=False),
        ]
        if wide:
            row += [_change(found, found.worst_difference), found.known, found.unknown]
        rows.append(row)
    yield table(columns, rows, numbers=("PODS", "NOT KNOWN"), keys=2)
    yield cell("")
    yield cell(verdict.summary(comparison))
    yield from map(cell, _told(comparison))
    yield cell("")
    for caveat in verdict.caveats(comparison, outcomes):
        yield cell(caveat)


def _change(found: Finding, difference: Difference | None) -> object:
    if difference is None:
        return "-"
    style = "" if difference.shown.is_certain else "dim"
    return cell(verdict.change(found.measure, difference), style)
