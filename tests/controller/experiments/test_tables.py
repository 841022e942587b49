"""A result as text: what is shown, and what is left out because it says nothing."""

from dataclasses import replace

import pytest
from leadline_controller.experiments import markdown
from leadline_controller.experiments.result import Row
from leadline_controller.experiments.tables import gap_percent, number, tables, tally

from tests.controller.experiments import fakes

RESULT = fakes.run(0, lambda _: None)


def test_rows_are_grouped_and_empty_columns_left_out() -> None:
    first, second = tables(RESULT)
    assert first.title == "Fig. 1"
    assert first.columns == [
        *("case", "strategy", "option", "metric", "paper", "ours", "difference"),
    ]
    assert first.rows[1] == ["5 pods", "netsched", "", "pods_n1", "2", "3", "+1"]
    assert second.title == "Table 2"
    assert "option" not in second.columns
    assert second.columns[-2:] == ["optimum", "gap"]
    assert second.rows[1] == ["low load", "netsched", "wait_s", "", "4", "", "", ""]


def test_a_table_whose_rows_come_apart_is_one_table() -> None:
    rows = RESULT.rows
    mixed = replace(RESULT, rows=[rows[0], rows[2], rows[1]])
    assert [(table.title, len(table.rows)) for table in tables(mixed)] == [
        ("Fig. 1", 2),
        ("Table 2", 1),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0, "0"), (90, "90"), (13.471, "13.47"), (0.03125, "0.0312"), (-1e-9, "0")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_gap_is_in_percent_of_the_optimum() -> None:
    row = Row("T", "", "s", "", "m", None, 3.0, optimum=2.0)
    assert gap_percent(row) == 50.0
    assert gap_percent(replace(row, optimum=None)) is None
    assert gap_percent(replace(row, optimum=0.0)) is None, "of nothing there is no share"


def test_markdown_has_tables_claims_reasons_and_figures() -> None:
    told = markdown.section(RESULT, "experiments/")
    assert told.startswith("## fake\n\nNobody, A Paper, Section 1. **1 of 2 claims hold.**\n")
    assert "| 5 pods | netsched |  | pods_n1 | 2 | 3 | +1 |" in told
    assert "| Fig. 1 | 5 pods | All on n1. | 5 | 5 | holds |" in told
    assert (
        "- **Table 2, low load**: DACS waits less. The paper has 50.0 %, ours is 37.5 %. The"
        in told
    )
    assert "![Seconds to wait](experiments/fake-fig1.svg)" in told
    assert "- link: 1 Mbit/s (the paper: a minimum)" in told
    assert tally(RESULT) == "1 of 2 claims hold"


def test_a_long_table_is_folded() -> None:
    told = markdown.section(replace(RESULT, rows=[RESULT.rows[0]] * 13))
    assert "<details><summary>13 rows</summary>\n\n| case |" in told
