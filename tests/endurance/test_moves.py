"""Half a day of what `python -m tests.endurance moves` does for weeks, with more that happens."""

from __future__ import annotations

import pytest

from tests.endurance.moves import RETURN_S, Found, Move, Run, simulate

SEEDS = (0, 1)
HOURS, EVENTFUL = 8.0, 4.0


def moved(at_s: float, workload: str, source: str, target: str) -> Move:
    return Move(at_s, workload, source, target, "rtt_ms of it is 9, and was 2; it gains")


def test_a_workload_that_goes_where_it_was_has_come_back() -> None:
    there, back = moved(0.0, "a", "n1", "n2"), moved(RETURN_S, "a", "n2", "n1")
    assert list(Found([there, back]).returns()) == [(there, back)]
    assert list(Found([there, back]).returns(RETURN_S - 1)) == []


@pytest.mark.parametrize(
    "second",
    [
        moved(60.0, "b", "n2", "n1"),  # another workload
        moved(60.0, "a", "n2", "n3"),  # another node
        moved(RETURN_S + 1, "a", "n2", "n1"),  # later
    ],
)
def test_others_have_not(second: Move) -> None:
    assert list(Found([moved(0.0, "a", "n1", "n2"), second]).returns()) == []


def test_a_move_tells_what_was_worse() -> None:
    assert moved(0.0, "a", "n1", "n2").cause == "rtt_ms"


@pytest.mark.experiment
def test_leadline_moves_no_more_pods_than_dacs_and_none_back_and_forth() -> None:
    leadline, dacs = (
        [simulate(Run(name, HOURS, seed=seed, eventful=EVENTFUL)) for seed in SEEDS]
        for name in ("leadline", "dacs")
    )
    assert 0 < sum(len(each.moves) for each in leadline) <= sum(len(each.moves) for each in dacs)
    assert [list(each.returns()) for each in leadline] == [[], []]
    for one, other in zip(leadline, dacs, strict=True):
        assert one.network_ms + one.work_ms < other.network_ms + other.work_ms
        # Every move ended where it was planned.
        assert one.endings["moved"] == len(one.moves)
        assert one.faults["links that became slower"] == other.faults["links that became slower"]
