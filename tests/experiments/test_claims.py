"""Claims can fail: the rules by which a gain, counts and an order hold."""

import pytest
from leadline_experiments.result import (
    Claim,
    Kind,
    count_claim,
    gain_claim,
    make_claim,
    order_claim,
    tally,
)


@pytest.mark.parametrize(
    ("paper", "ours", "holds"),
    [
        *((50.0, 65.0, True), (50.0, 65.1, False), (50.0, 35.0, True), (50.0, 34.9, False)),
        *((9.0, 12.0, True), (9.0, 12.1, False), (2.0, 0.1, True), (2.0, -0.1, False)),
        *((-20.0, -25.0, True), (-2.0, 0.5, False), (0.0, -2.0, True), (0.0, 3.5, False)),
    ],
)
def test_a_gain_holds_with_its_sign_and_near_the_papers(
    paper: float, ours: float, holds: bool
) -> None:
    assert gain_claim("Table 1", "", "It is better.", paper, ours).holds == holds


def ordered(ours: tuple[float, ...], paper: tuple[float, ...] | None = None) -> bool:
    names = "abc"[: len(ours)]
    papers = None if paper is None else dict(zip(names, paper, strict=True))
    values = dict(zip(names, ours, strict=True))
    return order_claim("Table 1", "", "In this order.", values, paper=papers).holds


@pytest.mark.parametrize(
    ("ours", "holds"), [((1, 2, 3), True), ((1, 1, 2), False), ((2, 1, 3), False)]
)
def test_orders_are_strict(ours: tuple[float, ...], holds: bool) -> None:
    assert ordered(ours) == holds


def test_a_tenth_of_the_papers_difference_is_needed() -> None:
    assert ordered((1.0, 2.0), (10.0, 20.0))
    assert not ordered((1.0, 1.9), (10.0, 20.0)), "a tie, where the paper's differ by 10"
    assert ordered((1.0, 1.0), (5.0, 5.0))
    assert not ordered((1.0, 1.1), (5.0, 5.0)), "the paper's are equal"


def test_counts_are_equal_or_the_claim_misses_with_its_reason() -> None:
    held = count_claim("Fig. 1", "", "All on a.", [5, 0], [5, 0], "chance")
    missed = count_claim("Fig. 1", "", "All on a.", [5, 0], [4, 1], "chance")
    assert (held.holds, held.why) == (True, "")
    assert (missed.holds, missed.why, missed.ours) == (False, "chance", "4/1")


def test_kinds_are_counted_apart() -> None:
    def claim(kind: Kind, holds: bool) -> Claim:
        return make_claim("T", "", "It is so.", "order", ("", ""), holds, "", kind)

    claims = [claim("fitted", True), claim("independent", False), claim("fitted", False)]
    assert tally(claims) == {"independent": (0, 1), "fitted": (1, 2)}
