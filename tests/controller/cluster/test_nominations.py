"""What this controller nominated, beside what the watch shows."""

from __future__ import annotations

from dataclasses import replace

from leadline_controller.cluster.nominations import Nominations

from tests.controller.scheduling.harness import pod

POD = replace(pod("p"), nominated_node="n1")


def test_what_was_nominated_counts_until_the_watch_shows_it() -> None:
    nominations = Nominations()
    nominations.make(POD.uid, "n1")
    assert nominations.of(POD.uid) == "n1"
    nominations.observe(POD)
    assert list(nominations) == [(POD.uid, "n1")]


def test_what_is_nominated_again_gives_way_to_what_the_next_leader_nominates() -> None:
    nominations = Nominations()
    nominations.observe(POD)
    nominations.make(POD.uid, "n1")
    nominations.observe(replace(POD, nominated_node="n2"))
    assert nominations.of(POD.uid) == "n2"


def test_a_nomination_that_is_taken_back_is_none() -> None:
    nominations = Nominations()
    nominations.observe(POD)
    nominations.make(POD.uid, None)
    assert not list(nominations)
    nominations.withdraw(POD.uid)
    assert nominations.of(POD.uid) == "n1"
