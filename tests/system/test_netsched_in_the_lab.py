"""NetSched's Fig. 7 and 8 with real parts: the paper's counts, from what the agents measured."""

from __future__ import annotations

import pytest
from leadline_controller.lab import lab as labs

from tests.lab.inventory import fresh_name
from tests.system.netsched_lab import BOARDS, FREE, THROTTLED, Played, play

pytestmark = [
    pytest.mark.network,
    pytest.mark.broker,
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def played() -> Played:
    name = fresh_name()
    try:
        found = play(name)
    finally:
        labs.down(name)
    print(found.table())
    return found


def test_the_agents_measure_the_links_as_they_were_shaped(played: Played) -> None:
    rates_mbps = {board.name: board.rate_mbps or 0.0 for board in BOARDS}
    for board in (FREE, *THROTTLED):
        measured_mbps = played.measured[board]["bandwidth_mbps"]
        # It was waited for until each was known as at least the half.
        assert measured_mbps <= rates_mbps[board], board


def test_netsched_puts_all_on_the_board_whose_link_is_free(played: Played) -> None:
    assert played.counts["netsched"] == {
        "90": [90, 0, 0, 0],
        "5": [5, 0, 0, 0],
        "10": [10, 0, 0, 0],
    }


def test_kube_scheduler_looks_at_no_link(played: Played) -> None:
    counts = played.counts["kube-scheduler"]
    assert {pods: sum(each) for pods, each in counts.items()} == {"90": 90, "5": 5, "10": 10}
    # It levels what is asked for, but in whole points, so that few small pods lie by chance.
    assert min(counts["90"]) >= 15
