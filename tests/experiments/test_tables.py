"""A result as tables of text, without empty or constant columns."""

import csv
import io
from dataclasses import replace

import pytest
from leadline_experiments.result import Row
from leadline_experiments.tables import details, number, summary, tables, tally_text, to_csv

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


def test_the_summary_has_headlines_and_a_figure() -> None:
    page = summary(RESULT, "experiments/")
    tallied = "claims that hold: 1 of 1 independent, 0 of 1 fitted"
    assert page.startswith(f"## fake\n\nNobody, A Paper, Section 1. **{tallied.capitalize()}.**\n")
    assert "[All figures, values, claims and settings](experiments/fake.md)" in page
    assert "### Table 2: low load: dacs: wait_s\n" not in page, "one row needs no shared labels"
    assert page.count("### ") == 1
    assert "| low load | dacs | wait_s | 2 | 3.34 | +1.34 | 2 | +67.2 % |" in page
    assert "netsched" not in page
    assert "![Seconds to wait](experiments/fake-fig1.svg)" in page
    assert tally_text(RESULT.claims) == tallied


def test_the_details_have_all_claims_misses_settings_figures_and_rows() -> None:
    page = details(RESULT)
    assert page.startswith("# fake: all values and claims\n")
    assert "| Fig. 1 | 5 pods | All on n1. | independent | 5 | 5 | holds |" in page
    assert (
        "- The load differs.\n"
        "  - Table 2, low load: DACS waits less. Paper 50.0 %, here 30.0 % (fitted).\n"
    ) in page
    assert "| link | 1 Mbit/s, a minimum | paper |" in page
    assert "![Seconds to wait](fake-fig1.svg)" in page
    assert "## Fig. 1: 5 pods: pods_n1\n" in page
    assert "| netsched |  | 2 | 3 | +1 |" in page


def test_csv_has_the_rows_of_all_results() -> None:
    first, *rows = csv.DictReader(io.StringIO(to_csv([RESULT, RESULT])))
    assert len(rows) == 7
    assert (first["experiment"], first["strategy"], first["paper"]) == ("fake", "dacs", "5")
    assert rows[2]["paper"] == "", "a value that is not there is empty"
    assert to_csv([]) == ""
