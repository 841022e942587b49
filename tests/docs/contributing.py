"""Writes how many lines each part has into the table of CONTRIBUTING.md.

    python -m tests.docs.contributing

Lines of Python, JavaScript, HTML and CSS by hand count, without what is generated or vendored.
"""

import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "CONTRIBUTING.md"
# Where a folder or file in the first column may be.
_ROOTS = (REPOSITORY / "controller/leadline_controller", REPOSITORY)
_ROW = re.compile(r"^\| ([^|]*`[^|]+) \| ([\d,]+) \| (?:on|off|a tool)\b", re.MULTILINE)


def rows(text: str) -> Iterator[tuple[re.Match[str], int, int]]:
    """Each row of the table, the lines that it says, and those that there are."""
    for row in _ROW.finditer(text):
        names = re.findall(r"`([^`]+)`", row[1])
        yield row, int(row[2].replace(",", "")), sum(map(_lines, names))


def _lines(name: str) -> int:
    (place,) = (root / name for root in _ROOTS if (root / name).exists())
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(
        len(file.read_text(encoding="utf-8").splitlines())
        for file in files
        if file.suffix in (".py", ".js", ".html", ".css")
        if "_pb2" not in file.name and "vendor" not in file.parts
    )


def main() -> None:
    """Write the page again."""
    text = PAGE.read_text(encoding="utf-8")
    for row, _, now in reversed(list(rows(text))):
        text = f"{text[: row.start(2)]}{round(now, -2):,}{text[row.end(2) :]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
