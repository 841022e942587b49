"""A result as tables of text, without empty or constant columns."""

from dataclasses import replace

import pytest
from leadline_experiments.result import Row
from leadline_experiments.tables import number, section, tables, tally

from tests.experiments import fakes

RESULT = fakes.run(0, lambda _: None)


def test_rows_are_grouped_and_shared_labels_are_in_the_title() -> None:
    first, second = tables(RESULT)
    assert first.title == "Fig. 1: 5 pods: pods_n1"
    assert first.columns == ["strategy", "option", "paper", "ours", "diff"]
    assert first.rows == [["dacs", "alpha=0.5", "5", "5", "0"], ["netsched", "", "2", "3", "+1"]]
    assert second.title == "Table 2: low load: wait_s"
    assert second.columns == ["strategy", "paper", "ours", "diff", "optimum", "gap"]
    assert second.rows[1] == ["netsched", "", "4", "", "", ""]


def test_labels_that_differ_are_columns() -> None:
    rows = [RESULT.rows[0], replace(RESULT.rows[1], case="10 pods", metric="wait_s")]
    (table,) = tables(replace(RESULT, rows=rows))
    assert table.title == "Fig. 1"
    assert table.columns[0] == "case"
    assert "metric" in table.columns


def test_rows_of_a_table_that_are_not_adjacent_form_one_table() -> None:
    rows = RESULT.rows
    mixed = replace(RESULT, rows=[rows[0], rows[2], rows[1]])
    assert [len(table.rows) for table in tables(mixed)] == [2, 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0, "0"), (90, "90"), (13.471, "13.47"), (0.03125, "0.0312"), (-1e-9, "0")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_gap_is_in_percent_of_the_optimum() -> None:
    row = Row("T", "", "s", "", "m", None, 3.0, optimum=2.0)
    assert row.gap_percent == 50.0
    assert replace(row, optimum=None).gap_percent is None
    assert replace(row, optimum=0.0).gap_percent is None, "the gap in percent of 0 is undefined"


def test_markdown_has_tables_claims_reasons_and_figures() -> None:
    page = section(RESULT, "experiments/")
    assert page.startswith("## fake\n\nNobody, A Paper, Section 1. **1 of 2 claims hold.**\n")
    assert "### Fig. 1: 5 pods: pods_n1\n" in page
    assert "| netsched |  | 2 | 3 | +1 |" in page
    assert "| Fig. 1 | 5 pods | All on n1. | 5 | 5 | holds |" in page
    assert (
        "- The load differs.\n  - Table 2, low load: DACS waits less. Paper 50.0 %, here 37.5 %.\n"
    ) in page
    assert "![Seconds to wait](experiments/fake-fig1.svg)" in page
    assert "- link: 1 Mbit/s (the paper: a minimum)" in page
    assert tally(RESULT) == "1 of 2 claims hold"


def test_a_long_table_is_folded() -> None:
    page = section(replace(RESULT, rows=[RESULT.rows[0]] * 13))
    assert "<details><summary>13 rows</summary>\n\n| paper | ours | diff |\n" in page
