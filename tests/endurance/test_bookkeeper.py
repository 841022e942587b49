"""The bookkeeper counts what must not happen, and nothing else."""

from __future__ import annotations

from math import inf

import pytest

from tests.endurance.bookkeeper import (
    DECIDED_S,
    REASON_S,
    STARVED_S,
    Allowance,
    Bookkeeper,
    LinkLedger,
    NodeFacts,
    PodFacts,
)

ROOM = {"cpu": 1000, "memory": 1000, "pods": 3}


def pod(name: str, cpu: int = 400, **rest: object) -> PodFacts:
    return PodFacts(name, {"cpu": cpu, "memory": 1, "pods": 1}, **rest)  # type: ignore[arg-type]  # fields by name


@pytest.fixture
def book() -> Bookkeeper:
    book = Bookkeeper()
    for name in ("n1", "n2"):
        book.node_is(name, NodeFacts(ROOM, {"zone": name}))
    book.listed("c", ("n1", "n2"), {}, 0.0)
    book.lease_written("c", 10.0, 0.0)
    return book


def bind(book: Bookkeeper, uid: str, facts: PodFacts, node: str = "n1") -> None:
    book.created(uid, facts, 1.0)
    book.asked("c", uid, node, 1.0)
    book.bound(uid, node, 1.0)


def test_pods_that_fit_are_no_violation_and_room_is_free_again(book: Bookkeeper) -> None:
    bind(book, "a", pod("a", ports=(80,), apart="x"))
    bind(book, "b", pod("b", selector={"zone": "n1"}))
    book.gone("a")
    bind(book, "c", pod("c", 600, ports=(80,), apart="x"))
    assert not book.violations
    assert (book.counts["created"], book.counts["bound"], len(book.pods)) == (3, 3, 2)


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (pod("a", 600), pod("b", 600), "overcommitted"),
        (pod("a", ports=(80,)), pod("b", ports=(80,)), "host port used twice"),
        (pod("a", apart="x"), pod("b", apart="x"), "beside a pod that it must be apart from"),
        (pod("a"), pod("b", selector={"zone": "n2"}), "selector ignored"),
    ],
)
def test_what_a_node_must_not_have(
    book: Bookkeeper, first: PodFacts, second: PodFacts, what: str
) -> None:
    bind(book, "a", first)
    bind(book, "b", second)
    assert book.violations == {what: 1}


def test_no_pod_is_bound_twice_or_asked_for_when_it_is_known_to_be_bound(book: Bookkeeper) -> None:
    bind(book, "a", pod("a"))
    book.asked("c", "a", "n2", 2.0)  # the watch may not have shown it yet
    assert not book.violations
    book.bound("a", "n2", 2.0)
    book.pod_shown("c", "a", "n1")
    book.asked("c", "a", "n2", 2.0)
    assert book.violations == {
        "bound twice": 1,
        "asked to bind a pod that it knew to be bound": 1,
    }


def test_a_node_that_was_shown_as_unusable_is_not_chosen(book: Bookkeeper) -> None:
    book.node_shown("c", "n1", is_usable=False, now_s=5.0)
    book.asked("c", "a", "n1", 5.0 + DECIDED_S)  # decided before
    assert not book.violations
    book.listed("c", ("n2",), {}, 5.0)
    book.asked("c", "a", "n1", 5.1 + DECIDED_S)
    book.asked("c", "a", "n3", 6.0)  # nobody ever showed it
    assert book.violations == {"chose a node that it knew to be unusable": 2}


def test_only_the_holder_of_the_lease_binds(book: Bookkeeper) -> None:
    book.asked("c", "a", "n1", 9.9)
    assert not book.violations
    book.asked("c", "a", "n1", 10.0)
    book.lease_written("d", 10.0, 10.0)
    book.asked("c", "a", "n1", 11.0)
    assert book.violations == {"bound without the Lease": 2}


def test_a_pod_that_has_room_all_the_while_is_left_out(book: Bookkeeper) -> None:
    book.created("a", pod("a"), 0.0)
    book.explained("a", "no node fits")
    book.look(0.0, 0.0)
    book.look(STARVED_S, 0.0)
    book.look(STARVED_S + 1, 1.5)  # nobody could place it earlier
    book.look(STARVED_S + 2, inf)
    assert not book.violations
    book.look(STARVED_S + 1, 0.0)
    assert book.violations == {"left out": 1}


def test_room_that_comes_and_goes_leaves_nobody_out(book: Bookkeeper) -> None:
    book.created("a", pod("a", 900), 0.0)
    book.explained("a", "no node fits")
    book.node_gone("n2")
    for turn in range(10):
        at_s = turn * STARVED_S
        book.node_is("n1", NodeFacts(ROOM, is_usable=turn % 2 == 0))
        book.look(at_s, 0.0)
    assert not book.violations


def test_a_pod_that_fits_nowhere_has_a_reason(book: Bookkeeper) -> None:
    book.created("a", pod("a", 2000), 0.0)
    book.created("b", pod("b", 2000), 0.0)
    book.explained("a", "no node fits")
    book.look(REASON_S, 0.0)
    assert not book.violations
    book.look(REASON_S + 1, 0.0)
    assert book.violations == {"pending without a reason": 1}


def test_a_links_ledger_is_of_an_hour_and_a_day() -> None:
    ledger, allowance = LinkLedger(), Allowance(hour_s=2.0, day_s=4.0, day_bytes=400)
    for hour in range(4):
        ledger.add(hour * 3600.0, 1.0, 100)
        assert ledger.excess(allowance) == ""
    ledger.add(4 * 3600.0, 1.0, 0)
    assert "s of its link in a day" in ledger.excess(allowance)
    ledger.add(86_400.0 + 4 * 3600.0, 1.0, 0)
    assert (ledger.hour_s, ledger.day_s, ledger.day_bytes) == (1.0, 1.0, 0)
    ledger.add(86_400.0 + 4 * 3600.0 + 60, 1.5, 401)
    assert "s of its link in an hour" in ledger.excess(allowance)
