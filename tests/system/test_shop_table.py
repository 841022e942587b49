from __future__ import annotations

import pytest

from tests.system.shop_table import BEST, Requests, Run, table


def run(method: str, *took_ms: float, network: str = "halls") -> Run:
    return Run(network, method, {}, took_ms, 10.0)


def test_a_row_has_the_medians_of_its_methods_runs() -> None:
    runs = [run("dacs", 5.0, 7.0), run("dacs", 1.0, 1.0), run("dacs", 2.0, 8.0)]
    assert list(table(runs))[2:] == ["| halls | dacs | 7.0 | 7.0 | 5.0 | 10.0 |"]


def test_of_the_best_placements_the_one_with_the_least_mean_counts() -> None:
    runs = [run(BEST, 9.0), run(BEST, 4.0), run(BEST, 6.0)]
    assert list(table(runs))[2:] == ["| halls | best of 3 | 4.0 | 4.0 | 4.0 | 10.0 |"]


def test_networks_stay_together_and_methods_in_their_order() -> None:
    runs = [run("netsched", 1.0), run("dacs", 1.0, network="cloud"), run("dacs", 1.0)]
    names = [tuple(row.split(" | ")[:2]) for row in list(table(runs))[2:]]
    assert names == [("| cloud", "dacs"), ("| halls", "netsched"), ("| halls", "dacs")]


@pytest.mark.parametrize(
    ("asked", "most", "held"), [(5.0, 10.0, True), (1.0, 10.0, False), (12.0, 10.0, False)]
)
def test_requests_are_held_if_they_are_between_the_bounds(
    asked: float, most: float, held: bool
) -> None:
    assert Requests("halls", "front", "cart", asked, 2.0, most).is_held is held


def test_requests_that_hardly_happen_say_nothing() -> None:
    assert Requests("halls", "front", "cart", 0.5, 2.0, 3.0).is_held
