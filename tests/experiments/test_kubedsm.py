"""KubeDSM's experiment: its pieces by hand, and what has to come out of a whole run."""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import decide, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY
from leadline_experiments.kubedsm.simulation import (
    BY_LOAD,
    CYCLES,
    METHODS,
    MIB,
    ROUNDED_UP,
    SERVICES,
    EdgePreferred,
    Scenario,
    ScenarioRun,
    empty_cluster,
    kubedsm,
    make_pod,
    pods_at_full,
    replicas,
    simulate,
)
from leadline_experiments.result import Result

from tests.experiments.results import Run

STEADY = Scenario(1.0, 0.0)


def test_the_cluster_and_the_services_are_the_papers() -> None:
    cluster = empty_cluster()
    assert cluster.table.names == ("N2", "N3", "N4", "N5")
    assert [node.tier for node in cluster.nodes] == ["edge", "edge", "edge", "cloud"]
    assert cluster.table.allocatable(CPU).tolist() == [5000, 4000, 7000, 22000]
    assert make_pod("D", 1).requests[CPU] == 2000
    assert make_pod("B", 1).requests[MEMORY] == 1900 * MIB


def test_a_load_of_one_divides_the_edges_memory_equally() -> None:
    # 14 * 1024 MiB / 4 = 3584 MiB each: 3.77 pods of 950 and 1.89 of 1900.
    assert pods_at_full("A") == pytest.approx(3584 / 950)
    assert pods_at_full("D") == pytest.approx(3584 / 1900)
    cycles = replicas(STEADY, 0)
    assert cycles[0] == {"A": 1, "B": 1, "C": 1, "D": 1}
    assert len(cycles) == CYCLES + 1
    assert all(wanted == {"A": 3, "B": 1, "C": 3, "D": 1} for wanted in cycles[1:])


def test_the_load_is_drawn_with_its_mean_and_spread_and_a_seed_repeats_it() -> None:
    assert replicas(BY_LOAD[0], 1) == replicas(BY_LOAD[0], 1)
    assert replicas(BY_LOAD[0], 1) != replicas(BY_LOAD[0], 2)
    down, up = replicas(BY_LOAD[0], 1), replicas(ROUNDED_UP[0], 1)
    assert all(
        one[name] == other[name] - 1 or other[name] == 1
        for one, other in zip(down[1:], up[1:], strict=True)
        for name in SERVICES
    )
    counts = [
        wanted["A"] for seed in range(200) for wanted in replicas(Scenario(1.5, 0.2), seed)[1:]
    ]
    # A gets the whole pods of 3.77 * share, half a pod less than that on average.
    assert np.mean(counts) == pytest.approx(1.5 * 3584 / 950 - 0.5, abs=0.1)
    assert np.std(counts) == pytest.approx(0.2 * 3584 / 950, abs=0.1)


def test_k8s_prefers_edge_nodes_and_spreads() -> None:
    pods = [make_pod("A", number) for number in range(15)]
    turns = decide_in_turn(empty_cluster(), pods, FILTERS, EdgePreferred(), Random(0))
    nodes = [decision.node for decision, _ in turns]
    assert set(nodes[:3]) == {"N2", "N3", "N4"}
    # 950 MiB each: 5 GB hold 5, 4 GB hold 4.
    assert [nodes.count(name) for name in ("N2", "N3", "N4", "N5")] == [5, 4, 5, 1]


def counts(scenario_run: ScenarioRun) -> dict[str, int]:
    return {s: sum(pod.labels["app"] == s for pod, _ in scenario_run.running) for s in SERVICES}


@pytest.mark.parametrize("as_replica_set", [True, False])
def test_scaling_adds_missing_pods_and_removes_surplus_pods(
    as_replica_set: bool,
) -> None:
    scenario_run = ScenarioRun(STEADY, METHODS["bef"], 0, as_replica_set=as_replica_set)
    pending = scenario_run.scale({"A": 3, "B": 1, "C": 1, "D": 2})
    assert [pod.labels["app"] for pod in pending] == ["A", "A", "A", "B", "C", "D", "D"]
    scenario_run.place(pending)
    assert counts(scenario_run) == {"A": 3, "B": 1, "C": 1, "D": 2}
    assert scenario_run.scale({"A": 1, "B": 1, "C": 1, "D": 2}) == []
    assert counts(scenario_run) == {"A": 1, "B": 1, "C": 1, "D": 2}
    assert scenario_run.view.requested_of(CPU).sum() == 7000
    assert scenario_run.view.assigned_pods.node.size == 5


def test_a_replica_set_removes_the_newest_pod_on_the_node_with_most_of_them() -> None:
    scenario_run = ScenarioRun(STEADY, METHODS["bef"], 0, as_replica_set=True)
    for number, node in enumerate([0, 3, 3, 1]):
        pod = make_pod("A", number)
        scenario_run.view = scenario_run.view.with_placement(pod, node)
        scenario_run.running.append((pod, node))
    scenario_run.scale({"A": 3})
    assert [(pod.name, node) for pod, node in scenario_run.running] == [
        ("a-0", 0),
        ("a-1", 3),
        ("a-3", 1),
    ]


