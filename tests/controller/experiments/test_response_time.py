"""The response-time experiment: its parts with small loads, and all of it once."""

from dataclasses import replace
from random import Random

import pytest
from leadline_controller.experiments import response_time
from leadline_controller.experiments.response_time.claims import DEFAULT, OURS
from leadline_controller.experiments.response_time.testbed import (
    DETECTION,
    LEVELS,
    THRESHOLD_MS,
    WEB,
    WORKERS,
    cluster,
    drawn,
    replica,
)
from leadline_controller.experiments.response_time.trial import (
    Deployment,
    Method,
    Replica,
    best_placement,
    newest,
    on_the_fullest,
    run_best,
    run_trial,
)
from leadline_controller.experiments.result import Result
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.response_time import ResponseTime

PROPOSED = Method(ResponseTime(), newest)
SPREADING = Method(KubeDefault(), on_the_fullest)


def test_the_testbed_is_what_the_text_says() -> None:
    predicted = DETECTION.predicted_ms
    assert predicted == {"w1": 110, "w2": 185, "w3": 235, "w4": 420}
    assert [w.name for w in WORKERS if predicted[w.name] > THRESHOLD_MS] == ["w4"]
    assert sum(worker.cores for worker in WORKERS) == 8
    assert [step.users for step in DETECTION.steps] == [2, 4, 6, 8, 6, 4, 2]
    assert DETECTION.scaling.maximum == 4


@pytest.mark.parametrize("seed", range(4))
def test_scaled_by_hand_the_newest_goes_first(seed: int) -> None:
    deployment = Deployment(DETECTION, PROPOSED, Random(seed))
    deployment.scale(4)
    assert list(deployment.nodes) == ["w1", "w2", "w3", "w1"]
    deployment.scale(1)
    assert list(deployment.nodes) == ["w1"]
    assert [gone.pod.name for gone in deployment.removed] == [
        "object-detection-4",
        "object-detection-3",
        "object-detection-2",
    ]
    deployment.scale(2)
    assert deployment.replicas[-1] == Replica(replica(DETECTION, 5), "w2")


@pytest.mark.parametrize("seed", range(4))
def test_the_default_begins_and_ends_where_there_is_most_room(seed: int) -> None:
    deployment = Deployment(DETECTION, SPREADING, Random(seed))
    deployment.scale(4)
    assert deployment.nodes[0] == "w4"
    assert sorted(deployment.nodes) == ["w1", "w2", "w3", "w4"]
    deployment.scale(1)
    assert deployment.nodes == ("w4",)
    assert deployment.removed[0].node == "w1", "it has the least left"


def test_of_equally_full_nodes_the_newest_replica_goes() -> None:
    view = cluster(WORKERS)
    replicas = [Replica(replica(DETECTION, n), node) for n, node in [(1, "w2"), (2, "w3")]]
    for pod, node in replicas:
        view = view.with_placement(pod, view.table.index[node])
    assert on_the_fullest(view, replicas).node == "w3"
    assert on_the_fullest(view, replicas[::-1]).node == "w2"


def test_a_replica_that_no_node_takes_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline_controller.experiments.response_time.testbed.THRESHOLD_MS", 100)
    deployment = Deployment(DETECTION, PROPOSED, Random(0))
    deployment.scale(2)
    assert deployment.nodes == ()


def test_a_request_waits_for_the_way_and_for_the_work() -> None:
    outcome = run_trial(DETECTION, PROPOSED, 1)
    # w1: 50 ms there and back, 60 ms of work on its one core, and never less.
    assert min(outcome.response_s[0]) == pytest.approx(0.11)
    assert [len(nodes) for nodes in outcome.nodes] == list(LEVELS)
    # Two users keep ten requests going each, with 4 s between them on average.
    assert outcome.throughput[0] == pytest.approx(20 / 4.13, rel=0.05)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_trial(DETECTION, SPREADING, 7) == run_trial(DETECTION, SPREADING, 7)
    assert run_trial(DETECTION, SPREADING, 7) != run_trial(DETECTION, SPREADING, 8)


def test_the_best_placement_is_searched_and_not_assumed() -> None:
    assert best_placement(DETECTION, 1) == ("w1",)
    assert best_placement(DETECTION, 2) == ("w1", "w2")
    near_w4 = tuple(replace(w, ping_ms=0.0) if w.name == "w4" else w for w in WORKERS)
    assert best_placement(replace(DETECTION, workers=near_w4), 1) == ("w4",)


def test_drawn_workers_differ_but_not_by_more_than_was_asked_for() -> None:
    web, detection = drawn((WEB, DETECTION), Random(1), 0.3)
    assert web.workers == detection.workers != WORKERS
    for worker, base in zip(web.workers, WORKERS, strict=True):
        assert 0.7 <= worker.ping_ms / base.ping_ms <= 1.3
        assert 0.7 <= web.profile_ms[base.name] / WEB.profile_ms[base.name] <= 1.3


def test_the_optimum_has_its_replicas_at_once() -> None:
    placements = [("w1",), ("w1", "w2"), ("w1", "w2", "w3"), ("w1", "w2", "w2", "w3")]
    outcome = run_best(DETECTION, placements, 1)
    assert [tuple(nodes) for nodes in outcome.nodes] == [placements[n - 1] for n in LEVELS]
    assert min(outcome.response_s[0]) == pytest.approx(0.11)


@pytest.fixture(scope="module")
def result() -> Result:
    return response_time.run(0, lambda _: None)


@pytest.mark.experiment
def test_what_the_paper_says_of_its_figures_comes_out(result: Result) -> None:
    assert [f"{miss.table}, {miss.case}: {miss.says}" for miss in result.misses] == []
    assert {claim.table for claim in result.claims} == {f"Fig. {n}" for n in range(3, 9)}


@pytest.mark.experiment
def test_no_scheduler_beats_the_best_placement_by_more_than_chance(result: Result) -> None:
    for row in result.rows:
        if row.metric == "response_ms":
            assert row.optimum is not None
            assert row.ours > 0.96 * row.optimum, row
    assert {row.strategy for row in result.rows} == {OURS, DEFAULT}


@pytest.mark.experiment
def test_most_of_it_stands_whatever_the_lost_numbers_were(result: Result) -> None:
    firm = {row.case: row.ours for row in result.rows if row.table == "how firm"}
    assert firm["all"] + len(firm) - 1 == len(result.claims)
    assert firm["all"] >= len(result.claims) / 2


@pytest.mark.experiment
def test_rows_and_figures_are_of_every_step(result: Result) -> None:
    assert len([row for row in result.rows if row.table != "how firm"]) == 2 * len(LEVELS) * 2 * 4
    assert [figure.name for figure in result.figures] == [
        f"response-time-fig{number}" for number in (5, 6, 7, 8)
    ]
    for figure in result.figures:
        assert [series.label for series in figure.series][:2] == [OURS, DEFAULT]
        assert all(len(series.y) == len(LEVELS) for series in figure.series)
