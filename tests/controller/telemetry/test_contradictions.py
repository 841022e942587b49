"""Nodes that contradict their peers, and what becomes of their reports."""

import logging
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest
from leadline_controller.framework.view import Ints
from leadline_controller.telemetry.contradictions import compare, outvoted, to_be_checked
from leadline_controller.telemetry.state import ROUND_TRIPS

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder, table

NAMES = ("n0", "n1", "n2", "n3", "n4")
TRUE_MS = 10.0
LEFT_OUT_S = 300.0


def all_pairs(count: int) -> Ints:
    return np.array(list(combinations(range(count), 2)), dtype=np.int64).reshape(-1, 2)


def found(count: int, wrong: set[int], share: float = 1.0, seed: int = 1) -> set[int]:
    """Who is outvoted if these nodes are wrong, and only a share of the pairs has both reports."""
    pairs = all_pairs(count)
    pairs = pairs[np.random.default_rng(seed).random(len(pairs)) < share]
    disagree = np.array([not wrong.isdisjoint(pair) for pair in pairs.tolist()], dtype=np.bool_)
    return set(np.flatnonzero(outvoted(count, pairs, disagree)).tolist())


@pytest.mark.parametrize(("count", "wrong"), [(3, 1), (4, 1), (5, 1), (10, 2), (50, 5), (100, 20)])
def test_a_majority_finds_the_nodes_that_are_wrong(count: int, wrong: int) -> None:
    assert found(count, set()) == set()
    assert found(count, set(range(wrong))) == set(range(wrong))


@pytest.mark.parametrize("seed", range(20))
def test_nobody_else_is_found_while_few_pairs_have_both_reports(seed: int) -> None:
    wrong = set(range(6))
    assert found(60, wrong, 0.1, seed) <= wrong


def test_two_nodes_do_not_outvote_each_other() -> None:
    assert found(2, {0}) == set()


def test_without_pairs_nobody_contradicts() -> None:
    comparable, differ = compare(np.zeros((0, 2)), np.zeros(0))
    assert not len(comparable)
    assert not outvoted(3, all_pairs(0), differ).any()


def test_noise_is_no_difference() -> None:
    random = np.random.default_rng(1)
    for noise in (0.05, 0.3):
        said_ms = 10 * np.exp(noise * random.standard_normal((1000, 2)))
        comparable, differ = compare(said_ms, np.zeros(1000))
        assert comparable.all()
        assert differ.mean() < 0.01
    said_ms = np.array([(0.3, 0.45), (5.0, 5.2), (5.0, 55.0), (0.1, 0.8), (30.0, 30.1)])
    comparable, differ = compare(said_ms, np.array([0.0, 0.1, 3.0, 0.0, 0.0]))
    assert comparable.tolist() == [True, True, False, True, True]
    assert differ.tolist() == [False, False, True, True, False]


def test_a_node_pings_the_peer_that_alone_measured_the_pair() -> None:
    is_said = np.array([(True, False), (True, True), (False, True), (False, False)])
    ends = np.array([(0, 1), (1, 2), (2, 3), (3, 4)])
    asked = to_be_checked(5, ends, is_said, np.random.default_rng(1))
    assert sorted(asked.tolist()) == [[1, 0], [2, 3]]
    # Nobody is asked for a pair of two nodes that enough peers have checked.
    known = all_pairs(12)
    both = np.ones(known.shape, dtype=np.bool_)
    both[0, 1] = False
    assert not len(to_be_checked(12, known, both, np.random.default_rng(1)))


def rounds(
    builder: TelemetryBuilder, now_s: float, lie: Callable[[float], float] = lambda x: x
) -> None:
    """Each node pings each other, and n0 lies."""
    for node, peer in permutations(NAMES, 2):
        builder.rtt(node, peer, lie(TRUE_MS) if node == "n0" else TRUE_MS, now_s)


