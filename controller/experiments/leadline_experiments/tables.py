"""A result as text: its rows by table, without empty or constant columns, for terminal and docs;
a section of a Markdown page; plain data for JSON.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from leadline_experiments.result import Result, Row

Cells = Sequence[str]


class Table(NamedTuple):
    """One table or figure of the paper. title: its name and the labels that all rows share."""

    title: str
    columns: Cells
    rows: Sequence[Cells]


_COLUMNS = ("case", "strategy", "option", "metric", "paper", "ours", "diff", "optimum", "gap")
_LABELS = range(4)
NUMBERS = frozenset(_COLUMNS[4:])
_FOLD_ROWS = 12  # a longer table is folded on a page


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


def tally(result: Result) -> str:
    """How many claims hold, as a sentence without a full stop."""
    held = len(result.claims) - len(result.misses)
    return f"{held} of {len(result.claims)} claims hold"


def to_dict(result: Result) -> dict[str, Any]:
    """The result without its figures as plain data, for JSON."""
    return {
        "experiment": result.experiment,
        "paper": result.paper,
        "calibration": dict(result.calibration),
        "rows": [
            {**asdict(row), "difference": row.difference, "gap_percent": row.gap_percent}
            for row in result.rows
        ],
        "claims": [asdict(claim) for claim in result.claims],
    }


def section(result: Result, folder: str = "") -> str:
    """The result as Markdown under a heading of the second level. folder: where the files of the
    figures are, relative to the page."""
    return "\n".join(_section(result, folder)) + "\n"


def _section(result: Result, folder: str) -> Iterator[str]:
    yield f"## {result.experiment}"
    yield f"\n{result.paper}. **{tally(result)}.**\n"
    claims = [
        (c.table, c.case, c.says, c.paper, c.ours, "holds" if c.holds else "misses")
        for c in result.claims
    ]
    yield from _markdown(("table", "case", "claim", "the paper", "here", ""), claims)
    if result.misses:
        yield "\n### What misses, and why\n"
    for why in dict.fromkeys(claim.why for claim in result.misses):
        yield f"- {why}"
        for claim in result.misses:
            if claim.why == why:
                yield f"  - {claim.where}: {claim.says} Paper {claim.paper}, here {claim.ours}."
    yield "\n### Set once, the same for every method\n"
    for name, value in result.calibration.items():
        yield f"- {name}: {value}"
    for figure in result.figures:
        yield f"\n![{figure.title}]({folder}{figure.name}.svg)"
    for title, columns, rows in tables(result):
        yield f"\n### {title}\n"
        if len(rows) <= _FOLD_ROWS:
            yield from _markdown(columns, rows)
        else:
            yield f"<details><summary>{len(rows)} rows</summary>\n"
            yield from _markdown(columns, rows)
            yield "\n</details>"


def _markdown(columns: Cells, rows: Sequence[Cells]) -> Iterator[str]:
    alignment = ["---:" if name in NUMBERS else "---" for name in columns]
    for cells in (columns, alignment, *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
