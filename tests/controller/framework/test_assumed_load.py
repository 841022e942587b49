"""What pods are expected to use, and what of that strategies read in a view."""

from dataclasses import replace
from math import inf, isnan, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.assumed_load import (
    BoardSize,
    Expectations,
    PodUse,
    contained_share,
    workload_of,
)
from leadline_controller.framework.cycle import Rule, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Owner, Pod, PodAnnotations
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.netsched import NetSched

from tests.controller.builders import GIB, node, view

VALUES = {
    "cpu_percent": [10.0, 10.1, nan],
    "memory_percent": [20.0, 20.1, nan],
    "packets_sent_per_s": [5.0, 5.0, nan],
    "packets_received_per_s": [5.0, 5.0, nan],
    "disk_bytes_per_s": [100.0, 100.0, nan],
    "bandwidth_mbps": [90.0, 90.0, nan],
}
SECONDS = st.integers(0, 100)  # whole, so that shares are not rounded
TIMES = SECONDS | st.just(inf)


def pod(name: str = "web", mbps: float | None = None, cpu: int = 0, memory: int = 0) -> Pod:
    annotations = PodAnnotations(bandwidth_mbps=mbps)
    requests = {PODS: 1, CPU: cpu, MEMORY: memory}
    return Pod("default", name, name, requests, annotations=annotations)


def boards(expected: Expectations | None = None) -> ClusterView:
    """n3 has never reported."""
    nodes = [node(f"n{number}", cores=4, gib=4) for number in (1, 2, 3)]
    return view(nodes, metrics=VALUES).assuming_load(expected)


@pytest.mark.parametrize(
    ("start_s", "end_s", "share"),
    [
        (80.0, inf, 1.0),
        (90.0, inf, 1.0),
        (95.0, inf, 0.5),
        (100.0, inf, 0.0),
        (inf, inf, 0.0),
        (80.0, 92.5, 0.25),
        (94.0, 97.0, 0.3),
        (70.0, 80.0, 0.0),
    ],
)
def test_a_mean_contains_the_share_of_its_interval_in_which_the_pod_ran(
    start_s: float, end_s: float, share: float
) -> None:
    assert contained_share(start_s, end_s, 100.0, 10.0) == pytest.approx(share)
    assert contained_share(start_s, end_s, 100.0, 0.0) == float(start_s <= 100.0 < end_s)
    assert contained_share(start_s, end_s, -inf, 10.0) == 0.0  # nothing was measured


@given(TIMES, TIMES, SECONDS, st.integers(1, 64), SECONDS)
def test_a_later_report_contains_more_of_a_pod_that_runs(
    start_s: float, end_s: float, measured_s: float, interval_s: float, later_s: float
) -> None:
    first = contained_share(start_s, inf, measured_s, interval_s)
    assert 0.0 <= first <= contained_share(start_s, inf, measured_s + later_s, interval_s) <= 1.0
    assert contained_share(start_s, end_s, measured_s, interval_s) <= first


def test_what_tells_first_counts() -> None:
    web = replace(pod("web-1", cpu=500, memory=GIB), labels={"app": "web"})
    learned = {workload_of(web): PodUse(0.2, 5e8, 1.0, 2.0, 3.0)}
    usage = {workload_of(web): (0.1, 4e8)}
    assert Expectations(usage, learned).of(web) == PodUse(0.1, 4e8, 1.0, 2.0, 3.0)
    assert Expectations(learned=learned).of(web) == learned[workload_of(web)]
    idle = Expectations({workload_of(web): (0.0, 0.0)}).of(web)
    assert idle[:2] == (0.05, GIB / 10)  # so that many of them count
    by_requests = Expectations().of(web)
    assert by_requests[:2] == (0.5, GIB)
    assert by_requests.lacks_rates
    assert Expectations().of(pod())[:2] == (0.1, 200 * 1024**2)  # kube-scheduler's defaults
    assert Expectations().of(pod(cpu=20))[:2] == (0.02, 200 * 1024**2)


def test_replicas_are_one_workload_and_pods_without_labels_those_of_their_owner() -> None:
    replicas = [
        replace(pod(f"web-{each}"), labels={"app": "web", "pod-template-hash": each})
        for each in ("1", "2")
    ]
    assert len({workload_of(each) for each in replicas}) == 1
    owned = [replace(pod(each), owner=Owner("Job", "job", "uid")) for each in ("a", "b")]
    assert len({workload_of(each) for each in (*owned, *replicas)}) == 2
    assert workload_of(pod("a")) != workload_of(pod("b"))


@given(st.tuples(*[st.floats(0, 1e9)] * 5), st.floats(0.1, 64), st.floats(1e6, 1e12))
def test_what_a_pod_adds_to_a_board_tells_what_it_uses(
    used: tuple[float, ...], cores: float, memory_bytes: float
) -> None:
    use, board = PodUse(*used), BoardSize(cores, memory_bytes)
    assert board.use_of(board.added_by(use)) == pytest.approx(use)


def test_a_placed_pod_adds_what_it_is_expected_to_use() -> None:
    before = boards()
    after = before.with_placement(pod(mbps=30.0, cpu=1000, memory=GIB), 0)
    assert after.metrics.cpu_percent[:2].tolist() == [35.0, 10.1]
    assert after.metrics.memory_percent[:2].tolist() == [45.0, 20.1]
    assert after.metrics.packets_sent_per_s[:2].tolist() == [5.0, 5.0]
    assert after.metrics.bandwidth_mbps[:2].tolist() == [60.0, 90.0]
    assert after.measured is before.measured
    assert before.metrics.cpu_percent[0] == 10.0
    # What it requests of the link is taken off once, also where strategies take off requests.
    assert after.bandwidth_free_mbps()[:2].tolist() == [60.0, 90.0]
    assert after.assumed is not None
    assert after.assumed.rates_unknown.tolist() == [1, 0, 0]  # nothing tells its packets and disk
    unmeasured = before.with_placement(pod(), 2)
    assert all(isnan(getattr(unmeasured.metrics, name)[2]) for name in METRICS)


def test_a_pod_that_is_taken_away_leaves_no_less_than_nothing() -> None:
    heavy = pod(cpu=1000, memory=GIB)
    there = boards().with_placement(heavy, 1)
    left = there.without_placement(heavy, 1)
    assert np.allclose(left.metrics.cpu_percent, [10.0, 10.1, nan], equal_nan=True)
    assert boards().without_placement(heavy, 0).metrics.cpu_percent[0] == 0.0


def test_without_assumed_load_metrics_are_what_was_measured() -> None:
    plain = replace(boards(), assumed=None)
    assert plain.with_placement(pod(), 0).metrics is plain.metrics
    assert plain.measured is plain.metrics


def test_pods_placed_in_turn_do_not_pile_up_on_the_board_that_was_best() -> None:
    rule, burst = Rule(NetSched(), {}, Random(1)), [pod(f"p{number}") for number in range(30)]
    counts = {}
    for assumes, start in ((True, boards()), (False, replace(boards(), assumed=None))):
        nodes = [decision.node for decision, _ in decide_in_turn(start, burst, rule)]
        counts[assumes] = max(map(nodes.count, nodes))
    assert counts == {True: 15, False: 30}
