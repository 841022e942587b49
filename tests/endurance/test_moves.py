"""Some hours of what `python -m tests.endurance moves` does for weeks, with more that happens."""

from __future__ import annotations

import pytest

from tests.endurance.moves import RETURN_S, Found, Move, Run, simulate


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
    leadline, dacs = (simulate(Run(name, hours=8.0, eventful=4.0)) for name in ("leadline", "dacs"))
    assert 0 < len(leadline.moves) <= len(dacs.moves)
    assert list(leadline.returns()) == []
    assert leadline.endings["failed"] == leadline.endings["elsewhere"] == 0
    assert leadline.network_ms + leadline.work_ms < dacs.network_ms + dacs.work_ms
    for what in ("links that became slower", "boards with other work", "boards without power"):
        assert leadline.faults[what] == dacs.faults[what] > 0
