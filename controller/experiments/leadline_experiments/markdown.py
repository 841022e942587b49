"""A result as a section of a Markdown page. The figures are files in a folder."""

from collections.abc import Iterator, Sequence

from leadline_experiments.result import Result
from leadline_experiments.tables import NUMBERS, Cells, tables, tally

_FOLD_ROWS = 12  # a longer table is folded


def section(result: Result, folder: str = "") -> str:
    """The result under a heading of the second level. folder: where the figures are, relative
    to the page."""
    return "\n".join(_lines(result, folder)) + "\n"


def _lines(result: Result, folder: str) -> Iterator[str]:
    yield f"## {result.experiment}"
    yield f"\n{result.paper}. **{tally(result)}.**\n"
    claims = [
        (c.table, c.case, c.says, c.paper, c.ours, "holds" if c.holds else "misses")
        for c in result.claims
    ]
    yield from _table(("table", "case", "claim", "the paper", "here", ""), claims)
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
            yield from _table(columns, rows)
        else:
            yield f"<details><summary>{len(rows)} rows</summary>\n"
            yield from _table(columns, rows)
            yield "\n</details>"


def _table(columns: Cells, rows: Sequence[Cells]) -> Iterator[str]:
    alignment = ["---:" if name in NUMBERS else "---" for name in columns]
    for cells in (columns, alignment, *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