@pytest.mark.parametrize("lie", [lambda _: 0.1, lambda x: 10 * x])
def test_a_liar_is_found_and_its_reports_do_not_count(lie: Callable[[float], float]) -> None:
    builder, nodes = TelemetryBuilder(*NAMES), table(*NAMES)
    for at_s in (100.0, 110.0, 120.0):
        rounds(builder, at_s, lie)
    builder.state.estimate_rtts(120.0)
    assert builder.state.contradicting[ROUND_TRIPS] == {"n0"}
    rounds(builder, 130.0, lie)
    row = builder.state.link_table(nodes, 130.0).rtt_ms_from(0)
    assert row[1:] == pytest.approx([TRUE_MS] * 4)
    # What it alone says about a pair is not known.
    builder.birth("n5")
    builder.rtt("n0", "n5", 0.1, 130.0)
    assert [x for x in builder.state.links(130.0) if "n5" in (x.a, x.b)] == []


def test_a_liar_whose_pairs_nobody_else_measured_leaves_them_unknown() -> None:
    builder = TelemetryBuilder(*NAMES, "n5")
    rounds(builder, 100.0, lambda _: 0.1)
    builder.rtt("n0", "n5", 0.1, 100.0)
    assert [x.rtt_ms for x in builder.state.links(100.0) if x.b == "n5"] == [0.1]
    builder.state.estimate_rtts(100.0)
    assert [x for x in builder.state.links(100.0) if x.b == "n5"] == []


def test_a_node_that_agrees_again_counts_again(caplog: pytest.LogCaptureFixture) -> None:
    builder = TelemetryBuilder(*NAMES)
    with caplog.at_level(logging.INFO):
        for at_s in (100.0, 110.0, 120.0):
            rounds(builder, at_s, lambda _: 0.1)
            builder.state.estimate_rtts(at_s)
        rounds(builder, 130.0)
        builder.state.estimate_rtts(130.0)
        assert builder.state.contradicting[ROUND_TRIPS] == {"n0"}
        for at_s in (300.0, 120.0 + LEFT_OUT_S + 1):
            rounds(builder, at_s)
            builder.state.estimate_rtts(at_s)
    assert builder.state.contradicting[ROUND_TRIPS] == frozenset()
    builder.rtt("n0", "n1", 50.0, 430.0)
    builder.rtt("n0", "n1", 50.0, 440.0)
    assert builder.state.rtt_ms("n0", "n1", 440.0) == 50.0
    warned, informed = (record.getMessage() for record in caplog.records)
    assert warned.startswith("node n0: its round trips contradict those of its peers")
    assert "check the load" in warned
    assert informed == "node n0: its round trips agree with those of its peers again"


@pytest.mark.parametrize("count", [3, 4])
def test_a_liar_among_few_is_found(count: int) -> None:
    builder = TelemetryBuilder(*NAMES[:count])
    for node, peer in permutations(NAMES[:count], 2):
        builder.rtt(node, peer, 100.0 if node == "n0" else 10.0 + len(node), 100.0)
    builder.state.estimate_rtts(100.0)
    assert builder.state.contradicting[ROUND_TRIPS] == {"n0"}


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("first", [True, False])
def test_a_node_whose_way_changes_does_not_contradict_who_measured_before(
    factor: float, first: bool
) -> None:
    """first: it measures before the others do."""
    builder = TelemetryBuilder(*NAMES)
    for at_s in (100.0, 110.0):
        rounds(builder, at_s)
    pairs = list(permutations(NAMES, 2))
    changed_ms = {pair: TRUE_MS * factor if "n0" in pair else TRUE_MS for pair in pairs}
    for at_s, is_turn_of_n0 in ((120.0, first), (130.0, first), (140.0, not first)):
        for pair in pairs:
            if (pair[0] == "n0") == is_turn_of_n0:
                builder.rtt(*pair, changed_ms[pair], at_s)
        builder.state.estimate_rtts(at_s)
        assert builder.state.contradicting[ROUND_TRIPS] == frozenset()
    assert builder.state.rtt_ms("n0", "n1", 140.0) == TRUE_MS * factor


def test_a_node_that_begins_to_lie_is_found() -> None:
    builder = TelemetryBuilder(*NAMES)
    for at_s in (100.0, 110.0):
        rounds(builder, at_s)
    for at_s in (120.0, 130.0):
        rounds(builder, at_s, lambda _: 0.1)
        builder.state.estimate_rtts(at_s)
    assert builder.state.contradicting[ROUND_TRIPS] == {"n0"}
