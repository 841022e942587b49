"""A result as text: its rows by table, without empty or constant columns, for terminal and docs;
Markdown pages; plain data for JSON and CSV.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from leadline_experiments.result import Claim, Result, Row, tally

Cells = Sequence[str]


class Table(NamedTuple):
    """One table or figure of the paper."""

    title: str  # its name and the labels that all rows share
    columns: Cells
    rows: Sequence[Cells]


_COLUMNS = ("case", "strategy", "option", "metric", "paper", "ours", "diff", "optimum", "gap")
_LABELS = range(4)
NUMBERS = frozenset(_COLUMNS[4:])


def tables(result: Result) -> Sequence[Table]:
    """The rows by table, in the order in which the tables first appear."""
    by_name: dict[str, list[Cells]] = {}
    for row in result.rows:
        by_name.setdefault(row.table, []).append(_cells(row))
    return [_table(name, rows) for name, rows in by_name.items()]


def _table(name: str, rows: Sequence[Cells]) -> Table:
    """Labels that all rows share are part of the title."""
    shared = [at for at in _LABELS if len(rows) > 1 and len({row[at] for row in rows}) == 1]
    kept = [at for at in range(len(_COLUMNS)) if at not in shared and any(row[at] for row in rows)]
    return Table(
        ": ".join([name, *(rows[0][at] for at in shared if rows[0][at])]),
        [_COLUMNS[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
    )


def _cells(row: Row) -> Cells:
    gap = row.gap_percent
    return (
        *(row.case, row.strategy, row.option, row.metric),
        *(number(row.paper), number(row.ours), number(row.difference, sign="+")),
        *(number(row.optimum), "" if gap is None else f"{gap:+.1f} %"),
    )


def number(value: float | None, sign: str = "") -> str:
    """Two decimals, four below 1, no trailing zeros: 90, 13.47, 0.0312; "" for None."""
    if value is None:
        return ""
    decimals = 2 if abs(value) >= 1 else 4
    text = f"{value:{sign}.{decimals}f}"
    text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "+0") else text


def tally_text(claims: Sequence[Claim]) -> str:
    """How many claims hold, of each kind, as a sentence without a full stop."""
    kinds = (f"{held} of {all_} {kind}" for kind, (held, all_) in tally(claims).items())
    return f"claims that hold: {', '.join(kinds)}" if claims else "no claims"


def to_dict(result: Result) -> dict[str, Any]:
    """The result without its figures as plain data, for JSON."""
    return {
        "experiment": result.experiment,
        "paper": result.paper,
        "settings": {name: setting._asdict() for name, setting in result.settings.items()},
        "rows": [_row(row) for row in result.rows],
        "claims": [asdict(claim) for claim in result.claims],
    }


def to_csv(results: Iterable[Result]) -> str:
    """The rows of all results, with a line of names."""
    text = io.StringIO()
    rows = [{"experiment": each.experiment, **_row(row)} for each in results for row in each.rows]
    if rows:
        writer = csv.DictWriter(text, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _row(row: Row) -> dict[str, Any]:
    return {**asdict(row), "difference": row.difference, "gap_percent": row.gap_percent}


def summary(result: Result, folder: str = "") -> str:
    """What a reader of docs/experiments.md wants first, as Markdown under a heading of the second
    level: headline values and a figure. folder: where these files are, relative to the page."""
    return "\n".join(_summary(result, folder)) + "\n"


def _summary(result: Result, folder: str) -> Iterator[str]:
    yield f"## {result.experiment}"
    yield f"\n{result.paper}. **{tally_text(result.claims).capitalize()}.**"
    yield f"[All figures, values, claims and settings]({folder}{result.experiment}.md)\n"
    headline = replace(result, rows=[row for row in result.rows if row.is_headline])
    for title, columns, rows in tables(headline):
        yield f"### {title}\n"
        yield from _markdown(columns, rows)
        yield ""
    for figure in result.figures[:1]:
        yield f"![{figure.title}]({folder}{figure.name}.svg)\n"


def details(result: Result) -> str:
    """All claims, misses with their reasons, settings, figures and rows, as a Markdown page."""
    return "\n".join(_details(result)) + "\n"


def _details(result: Result) -> Iterator[str]:
    yield f"# {result.experiment}: all values and claims\n"
    yield f"{result.paper}. `make experiments` writes this page.\n"
    claims = [
        (c.table, c.case, c.says, c.kind, c.paper, c.ours, "holds" if c.holds else "misses")
        for c in result.claims
    ]
    yield from _markdown(("table", "case", "claim", "kind", "the paper", "here", ""), claims)
    if result.misses:
        yield "\n## Claims that miss, and why\n"
    for why in dict.fromkeys(claim.why for claim in result.misses):
        yield f"- {why}"
        for claim in result.misses:
            if claim.why == why:
                texts = f"Paper {claim.paper}, here {claim.ours} ({claim.kind})"
                yield f"  - {claim.where}: {claim.says} {texts}."
    yield "\n## Settings, the same for every method\n"
    settings = [(name, *setting) for name, setting in result.settings.items()]
    yield from _markdown(("setting", "value", "from"), settings)
    for figure in result.figures:
        yield f"\n![{figure.title}]({figure.name}.svg)"
    for title, columns, rows in tables(result):
        yield f"\n## {title}\n"
        yield from _markdown(columns, rows)


def _markdown(columns: Cells, rows: Iterable[Cells]) -> Iterator[str]:
    alignment = ["---:" if name in NUMBERS else "---" for name in columns]
    for cells in (columns, alignment, *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