def test_shares_are_those_of_the_pods_on_the_edge_and_not_just_moving() -> None:
    scenario_run = ScenarioRun(STEADY, METHODS["bef"], 0)
    for number, (service, node) in enumerate([("A", 0), ("A", 3), ("B", 1), ("D", 3)]):
        scenario_run.running.append((make_pod(service, number), node))
    scenario_run.wanted = {"A": 2, "B": 1, "C": 1, "D": 1}
    assert scenario_run.edge_shares().tolist() == [0.5, 1.0, 0.0, 0.0]
    assert scenario_run.edge_shares(frozenset({"default/b-2"})).tolist() == [0.5, 0.0, 0.0, 0.0]


def test_a_pod_that_fits_nowhere_is_not_on_the_edge_and_stays_pending() -> None:
    scenario_run = ScenarioRun(STEADY, METHODS["bef"], 0)
    # Of 950 MiB the edge holds 5 + 4 + 5 and the cloud 18.
    wanted = {"A": 35, "B": 1, "C": 1, "D": 1}
    scenario_run.place(scenario_run.scale(wanted))
    assert counts(scenario_run) == {"A": 32, "B": 0, "C": 0, "D": 0}
    assert scenario_run.edge_shares().tolist() == [14 / 35, 0.0, 0.0, 0.0]
    assert [pod.labels["app"] for pod in scenario_run.scale(wanted)] == list("AAABCD")


def test_what_fits_the_edge_is_all_on_the_edge() -> None:
    for name in ("kubedsm", "bef", "sef", "kube-default"):
        assert simulate(STEADY, METHODS[name], 0).shares.tolist() == [1.0] * 4, name
    assert simulate(STEADY, METHODS["cloud-first"], 0).shares.tolist() == [0.0] * 4


def test_a_suggestion_brings_pods_back_when_the_load_has_fallen() -> None:
    scenario_run = ScenarioRun(BY_LOAD[-1], kubedsm(), 0)
    for wanted in ({"A": 9, "B": 4, "C": 9, "D": 4}, {"A": 3, "B": 1, "C": 3, "D": 1}):
        scenario_run.place(scenario_run.scale(wanted))
    while scenario_run.suggest():
        pass
    assert scenario_run.edge_shares().tolist() == [1.0] * 4


def test_before_a_cycle_is_placed_view_and_pods_are_those_of_the_scenario() -> None:
    scenario_run = ScenarioRun(BY_LOAD[0], kubedsm(), 0)
    cycles = replicas(BY_LOAD[0], 0)
    assert len(cycles) == CYCLES + 1
    for wanted in cycles:
        pending = scenario_run.scale(wanted)
        view, running = scenario_run.view, scenario_run.running
        pods = [*pending, *(pod for pod, _ in running)]
        assert {s: sum(pod.labels["app"] == s for pod in pods) for s in SERVICES} == wanted
        requested = sum(pod.requests[CPU] for pod, _ in running)
        assert view.requested_of(CPU).sum() == requested
        assert all(decide(view, pod, FILTERS, EdgePreferred(), Random(0)).node for pod in pending)
        scenario_run.place(pending)
        for _ in range(scenario_run.method.rounds):
            scenario_run.suggest()


def test_a_seed_repeats_a_run_to_the_last_bit() -> None:
    one, two = (simulate(BY_LOAD[0], METHODS["kubedsm"], 3) for _ in range(2))
    assert (one.shares.tolist(), one.migrations) == (two.shares.tolist(), two.migrations)
    other = simulate(BY_LOAD[0], METHODS["kubedsm"], 4)
    assert one.shares.tolist() != other.shares.tolist()


@pytest.mark.experiment
def test_the_whole_experiment(experiment: Callable[[str], Run]) -> None:
    result, progress = experiment("kubedsm")
    assert list(progress) == sorted(progress)
    assert progress[-1] == 1.0
    assert all(claim.why for claim in result.misses)
    claims = {(claim.table, claim.says): claim for claim in result.claims}
    for table in ("Fig. 4", "Fig. 5"):
        for says in (
            "KubeDSM's edge ratio",
            "KubeDSM has the highest edge ratio in every workload",
            "CF has the lowest edge ratio in every workload",
        ):
            assert claims[table, says].holds, (table, says)
    gains = [claim for claim in result.claims if claim.compare == "gain"]
    assert len(gains) == 8
    assert all(claim.holds for claim in gains)
    for says in ("NoMig over kube-default", "Original over NoMig", "MidMig over Original"):
        assert claims["Fig. 10", says].holds, says
    assert_rows(result)


def assert_rows(result: Result) -> None:
    tables: Sequence[str] = [row.table for row in result.rows]
    figures = {f"Fig. {number}" for number in (4, 5, 8, 9, 10, 11)}
    assert set(tables) == {*figures, "Optimum, Eq. 9", "Optimum, random clusters"}
    for row in result.rows:
        if row.metric == "qos" or row.table in ("Fig. 4", "Fig. 5"):
            assert (row.optimum is None) == (row.metric == "gain_percent"), row
        assert row.optimum is None or row.ours <= row.optimum + 1e-9, row
    ratios = [row.ours for row in result.rows if row.metric == "edge_ratio_percent"]
    assert all(0 <= ratio <= 100 for ratio in ratios)
    assert len(
        {(row.table, row.case, row.strategy, row.option, row.metric) for row in result.rows}
    ) == len(result.rows)
