"""What stands for an unknown value, over drawn clusters."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.strategies.shared.unknowns import (
    LIKE_BOARDS,
    WORST,
    ZONE_LABEL,
    Filled,
    fill,
)

from tests.controller.builders import node, view

NAN = np.nan
SPREAD = 0.2  # of a board's value around that of its class, as a share


class Board(NamedTuple):
    """A drawn board. around: where in its class's range its value is, -1 to 1."""

    class_: str | None
    zone: str | None
    tier: str
    around: float
    is_known: bool


BOARDS = st.lists(
    st.builds(
        Board,
        st.sampled_from([None, "pi3", "pi4", "pi5"]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from(["edge", "cloud"]),
        st.floats(-1, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=24,
)
CENTRE = {None: 300.0, "pi3": 40.0, "pi4": 90.0, "pi5": 900.0}


def drawn(boards: Sequence[Board]) -> tuple[ClusterView, Floats, Floats]:
    """The cluster, the true values and what is known of them."""
    nodes = []
    for at, board in enumerate(boards):
        labels = {CLASS_LABEL: board.class_, ZONE_LABEL: board.zone}
        given = {key: value for key, value in labels.items() if value is not None}
        nodes.append(node(f"n{at}", tier=board.tier, labels=given))
    truth = np.array([CENTRE[b.class_] * (1 + SPREAD * b.around) for b in boards])
    known = np.array([board.is_known for board in boards])
    return view(nodes), truth, np.where(known, truth, NAN)


def filled(cluster: ClusterView, column: Floats, unknown: str = LIKE_BOARDS) -> Filled:
    def least(known: Floats) -> float:
        return float(known.min()) if known.size else 1.0

    nodes = np.arange(len(cluster))
    return fill(cluster, column, nodes, unknown, least, "bandwidth", "Mbit/s")


@given(BOARDS)
def test_known_values_stay_and_no_other_one_is_beyond_them(boards: list[Board]) -> None:
    cluster, _, column = drawn(boards)
    known = ~np.isnan(column)
    for unknown in (LIKE_BOARDS, WORST):
        found = filled(cluster, column, unknown)
        assert found.values[known].tolist() == column[known].tolist()
        assert found.is_known.tolist() == known.tolist()
        if known.any():
            assert found.values.min() == column[known].min()
            assert found.values.max() == column[known].max()
        else:
            assert set(found.values) == {1.0}
        if unknown == WORST and known.any():
            assert set(found.values[~known]) <= {column[known].min()}
        assert np.isnan(column[~known]).all(), "the column is another's"


@given(BOARDS)
def test_a_value_is_within_its_class_where_two_of_it_are_known(boards: list[Board]) -> None:
    cluster, truth, column = drawn(boards)
    found = filled(cluster, column)
    assert (found.error is None) == (not np.isnan(column).any())
    for at, board in enumerate(boards):
        alike = [b for b in boards if b.class_ == board.class_ and b.is_known]
        if board.is_known or board.class_ is None or len(alike) < 2 or found.error is None:
            continue
        assert abs(found.values[at] - truth[at]) <= 2 * SPREAD * CENTRE[board.class_] + 1e-9
        assert 0 <= found.error[at] <= 2 * SPREAD * CENTRE[board.class_] + 1e-9


@given(BOARDS, st.randoms(use_true_random=False))
def test_the_order_of_the_boards_does_not_matter(boards: list[Board], random: object) -> None:
    order = np.random.default_rng(len(boards)).permutation(len(boards)).tolist()
    here = filled(*drawn(boards)[::2])
    there = filled(*drawn([boards[at] for at in order])[::2])
    np.testing.assert_allclose(there.values, here.values[order])
    assert [there.note(at) for at in range(len(order))] == [here.note(at) for at in order]


def row(*values: float, classes: str = "", zones: str = "", tiers: str = "") -> Filled:
    """classes, zones, tiers: a letter for each board, "-" for none, "c" for the cloud."""
    boards = []
    for at in range(len(values)):
        letters = {CLASS_LABEL: classes[at : at + 1], ZONE_LABEL: zones[at : at + 1]}
        labels = {key: letter for key, letter in letters.items() if letter not in ("", "-")}
        tier = "cloud" if tiers[at : at + 1] == "c" else "edge"
        boards.append(node(f"n{at}", labels=labels, tier=tier))
    return filled(view(boards), np.array(values))


@pytest.mark.parametrize(
    ("groups", "expected", "error", "boards"),
    [
        # Of its class and switch; of its class; of its switch; of its tier; of all.
        ({"classes": "aaaab", "zones": "xxxyx"}, 15.0, 5.0, 2),
        ({"classes": "aaabb", "zones": "xyyxx"}, 15.0, 5.0, 2),
        ({"classes": "-bbbb", "zones": "xxxyy"}, 15.0, 5.0, 2),
        ({"classes": "abbbb", "tiers": "eeecc"}, 15.0, 5.0, 2),
        ({"classes": "aabbb"}, 30.0, 17.5, 4),
    ],
)
def test_the_nearest_boards_count(
    groups: dict[str, str], expected: float, error: float, boards: int
) -> None:
    found = row(NAN, 10.0, 20.0, 40.0, 60.0, **groups)
    assert found.error is not None
    assert found.boards is not None
    assert (found.values[0], found.error[0], found.boards[0]) == (expected, error, boards)


def test_the_error_is_shown_with_the_number_of_boards() -> None:
    found = row(NAN, 93.0, 88.0, 98.0, 93.0, 103.0, 83.0)
    assert found.note(0) == "; bandwidth unknown, taken as 93 Mbit/s ± 5 from 6 boards like it"
    assert found.note(1) == ""
    assert row(NAN, 93.0).note(0) == "; bandwidth unknown, taken as 93 Mbit/s from 1 board like it"
    assert row(NAN).note(0) == "; bandwidth unknown, taken as 1 Mbit/s"
