"""Which starts count, and that a controller which starts again counts the same."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cluster.pod_starts import PodStarts
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.framework.starts import Starts

from tests.controller.builders import node
from tests.support.loaded_boards import Controller


def ready(uid: str, runs_s: float, starting_s: float | None = 3.0, app: str = "web") -> Pod:
    labels = {"app": app}
    return Pod("default", uid, uid, labels=labels, runs_s=runs_s, starting_s=starting_s, ready=True)


def seconds(starts: Starts, pod: Pod) -> float:
    return starts.of(workload_of(pod))[""]


def test_the_last_eight_count() -> None:
    starts = PodStarts()
    for number in range(20):
        starts.put(ready(f"p{number}", float(number), 9.0 if number < 12 else 2.0), "pi4")
    assert seconds(starts.look(), ready("new", 0.0)) == pytest.approx(2.0)


def test_a_pod_counts_once_and_not_after_a_restart() -> None:
    starts = PodStarts()
    for took_s in (3.0, 300.0):  # it was not ready for a while
        starts.put(ready("a", 1.0, took_s), "pi4")
    assert seconds(starts.look(), ready("a", 1.0)) == pytest.approx(3.0)
    starts.put(replace(ready("a", 1.0, None), restarted=True), "pi4")
    assert starts.look().of(workload_of(ready("a", 1.0))) == {}


@pytest.mark.parametrize(
    "pod", [ready("a", 1.0, None), ready("a", 1.0, 601.0), replace(ready("a", 1.0), runs_s=None)]
)
def test_a_start_that_is_not_known_or_took_too_long_does_not_count(pod: Pod) -> None:
    starts = PodStarts()
    starts.put(pod, "pi4")
    assert starts.look().of(workload_of(pod)) == {}


def test_while_nothing_changes_it_is_the_same_object() -> None:
    starts = PodStarts()
    starts.put(ready("a", 1.0), "pi4")
    assert starts.look() is starts.look()


def test_workloads_that_started_long_ago_are_forgotten() -> None:
    starts = PodStarts()
    for number in range(4100):
        starts.put(ready(f"p{number}", float(number), app=f"app-{number}"), "pi4")
    known = starts.look().usual_s
    assert len(known) == 4096
    assert workload_of(ready("", 0.0, app="app-0")) not in known


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 90), st.sampled_from("ab"))),
    st.randoms(use_true_random=False),
)
def test_in_which_order_pods_are_seen_does_not_matter(
    pods: list[tuple[int, int, str]], random: Random
) -> None:
    made = [
        ready(f"p{number}", float(at_s), float(took_s), app)
        for number, (at_s, took_s, app) in enumerate(pods)
    ]
    one, other = PodStarts(), PodStarts()
    for pod in made:
        one.put(pod, "pi4")
    for pod in random.sample(made, len(made)):
        other.put(pod, "pi4")
    for app in "ab":
        workload = workload_of(ready("", 0.0, app=app))
        assert one.look().of(workload) == other.look().of(workload)


def test_a_controller_that_starts_again_learns_the_same() -> None:
    boards = (node("a", labels={"leadline.dev/class": "pi4"}), node("b"))
    first, again = Controller(), Controller()
    first.state.apply(Relisted(boards, ()))
    pods = [
        replace(ready(f"p{n}", 10.0 + n, 2.0 + n % 2 * 40), node_name="ab"[n % 2]) for n in range(6)
    ]
    for pod in pods:
        first.state.apply(PodChanged(replace(pod, runs_s=None, starting_s=None, ready=False)))
        first.state.apply(PodChanged(replace(pod, starting_s=None, ready=False)))
        first.state.apply(PodChanged(pod))
    again.state.apply(Relisted(boards, tuple(pods)))
    expected = []
    for controller in (first, again):
        view = controller.view(1000.0)
        assert view.assumed is not None
        expected.append(view.assumed.expected.starts.of(workload_of(pods[0])))
    assert expected[0] == expected[1]
    assert expected[0].keys() == {"", "pi4", "4000m/8Gi"}
