"""A result as a section of a Markdown page, its figures beside it in a folder."""

from collections.abc import Iterator, Sequence

from leadline_experiments.result import Claim, Figure, Result
from leadline_experiments.tables import NUMBERS, Cells, tables, tally, verdict

_LONG = 12


def section(result: Result, folder: str = "") -> str:
    """What was found, under a heading of the second level. folder: where the figures are, seen
    from the page."""
    return "\n".join(_lines(result, folder)) + "\n"


def _lines(result: Result, folder: str) -> Iterator[str]:
    yield f"## {result.experiment}"
    yield f"\n{result.paper}. **{tally(result)}.**\n"
    yield from _claims(result.claims)
    yield from _misses(result.misses)
    yield "\n### Set once, the same for every method\n"
    for name, value in result.calibration.items():
        yield f"- {name}: {value}"
    for figure in result.figures:
        yield f"\n{_image(figure, folder)}"
    for title, columns, rows in tables(result):
        yield f"\n### {title}\n"
        yield from _folded(_table(columns, rows), len(rows))


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    columns = ("table", "case", "claim", "the paper", "here", "")
    rows = [(c.table, c.case, c.says, c.paper, c.ours, verdict(c)) for c in claims]
    yield from _table(columns, rows)


def _misses(misses: Sequence[Claim]) -> Iterator[str]:
    """By reason, as several may have the same."""
    if misses:
        yield "\n### What misses, and why\n"
    for why in dict.fromkeys(claim.why for claim in misses):
        yield f"- {why}"
        for claim in misses:
            if claim.why == why:
                yield f"  - {claim.where}: {claim.says} Paper {claim.paper}, here {claim.ours}."


def _image(figure: Figure, folder: str) -> str:
    return f"![{figure.title}]({folder}{figure.name}.svg)"


def _table(columns: Cells, rows: Sequence[Cells]) -> Iterator[str]:
    yield _line(columns)
    yield _line(["---:" if name in NUMBERS else "---" for name in columns])
    yield from (_line(row) for row in rows)


def _line(cells: Cells) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _folded(lines: Iterator[str], count: int) -> Iterator[str]:
    """A long table opens on a click."""
    if count <= _LONG:
        yield from lines
        return
    yield f"<details><summary>{count} rows</summary>\n"
    yield from lines
    yield "\n</details>"
