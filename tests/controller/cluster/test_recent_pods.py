"""What is assumed of the pods that reports do not contain yet: it follows from the API server's
objects and the reports, and leaves as reports contain them."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from leadline_controller.cluster.recent_pods import RecentPods
from leadline_controller.framework.assumed_load import PodUse, workload_of
from leadline_controller.framework.model import CPU, MEMORY, PODS, Pod, PodAnnotations
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.ports import NodeDeleted, PodChanged
from leadline_controller.framework.view import ClusterView

from tests.support.loaded_boards import (
    CORES,
    INTERVAL_S,
    MEMORY_BYTES,
    REAL,
    Controller,
    LoadedBoards,
    pods,
)

AS_REQUESTED = PodUse(0.4, 0.1 * MEMORY_BYTES)
REQUESTS = {PODS: 1, CPU: 400, MEMORY: round(0.1 * MEMORY_BYTES)}


def requesting(name: str, mbps: float | None = None) -> Pod:
    """A pod that requests a tenth of a board."""
    return Pod("default", name, name, REQUESTS, annotations=PodAnnotations(bandwidth_mbps=mbps))


def boards(count: int = 1, starts_s: float = 2.0) -> tuple[Controller, LoadedBoards]:
    """Boards without noise; the first reports at a full ten seconds."""
    controller = Controller()
    made = LoadedBoards(count, 1, [controller], noise=0.0, starts_s=starts_s)
    made.phase_s[made.names[0]] = 0.0
    made.run(INTERVAL_S * 2 - made.now_s % INTERVAL_S)
    return controller, made


def assumed(view: ClusterView, metric: str) -> float:
    """On the first board."""
    return float((getattr(view.metrics, metric) - getattr(view.measured, metric))[0])


def test_a_pod_counts_in_full_until_reports_contain_it_share_by_share() -> None:
    controller, board = boards(starts_s=6.5)
    board.bind(requesting("web"), "n000", AS_REQUESTED)
    for _ in range(9):  # also while it starts, and runs
        view = controller.view(board.now_s)
        assert assumed(view, "cpu_percent") == pytest.approx(10.0)
        assert assumed(view, "memory_percent") == pytest.approx(10.0)
        assert view.recently_placed.tolist() == [1]
        board.run(1.0)
    board.run(1.5)  # the report has 3.5 s of it
    view = controller.view(board.now_s)
    assert assumed(view, "cpu_percent") == pytest.approx(10.0 * 0.65)
    assert assumed(view, "memory_percent") == 0.0  # a reading at one time
    assert view.metrics.cpu_percent[0] == pytest.approx(2.0 + 10.0)
    assert view.metrics.memory_percent[0] == pytest.approx(20.0 + 10.0)
    board.run(INTERVAL_S)
    view = controller.view(board.now_s)
    assert view.metrics.cpu_percent[0] == view.measured.cpu_percent[0] == pytest.approx(12.0)
    assert view.recently_placed.tolist() == [0]


def test_a_pod_that_has_ended_is_taken_off_until_reports_are_free_of_it() -> None:
    controller, board = boards(starts_s=0.5)
    board.bind(requesting("web"), "n000", AS_REQUESTED)
    board.run(5 * INTERVAL_S + 4.0)
    assert controller.view(board.now_s).measured.cpu_percent[0] == pytest.approx(12.0)
    board.delete("web")
    for _ in range(3):
        view = controller.view(board.now_s)
        assert view.metrics.cpu_percent[0] == pytest.approx(2.0)
        assert view.metrics.memory_percent[0] == pytest.approx(20.0)
        assert view.recently_placed.tolist() == [0]
        board.run(INTERVAL_S)
    assert controller.view(board.now_s).measured.cpu_percent[0] == pytest.approx(2.0)


def test_an_assumed_pod_counts_before_the_watch_shows_it_and_not_after_a_failed_binding() -> None:
    controller, board = boards()
    controller.state.apply(PodChanged(requesting("web")))
    controller.state.assume(requesting("web"), "n000")
    assert assumed(controller.view(board.now_s), "cpu_percent") == pytest.approx(10.0)
    controller.state.forget(requesting("web"))
    view = controller.view(board.now_s)
    assert assumed(view, "cpu_percent") == 0.0
    assert view.recently_placed.tolist() == [0]


def test_a_pod_that_does_not_start_does_not_count_for_ever() -> None:
    controller, board = boards(starts_s=1e9)
    board.bind(requesting("web"), "n000", AS_REQUESTED)
    board.run(500.0)
    assert assumed(controller.view(board.now_s), "cpu_percent") == pytest.approx(10.0)
    board.run(120.0)
    assert assumed(controller.view(board.now_s), "cpu_percent") == 0.0


@pytest.mark.slow
def test_nothing_is_kept_of_boards_that_do_not_report_or_are_gone() -> None:
    controller, board = boards(3)
    board.silent.add("n001")
    for number in range(200):
        board.bind(requesting(f"web-{number}"), board.names[number % 3], AS_REQUESTED)
        board.run(5.0)
    assert controller.view(board.now_s).recently_placed.max() < 50
    controller.state.apply(NodeDeleted("n002"))
    for uid in [*board.pods]:
        board.delete(uid)
    board.run(700.0)
    recent = controller.state.recent
    assert (recent._pods, recent._growths, recent._assumed) == ({}, {}, {})


def test_what_pods_request_of_a_link_counts_as_long_as_they_are_there() -> None:
    controller, board = boards(2)
    board.bind(requesting("web", mbps=30.0), "n000", AS_REQUESTED)
    board.run(10 * INTERVAL_S)
    view = controller.view(board.now_s)
    assert assumed(view, "bandwidth_mbps") == pytest.approx(-30.0)
    assert view.bandwidth_free_mbps()[0] == pytest.approx(view.metrics.bandwidth_mbps[0])
    board.delete("web")
    assert assumed(controller.view(board.now_s), "bandwidth_mbps") == 0.0


@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_a_wrong_expectation_is_corrected_after_two_reports(factor: float) -> None:
    controller, board = boards(starts_s=0.5)
    use = PodUse(0.4 * factor, 0.1 * factor * MEMORY_BYTES / 10, 5.0, 5.0, 100.0)
    for number in range(3):
        board.bind(requesting(f"web-{number}"), "n000", use)
    board.run(2 * INTERVAL_S + 1.0)
    view = controller.view(board.now_s)
    for name in METRICS:
        np.testing.assert_allclose(getattr(view.metrics, name), getattr(view.measured, name))
    assert view.metrics.cpu_percent[0] == pytest.approx(2.0 + 3 * 10.0 * factor)


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_the_clock_of_a_board_may_be_wrong(ahead_s: float) -> None:
    right, board = boards(starts_s=3.0)
    board.ahead_s["n000"] = ahead_s
    board.run(INTERVAL_S)
    board.bind(requesting("web"), "n000", AS_REQUESTED)
    board.run(INTERVAL_S + 1.0)
    assert assumed(right.view(board.now_s), "cpu_percent") == pytest.approx(3.0, abs=0.6)


def test_what_a_workload_uses_is_learned_where_nothing_else_changed() -> None:
    controller, board = boards(4)
    everything = pods(9)
    workload = workload_of(everything[0])
    for each in everything[:6]:
        board.bind(each, board.names[int(each.name[-1]) % 3], REAL)
    board.bind(replace(everything[6], labels={"app": "other"}), "n003", REAL)
    board.bind(everything[7], "n003", REAL)
    assert workload not in controller.state.recent.expected.learned
    board.run(3 * INTERVAL_S)
    learned = controller.state.recent.expected.learned
    assert learned.keys() == {workload}  # on n003 two workloads came
    assert learned[workload] == pytest.approx(REAL)
    # Nor where one has ended meanwhile.
    board.delete(everything[0].uid)
    board.bind(replace(everything[8], uid="late", labels={"app": "late"}), "n000", REAL)
    board.run(3 * INTERVAL_S)
    assert not controller.state.recent._growths
    assert [len(each) for each in controller.state.recent._samples.values()] == [3]
    board.bind(everything[8], "n000", REAL)
    view = controller.view(board.now_s)
    assert assumed(view, "packets_sent_per_s") == pytest.approx(REAL.packets_sent_per_s)
    assert assumed(view, "cpu_percent") == pytest.approx(100 * REAL.cpu_cores / CORES)
    assert view.assumed is not None
    assert not view.assumed.rates_unknown.any()
    # The metrics API is more certain of CPU and memory.
    controller.state.recent.use_usage({workload: (1.0, 0.5 * MEMORY_BYTES)})
    assert assumed(controller.view(board.now_s), "cpu_percent") == pytest.approx(25.0)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))]
)
def test_a_controller_that_takes_over_assumes_the_same(seed: int) -> None:
    random, controllers = Random(seed), [Controller(), Controller()]
    board = LoadedBoards(3, seed, controllers, starts_s=4.0)
    started = False
    for number in range(40):
        if board.pods and random.random() < 0.3:
            board.delete(random.choice([*board.pods]))
        else:
            board.bind(pods(1, f"app-{number}")[0], random.choice(board.names), REAL)
        board.run(random.uniform(0.0, 4.0))
        if number == 20:
            late = Controller()
            board.join(late)
            started = True
    assert started
    views = [each.view(board.now_s) for each in controllers]
    for name in METRICS:
        np.testing.assert_allclose(*(getattr(each.metrics, name) for each in views))
    # One that has just started knows what ended before only by what it was told; a while later it
    # knows all.
    new = late.view(board.now_s)
    for name in ("cpu_percent", "memory_percent"):
        np.testing.assert_allclose(getattr(new.metrics, name), getattr(views[0].metrics, name))
    np.testing.assert_array_equal(new.recently_placed, views[0].recently_placed)


def test_turned_off_strategies_see_what_was_measured() -> None:
    controller = Controller(assumes_load=False)
    board = LoadedBoards(2, 1, [controller])
    board.bind(pods(1)[0], "n000")
    view = controller.view(board.now_s)
    assert view.metrics is view.measured
    assert view.recently_placed.tolist() == [1, 0]  # ties may still go by these


def test_without_a_wall_clock_pods_count_until_they_are_seen_to_run() -> None:
    controller, board = boards()
    controller.state.recent = RecentPods(lambda: None, controller.now_s)
    board.bind(requesting("web"), "n000", AS_REQUESTED)
    assert assumed(controller.view(board.now_s), "cpu_percent") == pytest.approx(10.0)
    board.run(3 * INTERVAL_S)
    assert assumed(controller.view(board.now_s), "cpu_percent") == 0.0
