"""The start of a workload on a class of board is part of a wait."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.assumed_load import Expectations, workload_of
from leadline_controller.framework.cycle import Scores
from leadline_controller.framework.model import Link, Owner, Pod
from leadline_controller.framework.services import Service
from leadline_controller.framework.starts import Starts, learn
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.leadline import Leadline

from tests.controller.builders import node, pod, view

KINDS = ("pi3", "pi4", "pi5")
BOARDS = [node(kind, labels={"leadline.dev/class": kind}) for kind in KINDS]
LINKS = [Link("pi3", "pi4", 1.0), Link("pi4", "pi5", 1.0), Link("pi3", "pi5", 1.0)]
METRICS = {"cpu_percent": [0.0] * 3, "memory_percent": [20.0] * 3, "bandwidth_mbps": [100.0] * 3}


def of_job() -> Pod:
    return replace(pod("p"), owner=Owner("Job", "j", "uid-j", "batch/v1"))


def cluster(starts: Starts | None = None, **metrics: list[float]) -> ClusterView:
    found = view(BOARDS, links=LINKS, metrics={**METRICS, **metrics})
    return found.assuming_load(Expectations(starts=starts or Starts()))


def took(workload: Service, **seconds: float) -> Starts:
    return learn({(workload, kind): [each] * 8 for kind, each in seconds.items()})


def scores(cluster: ClusterView, wanted: Pod, *, without: str = "nothing") -> Scores:
    return Leadline(without=without).score(cluster, wanted, np.arange(len(cluster)))


def test_a_pod_of_a_job_waits_for_all_of_its_start() -> None:
    wanted = of_job()
    starts = took(workload_of(wanted), pi3=12.0, pi4=4.0, pi5=3.0)
    found = scores(cluster(starts), wanted)
    assert found.parts["start_ms"].tolist() == pytest.approx([12000, 4000, 3000], rel=0.2)
    assert found.finalists.tolist() == [2]
    assert "for its start" in found.why(2)


def test_each_request_of_a_service_waits_for_a_share_of_it() -> None:
    wanted = pod("p", labels={"app": "web"})
    starts = took(workload_of(wanted), pi3=12.0, pi4=4.0, pi5=4.0)
    found = scores(cluster(starts), wanted)
    assert found.parts["start_ms"][0] == pytest.approx(12000 / 3600, rel=0.2)


def test_without_starts_and_without_the_term_there_is_none() -> None:
    starts = took(workload_of(of_job()), pi3=12.0)
    assert "start_ms" not in scores(cluster(), of_job()).parts
    left_out = scores(cluster(starts), of_job(), without="start")
    assert "start_ms" not in left_out.parts
    assert left_out.total.tolist() == scores(cluster(), of_job()).total.tolist()


@given(
    st.floats(1.0, 500.0),
    st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3),
    st.booleans(),
)
def test_a_start_that_takes_as_long_everywhere_changes_no_choice(
    seconds: float, cpu_percent: list[float], is_job: bool
) -> None:
    wanted = of_job() if is_job else pod("p", labels={"app": "web"})
    starts = took(workload_of(wanted), pi3=seconds, pi4=seconds, pi5=seconds)
    without = scores(cluster(cpu_percent=cpu_percent), wanted)
    found = scores(cluster(starts, cpu_percent=cpu_percent), wanted)
    assert found.finalists.tolist() == without.finalists.tolist()
    added = found.total - without.total
    assert added == pytest.approx(np.full(3, added[0]), rel=1e-6)


@given(st.floats(1.0, 500.0), st.integers(1, 8))
def test_a_class_on_which_nothing_started_is_as_the_others(seconds: float, count: int) -> None:
    starts = learn({(workload_of(of_job()), "pi4"): [seconds] * count})
    assert scores(cluster(starts), of_job()).finalists.tolist() == [0, 1, 2]
    starts = took(workload_of(of_job()), pi3=3 * seconds, pi4=seconds)
    total = scores(cluster(starts), of_job()).total
    assert total[0] > total[2] > total[1]


def test_pods_that_come_together_count_it_as_well() -> None:
    wanted, other = of_job(), pod("q", labels={"app": "web"})
    starts = took(workload_of(wanted), pi3=12.0, pi4=4.0, pi5=3.0)
    found = cluster(starts)
    plan = Leadline().plan(found, [wanted, other], [], lambda _: np.ones(3, np.bool_))
    assert plan.placed[wanted.key] == 2


def test_the_move_of_a_slow_starter_costs_more() -> None:
    wanted = pod("p", labels={"app": "web"})
    starts = took(workload_of(wanted), pi3=100.0, pi4=2.0, pi5=2.0)
    slow = starts.of(workload_of(wanted))["pi3"]
    assert slow > 50
    cost = Leadline()._cost(cluster(starts), wanted, np.arange(3)).each_ms
    assert cost.tolist() == pytest.approx([1000 * slow**2 / 7200, 55.6, 55.6], abs=0.05)
