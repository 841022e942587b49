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


def by_every_strategy(seed: int) -> int:
    """A state in which one strategy placed pods before, decided by all of them."""
    live = LiveState(seed, STRATEGY_NAMES[seed % len(STRATEGY_NAMES)])
    snapshot, count = read_snapshot(document_of(live)), 0
    for strategy in STRATEGY_NAMES:
        live.strategy = strategy
        rule = stated_rule(live.rule(), assumes_load=live.assumes_load)
        count += assert_equal(live, replace(snapshot, rule=rule))
    return count


def test_a_snapshot_decides_as_its_cluster() -> None:
    for seed, strategy in enumerate(STRATEGY_NAMES):
        live = LiveState(seed, strategy)
        assert_equal(live, read_snapshot(document_of(live)))


@pytest.mark.slow
def test_a_snapshot_decides_as_its_cluster_by_every_strategy() -> None:
    assert sum(map(by_every_strategy, range(8))) > 5 * len(STRATEGY_NAMES)


def test_what_is_read_is_written_again() -> None:
    for seed in range(16):
        document = document_of(LiveState(seed, STRATEGY_NAMES[seed % len(STRATEGY_NAMES)]))
        again = write_snapshot(read_snapshot(document))
        assert json.loads(json.dumps(again)) == document, f"seed {seed}"


@pytest.mark.experiment
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_snapshots_of_500_states_decide_as_their_clusters_by_every_strategy(first: int) -> None:
    count = sum(map(by_every_strategy, range(first, first + 100)))
    assert count > 100 * len(STRATEGY_NAMES)
