"""A snapshot of a live controller decides as the controller does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from leadline_controller.framework.cycle import Decision
from leadline_controller.snapshot.capture import stated_rule
from leadline_controller.snapshot.snapshot import Snapshot, read_snapshot
from leadline_controller.snapshot.writing import write_snapshot

from tests.controller.snapshot.live_decisions import (
    decided_live,
    decided_offline,
    document_of,
    reasons,
    totals,
)
from tests.controller.snapshot.live_states import STRATEGY_NAMES, LiveState

PODS = 3


def both(live: LiveState, snapshot: Snapshot) -> Iterator[tuple[Decision, Decision]]:
    """For some of the pods."""
    by_key = {pod.key: pod for pod in snapshot.pods}
    for pod in live.wanted[:PODS]:
        yield decided_live(live, pod), decided_offline(snapshot, by_key[pod.key])


def assert_equal(live: LiveState, snapshot: Snapshot) -> int:
    """The number of decisions, all alike."""
    count = 0
    for there, here in both(live, snapshot):
        where = f"seed {live.seed}, {live.strategy}, {there.pod.key}"
        assert here.node == there.node, f"{where}: {there.why} | {here.why}"
        assert totals(here) == totals(there), where
        assert reasons(here) == reasons(there), where
        count += 1
    return count


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_snapshot_decides_as_its_cluster(strategy: str) -> None:
    states = [LiveState(seed, strategy) for seed in range(8)]
    assert sum(assert_equal(live, read_snapshot(document_of(live))) for live in states) > 5


def test_what_is_read_is_written_again() -> None:
    for seed in range(16):
        document = document_of(LiveState(seed, STRATEGY_NAMES[seed % len(STRATEGY_NAMES)]))
        again = write_snapshot(read_snapshot(document))
        assert json.loads(json.dumps(again)) == document, f"seed {seed}"


@pytest.mark.experiment
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_snapshots_of_500_states_decide_as_their_clusters_by_every_strategy(first: int) -> None:
    """Each by all strategies; what was placed before was placed by one of them."""
    count = 0
    for seed in range(first, first + 100):
        live = LiveState(seed, STRATEGY_NAMES[seed % len(STRATEGY_NAMES)])
        snapshot = read_snapshot(document_of(live))
        for strategy in STRATEGY_NAMES:
            live.strategy = strategy
            rule = stated_rule(live.rule(), assumes_load=live.assumes_load)
            count += assert_equal(live, replace(snapshot, rule=rule))
    assert count > 100 * len(STRATEGY_NAMES)
