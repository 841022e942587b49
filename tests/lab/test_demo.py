"""When the demo believes that it knows a link, and what it computes for one that is played."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_lab.demo import well_tested
from leadline_lab.sending import computed_s
from leadline_lab.spec import SERVER, LabSpec

MBPS = {"n1": 4.0, "n2": 4.0, "n3": 20.0, "n4": 100.0, SERVER: 10_000.0}
PAIRS = tuple(map(frozenset, combinations(MBPS, 2)))
SPEC = LabSpec()


@given(pairs=st.sets(st.sampled_from(PAIRS)))
def test_a_link_that_is_told_is_known(pairs: set[frozenset[str]]) -> None:
    tests = {pair: min(MBPS[node] for node in pair) for pair in pairs}
    believed = {
        node: max(tests[pair] for pair in pairs if node in pair)
        for node in MBPS
        if any(node in pair for pair in pairs)
    }
    told = well_tested(believed, tests)
    assert {node: believed[node] for node in told - {SERVER}} == {
        node: MBPS[node] for node in told - {SERVER}
    }
    assert told >= {node for node in MBPS if {node, SERVER} in pairs}


@given(
    boards=st.dictionaries(st.text(), st.sampled_from([x.name for x in SPEC.boards]), min_size=1),
    mb=st.floats(0.1, 100),
)
def test_a_board_sends_at_the_speed_of_its_link(boards: dict[str, str], mb: float) -> None:
    rate_mbps = {board.name: board.rate_mbps for board in SPEC.boards}
    seconds = computed_s(SPEC, boards, mb)
    for board in set(boards.values()):
        (took_s,) = {seconds[pod] for pod in boards if boards[pod] == board}
        sent_mb = mb * list(boards.values()).count(board)
        assert took_s * (rate_mbps[board] or 0.0) == pytest.approx(sent_mb * 8)
