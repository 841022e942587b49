"""Bursts on equal boards that report every ten seconds: what was just placed counts, so that no
board gets most of a burst."""

from operator import sub
from random import Random

import pytest
from leadline_controller.framework.assumed_load import PodUse
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.options import build
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.netsched import NetSched

from tests.support.loaded_boards import Controller, LoadedBoards, pods

# Those that read measurements, but for kcss, whose ideal node has the most in use.
READERS = [name for name, strategy in STRATEGIES.items() if strategy.needs and name != "kcss"]


def counts(name: str, seed: int, number: int, boards: int, *, letter: bool = False) -> list[int]:
    """Pods on each board after `number` of them were created at once."""
    board = LoadedBoards(boards, seed, [Controller(assumes_load=not letter)])
    rule = Rule(build(STRATEGIES[name], {}), {}, Random(seed), letter=letter)
    for each in pods(number):
        board.place(each, rule)
    return board.counts()


@pytest.mark.parametrize("number", [30, pytest.param(90, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READERS)
def test_no_board_gets_more_than_its_share_of_a_burst(name: str, number: int) -> None:
    draws = 20 if name == "netsched" else 5
    worst = max(max(counts(name, seed, number, 4)) for seed in range(draws))
    assert worst <= 1.3 * number / 4


@pytest.mark.slow
def test_a_burst_on_many_boards_leaves_none_with_more_than_three() -> None:
    for seed in range(3):
        assert max(counts("netsched", seed, 300, 400)) <= 3


def test_a_burst_of_pods_that_are_known_to_do_nothing_is_spread_too() -> None:
    idle = PodUse(0.001, 5e6, 0.1, 0.1, 10.0)
    for seed in range(4):
        controller, rule = Controller(), Rule(NetSched(), {}, Random(seed))
        board = LoadedBoards(4, seed, [controller])
        for each in pods(12):
            board.place(each, rule, idle, within_s=8.0)
        board.run(40.0)
        assert controller.state.recent.expected.learned
        before = board.counts()
        for each in pods(102)[12:]:
            board.place(each, rule, idle)
        came = map(sub, board.counts(), before)
        assert max(came) <= 1.3 * 90 / 4


def test_to_the_letter_all_pods_of_a_burst_go_to_one_board() -> None:
    assert max(counts("netsched", 1, 90, 4, letter=True)) == 90
