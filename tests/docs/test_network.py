"""docs/network.md has each of the planner's constants, with its value in the code and with how it
was chosen."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from leadline_controller.probing import bandwidth, budgets, information

PAGE = Path(__file__).parents[2] / "docs" / "network.md"
ROW = re.compile(r"^\| `(_?[A-Z][A-Z_]+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
CHOSEN = ("derived", "given", "judgement", "tried")


def constants() -> dict[str, list[float]]:
    """The numbers that the planner's modules assign, by name; several of a table."""
    found: dict[str, list[float]] = {}
    for module in (bandwidth, budgets, information):
        for statement in ast.parse(inspect.getsource(module)).body:
            if not isinstance(statement, ast.Assign):
                continue
            names = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
            for name in (each.id for each in names if isinstance(each.ctx, ast.Store)):
                value = getattr(module, name)
                if isinstance(value, dict):
                    found[name] = [value[purpose] for purpose in sorted(value)]
                elif isinstance(value, int | float):
                    found[name] = [value]
    return found


def number(text: str) -> float:
    value, _, unit = text.partition(" ")
    return float(value) * {"": 1, "KiB": 1024}[unit]


def rows() -> dict[str, tuple[str, str]]:
    """The value and the choice of each constant on the page."""
    section = PAGE.read_text().split("### The planner's constants\n")[1].split("\n## ")[0]
    return {name: (value, chosen) for name, value, _, chosen in ROW.findall(section)}


def test_the_page_has_the_planners_constants_with_their_values() -> None:
    shown = {name: list(map(number, value.split(", "))) for name, (value, _) in rows().items()}
    assert shown == constants()


@pytest.mark.parametrize("name", rows())
def test_each_says_how_it_was_chosen(name: str) -> None:
    how = re.split("[:;]", rows()[name][1])[0]
    assert how in CHOSEN
    # A number that follows from others, or was compared, says from what.
    assert (how == "judgement") or len(rows()[name][1]) > len(how) + 10
