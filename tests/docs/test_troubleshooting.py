"""docs/troubleshooting.md has each problem that the code can tell, and no other."""

import re
from pathlib import Path

import pytest
from leadline_controller.inspect.problem_kinds import KINDS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/troubleshooting.md").read_text(encoding="utf-8")
ROWS = {
    row[1]: (row[2], row[0])
    for row in re.finditer(r"^\| `([a-z-]+)` \| (error|warning|note) \|.*$", PAGE, re.MULTILINE)
}


def test_the_page_has_each_problem_and_no_other() -> None:
    assert ROWS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_how_bad_each_is(kind: str) -> None:
    assert ROWS[kind][0] == KINDS[kind].severity


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_of_each_are_on_the_page(kind: str) -> None:
    shown = PAGE.replace("\\|", "|")
    assert [each for each in KINDS[kind].commands if f"`{each}`" not in shown] == []


def test_the_table_of_symptoms_names_problems_that_there_are() -> None:
    table = PAGE.partition("## From what you see")[2].partition("\n## ")[0]
    named = {
        name
        for row in re.findall(r"^\| .* \| (.*) \| .* \|$", table, re.MULTILINE)
        for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", row)
    }
    assert len(named) > 10
    assert named - KINDS.keys() == set()


def test_the_causes_on_the_page_are_those_of_the_code() -> None:
    code = (REPOSITORY / "controller/leadline_controller/cli/unreachable.py").read_text(
        encoding="utf-8"
    )
    table = PAGE.partition("## The controller cannot be reached")[2]
    causes = [
        cause
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for cause in re.findall(r"`([^`]+)`", row)
    ]
    assert len(causes) > 10
    missing = [
        part
        for cause in causes
        for part in cause.split(" ... ")
        if part not in " ".join(code.split())
    ]
    assert missing == []
