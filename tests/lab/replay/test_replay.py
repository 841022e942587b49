"""What becomes of recorded pods under a strategy, in recordings of a few boards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.framework.model import Layer, Owner, Pod, PodAnnotations
from leadline_controller.framework.options import OptionError
from leadline_controller.framework.ports import NodeDeleted, PodChanged, Relisted
from leadline_controller.history.recorded import Began, Entry, Recorded
from leadline_controller.telemetry.accepted import Agent, Born
from leadline_lab.replay.outcomes import Outcome, PodOutcome
from leadline_lab.replay.past import Past
from leadline_lab.replay.replaying import replay
from leadline_lab.replay.states import ReplayError

from tests.lab.replay.small import UNIX_S, Recording, board, web

KUBE = "kube-default"


def replayed(entries: list[Entry], strategy: str = KUBE, seed: int = 7) -> dict[str, PodOutcome]:
    """What became of each pod, by its name."""
    return {
        each.pod.removeprefix("default/"): each for each in replay(entries, strategy, seed).pods
    }


def test_one_pod_on_one_board_lives_as_it_was_recorded() -> None:
    recording = Recording([board("n1")])
    recording.put_in_order(recording.life(web("p"), "n1", 20.0, ready_s=23.0, ended_s=83.0))
    found = replay(recording.end(100.0, "n1"), KUBE, 7)
    (pod,) = found.pods
    assert pod == PodOutcome(
        pod="default/p",
        workload="default/web",
        created_s=20.0,
        node="n1",
        bound_s=20.0,
        ready_s=23.0,
        ended_s=83.0,
        pull_s=0.0,
        best_ready_s=3.0,
    )
    assert (found.length_s, found.strategy, found.seed, found.cluster) == (100, KUBE, 7, "c")
    assert (found.zones, found.tiers) == ({"n1": ""}, {"n1": "edge"})
    assert found.is_recorded
    assert not replay(recording.end(100.0, "n1"), "netsched", 7).is_recorded


def test_a_pod_that_does_not_fit_waits_until_another_has_ended() -> None:
    recording = Recording([board("n1", cores=1), board("n2", cores=1)])
    first = recording.life(web("a", 800), "n1", 10.0, ready_s=12.0, ended_s=50.0)
    second = recording.life(web("b", 800), "n2", 20.0, ready_s=22.0, ended_s=90.0)
    recording.put_in_order([*first, *second])
    recording.node(5.0, board("n2", cores=1, unschedulable=True))
    found = replayed(recording.end(200.0, "n1"))
    assert found["a"].node == found["b"].node == "n1"
    assert found["b"].bound_s == pytest.approx(50.0)
    # It starts as fast, and lives as long, as it did on the other board of this kind.
    assert found["b"].ready_s == pytest.approx(52.0)
    assert found["b"].ended_s == pytest.approx(120.0)
    # It fitted nowhere else, and time that was spent waiting is no other node's.
    assert found["b"].best_ready_s == pytest.approx(32.0)


def test_a_board_is_cordoned_and_lost_as_it_was_recorded() -> None:
    recording = Recording([board("n1", cores=8), board("n2", cores=4)])
    lives = [
        *recording.life(web("a"), "n1", 10.0, ready_s=12.0),
        *recording.life(web("b"), "n2", 30.0, ready_s=32.0),
    ]
    recording.put_in_order(lives)
    recording.node(20.0, board("n1", cores=8, unschedulable=True))
    recording.change(60.0, NodeDeleted("n1"))
    found = replayed(recording.end(100.0, "n2"))
    assert [found[name].node for name in "ab"] == ["n1", "n2"]
    assert found["a"].ended_s == pytest.approx(60.0)
    assert found["b"].ended_s is None


def test_pulls_queue_on_a_board_and_layers_are_pulled_once() -> None:
    recording = Recording([board("n1"), board("n2", unschedulable=True)])
    base = Layer("base", 40.0)
    recording.layers("seen:1", Layer("seen", 100.0))
    recording.layers("a:1", base, Layer("a", 10.0))
    recording.layers("b:1", base, Layer("b", 20.0))
    seen = web("seen", 100, "seen", images=("seen:1",))
    recording.put_in_order(
        [
            *recording.life(seen, "n1", 10.0, ready_s=21.0, ended_s=30.0),
            *recording.life(web("a", 100, "a", images=("a:1",)), "n2", 50.0, ready_s=51.0),
            *recording.life(web("b", 100, "b", images=("b:1",)), "n2", 50.5, ready_s=51.5),
            *recording.life(web("c", 100, "a", images=("a:1",)), "n2", 90.0, ready_s=91.0),
        ]
    )
    recording.pull(20.0, "n1", seen, took_s=10.0, size_mb=100.0)
    past = Past.of(recording.end(200.0, "n1"))
    speed = past.speed("n1")
    assert speed is not None
    assert speed.seconds(100.0) == pytest.approx(10.0, rel=0.05)
    assert past.speed("n2") == speed, "it pulled nothing, so it counts as the others"
    found = {each.pod[-1]: each for each in replay(past, KUBE, 7).pods}
    first_s, second_s = speed.seconds(50.0), speed.seconds(20.0)
    assert found["a"].pull_s == pytest.approx(first_s)
    assert found["b"].pull_s == pytest.approx(first_s - 0.5 + second_s)
    assert found["c"].pull_s == 0.0
    assert found["b"].ready_s == pytest.approx(50.5 + (found["b"].pull_s or 0.0) + 1.0)


def test_a_board_prepares_a_pod_before_it_pulls() -> None:
    """What no pod that pulled took after its pull, those without a pull took in one."""
    recording = Recording([board("n1"), board("n2", unschedulable=True)])
    recording.layers("a:1", Layer("a", 100.0))
    pulling = web("pulls", 100, "a", images=("a:1",))
    recording.put_in_order(
        [
            *recording.life(pulling, "n1", 10.0, ready_s=21.0),
            *recording.life(web("later", 100, "a", images=("a:1",)), "n1", 40.0, ready_s=41.5),
        ]
    )
    recording.pull(20.5, "n1", pulling, took_s=10.0, size_mb=100.0)
    past = Past.of(recording.end(200.0, "n1"))
    assert past.boards(("n1", "n2")).prepare_s.tolist() == pytest.approx([1.0, 1.0])
    pulls, later = past.lives.values()
    both = np.array([True, False])
    for life in (pulls, later):
        assert past.starts_s(life, ("n1", "n2"), both).tolist() == pytest.approx([0.5, 1.5])
    found = {each.pod: each for each in replay(past, "kube-default", 7).pods}
    # The speed is a little higher than 10 s for 100 MB, as the line has an overhead, too.
    assert found["default/pulls"].pull_s == pytest.approx(11.0, abs=0.1)
    assert found["default/later"].ready_s == pytest.approx(41.5)


def test_users_wait_for_the_way_and_for_their_data() -> None:
    user = board("n2", bandwidth_mbps=40.0, unschedulable=True)
    recording = Recording([board("n1", bandwidth_mbps=50.0), user])
    notes = PodAnnotations(user_node="n2", data_mb=10.0, bandwidth_mbps=20.0)
    pods = [web(name, 100, annotations=notes) for name in ("a", "b")]
    lives = [recording.life(pod, "n1", 30.0 + at, ready_s=33.0 + at) for at, pod in enumerate(pods)]
    recording.put_in_order([each for life in lives for each in life])
    for at_s in range(0, 100, 10):
        recording.ping(at_s, "n1", {"n2": 5.0})
        recording.ping(at_s, "n2", {"n1": 5.0})
    found = replayed(recording.end(100.0, "n1"))
    assert [found[name].node for name in "ab"] == ["n1", "n1"]
    assert found["a"].user_rtt_ms == pytest.approx(5.0)
    assert found["a"].best_rtt_ms == pytest.approx(5.0)
    # For a second `a` has its user's link of 40 Mbit/s alone; then both share the 30 of n1.
    both_s = 40 / 15
    assert found["a"].transfer_s == pytest.approx(1 + both_s)
    assert found["b"].transfer_s == pytest.approx(both_s + 40 / 30)
    near = Recording([board("n1", unschedulable=True), board("n2", bandwidth_mbps=40.0)])
    near.put_in_order(near.life(pods[0], "n1", 30.0, ready_s=33.0))
    here = replayed(near.end(100.0, "n1"))["a"]
    assert (here.node, here.user_rtt_ms, here.best_rtt_ms, here.transfer_s) == ("n2", 0.0, 0.0, 0.0)


def test_a_pod_takes_its_load_along() -> None:
    """Recorded on n1, which had 50 % more CPU in use from then on; replayed, n2 has it."""
    recording = Recording([board("n1", cores=4), board("n2", cores=4)])
    pod = web("p", 2000)
    recording.put_in_order(recording.life(pod, "n1", 100.0, ready_s=103.0))
    for at_s in range(0, 400, 10):
        recording.report(at_s, "n1", 60.0 if at_s > 110 else 10.0)
        recording.report(at_s, "n2", 80.0)
    recording.node(95.0, board("n1", cores=4, unschedulable=True))
    (outcome,) = replay(recording.end(400.0, "n1"), KUBE, 7).pods
    assert outcome.node == "n2"
    # 80 % and 50 % more are wanted of 100 %.
    assert outcome.contention == pytest.approx(1 - 100 / 130, rel=0.1)
    recording = Recording([board("n1", cores=4)])
    recording.put_in_order(recording.life(pod, "n1", 100.0, ready_s=103.0))
    for at_s in range(0, 400, 10):
        recording.report(at_s, "n1", 60.0)
    (same,) = replay(recording.end(400.0, "n1"), KUBE, 7).pods
    assert same.contention == 0.0, "it is in the report already"


def test_a_new_list_of_all_pods_moves_none_of_the_replayed_ones() -> None:
    nodes = board("n1", unschedulable=True), board("n2")
    recording, pod = Recording(nodes), web("p")
    shown = replace(pod, node_name="n1", ready=True, runs_s=UNIX_S + 22)
    other = Pod("kube-system", "proxy", "u", node_name="n1", scheduler_name="default-scheduler")
    recording.put_in_order(recording.life(pod, "n1", 20.0, ready_s=22.0))
    recording.change(50.0, Relisted(nodes, (shown, other, web("q"))))
    recording.change(60.0, Relisted(nodes, (shown, other)))
    found = replayed(recording.end(100.0, "n1"))
    assert found["p"].node == "n2"
    assert found["p"].ended_s is None
    assert found["q"].bound_s == pytest.approx(50.0)
    assert found["q"].ended_s == pytest.approx(60.0), "nobody knows how long it would have lived"
    assert set(found) == {"p", "q"}, "the other scheduler's pods stay where they are"


def test_times_go_on_over_a_restart_with_another_clock() -> None:
    recording = Recording([board("n1")])
    recording.put_in_order(recording.life(web("p"), "n1", 20.0, ready_s=23.0, ended_s=30.0))
    later = Recording([board("n1")])
    later.put_in_order(later.life(web("q"), "n1", 20.0, ready_s=23.0))
    first, second = recording.end(50.0, "n1"), later.end(50.0, "n1")
    began = second[0].what
    assert isinstance(began, Began)
    second[0] = Entry(second[0].at_s, replace(began, unix_s=UNIX_S + 1000.0))
    outcome = replay([*first, *second], KUBE, 7)
    assert outcome.length_s == pytest.approx(1050.0)
    assert [pod.bound_s for pod in outcome.pods] == pytest.approx([20.0, 1020.0])
    assert any("began again 1 times" in each for each in outcome.caveats)


def test_what_it_cannot_know_is_said() -> None:
    recording = Recording([board("n1")])
    pod = web("p", images=("unknown:1",), priority=5)
    recording.put_in_order(recording.life(pod, "n1", 20.0))
    found = replay(recording.end(100.0, "n1"), KUBE, 7)
    said = " ".join(found.caveats)
    for words in (
        "Demand is as it was",
        "layers are not known",
        "nothing tells how long",
        "preempt",
    ):
        assert words in said
    assert found.pods[0].ready_s == 20.0


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    recording = Recording([board(f"n{at}") for at in range(5)])
    lives = [recording.life(web(f"p{at}", 10), "n1", 10.0 + at, 12.0 + at) for at in range(30)]
    recording.put_in_order([each for life in lives for each in life])
    past = Past.of(recording.end(100.0, "n1"))

    def nodes(outcome: Outcome) -> list[str | None]:
        return [pod.node for pod in outcome.pods]

    first = replay(past, "random", 1)
    assert replay(past, "random", 1) == first
    assert nodes(replay(past, "random", 2)) != nodes(first)


def test_a_recording_that_begins_with_nothing_is_refused() -> None:
    recording = Recording([board("n1")])
    recording.change(10.0, PodChanged(web("p")))
    with pytest.raises(ReplayError, match="does not say how its controller began"):
        replay(recording.entries[1:], KUBE, 0)
    with pytest.raises(OptionError, match="unknown; known: kube-scheduler, leadline, netsched"):
        replay(recording.entries, "nonsense", 0)


@pytest.mark.slow
def test_a_strategy_learns_how_long_pods_start_on_a_class_of_boards() -> None:
    boards = [
        board(f"{kind}-{at}", labels={"leadline.dev/class": kind})
        for kind in ("slow", "quick")
        for at in range(2)
    ]
    recording, job = Recording(boards), Owner("Job", "j", "uid-j", "batch/v1")
    told: list[tuple[float, Recorded]] = []
    for number in range(40):
        at_s, node = 20.0 + 60.0 * number, boards[number % 4].name
        took_s = 12.0 if node.startswith("slow") else 3.0
        told += recording.life(web(f"p{number}", owner=job), node, at_s, at_s + took_s, at_s + 40)
    recording.put_in_order(told)
    for each in boards:
        kind = Agent(each.name, interval_s=10, hardware_model=each.name.split("-")[0])
        recording.put(0.0, Born(kind, recording._stamp(0.0)))
        for at_s in range(10, 2400, 10):
            recording.report(float(at_s), each.name)
    entries = recording.end(2450.0, "slow-0")
    # Until it has seen some on both, it cannot know; to learn it, pods must come to both.
    last = [
        [each.node or "" for each in replay(entries, "leadline", 7, options).pods][-20:]
        for options in ({}, {"without": "start"})
    ]
    quick, blind = (sum(node.startswith("quick") for node in nodes) for nodes in last)
    assert quick == 20
    assert blind < 20
