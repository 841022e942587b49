import asyncio
import logging
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from leadline_controller.cluster.reservations import Reservation
from leadline_controller.framework.cycle import Scores
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    Event,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.scheduling.scheduler import BINDINGS_AT_ONCE
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading

from tests.attack.hostile_pods import manifest as large_manifest
from tests.controller.builders import manifest
from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder


async def test_pending_pods_with_our_scheduler_name_are_bound_and_no_others() -> None:
    cluster = CountingCluster(
        [node("n1"), node("n2")],
        [
            pod("ours"),
            pod("another's", scheduler_name="default-scheduler"),
            pod("placed", node_name="n2"),
            pod("finished", finished=True),
            pod("leaving", terminating=True),
            pod("gated", gated=True),
        ],
    )
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.put_pod(pod("later"))
        cluster.put_pod(pod("later another's", scheduler_name="x"))
        await harness.clock.advance(1)
    assert cluster.bound == {"default/ours": 1, "default/later": 1}
    assert harness.outcome("ours") == "bound"


async def test_a_bound_pod_has_an_event_that_says_where_and_why() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a")]))
    async with harness.running():
        await harness.clock.advance(1)
    (event,) = harness.events("a")
    assert (event.type, event.reason) == ("Normal", "Scheduled")
    assert event.message.startswith("Assigned default/a to n1 by kube-default: ")


async def test_removed_gates_and_a_changed_pod_are_noticed() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [gated := pod("a", gated=True)]))
    async with harness.running():
        await harness.clock.advance(1)
        assert harness.where() == {"a": None}
        harness.cluster.put_pod(replace(gated, gated=False))
        await harness.clock.advance(1)
    assert harness.where() == {"a": "n1"}


async def test_room_that_was_kept_for_a_pod_that_fits_nowhere_is_for_others_soon() -> None:
    kept, other = pod("kept", cpu=2000, gated=True), pod("other", cpu=500)
    harness = SchedulerHarness(CountingCluster([node("n1", cpu=1000)], [kept, other]))
    harness.state.reserve(Reservation(kept, "n1", None))
    async with harness.running():
        await harness.clock.advance(1)
        assert harness.where() == {"kept": None, "other": None}
        harness.cluster.put_pod(replace(kept, gated=False))
        await harness.clock.advance(3)
    assert harness.where() == {"kept": None, "other": "n1"}


async def test_pods_of_higher_priority_are_bound_first() -> None:
    pods = [pod(f"p{i}", priority=i) for i in range(4)]
    harness = SchedulerHarness(CountingCluster([node("n1", cpu=1000)], pods))
    async with harness.running():
        await harness.clock.advance(1)
    assert harness.where() == {"p0": None, "p1": None, "p2": "n1", "p3": "n1"}


async def test_bindings_of_a_burst_begin_together_but_not_all_of_them() -> None:
    """Those of one turn of the event loop are sent together; the watch has a turn between."""
    turns, begun = 0, Counter[int]()

    class TimingCluster(CountingCluster):
        async def bind(self, bound: Pod, node: str) -> None:
            begun[turns] += 1
            await super().bind(bound, node)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    cluster = TimingCluster([node("n1", cpu=100_000)], [pod(f"p{i:02}") for i in range(40)])
    harness = SchedulerHarness(cluster)
    counting = asyncio.create_task(count())
    async with harness.running():
        await harness.clock.advance(1)
    counting.cancel()
    assert begun.total() == 40
    assert begun.most_common(1)[0][1] <= 9
    assert len(begun) <= 7


async def test_a_burst_is_spread_and_overcommits_no_node() -> None:
    each = BINDINGS_AT_ONCE // 5 + 3  # so that some have to wait for a slot
    nodes = [node(f"n{i}", cpu=500 * each) for i in range(5)]
    cluster = CountingCluster(nodes, [pod(f"p{i:03}", cpu=500) for i in range(5 * each + 5)])
    cluster.gate.clear()  # no binding comes through while decisions are made
    harness = SchedulerHarness(cluster)
    async with harness.running():
        for _ in range(10):
            await harness.clock.advance(0)
        assert len(cluster.bind_calls) == BINDINGS_AT_ONCE
        cluster.gate.set()
        await harness.clock.advance(1)
    placed = Counter(where for where in harness.where().values() if where)
    assert placed == {f"n{i}": each for i in range(5)}
    assert max(cluster.bound.values()) == 1
    assert sum(where is None for where in harness.where().values()) == 5


# What became of a binding.


class Overtaken(CountingCluster):
    """Another binds the pod, or deletes it, before our binding arrives; the watch is late."""

    deletes = False

    async def bind(self, pod: Pod, node: str) -> None:
        self.bind_calls[pod.key] += 1
        asyncio.get_running_loop().call_later(0.05, self._overtake, pod, node)
        raise NotFoundError("404: no such pod") if self.deletes else ConflictError("409: taken")

    def _overtake(self, pod: Pod, node: str) -> None:
        if self.deletes:
            self.remove_pod(pod.key)
        else:
            self.put_pod(replace(pod, node_name="n2" if node == "n1" else "n1"))


@pytest.mark.parametrize("deletes", [False, True])
async def test_a_pod_that_another_client_bound_or_deleted_leaves_the_queue(deletes: bool) -> None:
    cluster = Overtaken([node("n1"), node("n2")])
    cluster.deletes = deletes
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.put_pod(pod("a"))
        await harness.clock.advance(0)
        await asyncio.sleep(0.1)
        await harness.clock.advance(300)
    assert cluster.bind_calls == {"default/a": 1}
    assert str(harness.outcome("a")).startswith("failed: 40")
    assert harness.events("a") == []
    assert sum(harness.cpu_requested().values()) == (0 if deletes else 500)


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("409: etcdserver: request timed out"),
        NotFoundError("404: no such page, says a proxy"),
        UnavailableError("500: internal error"),
        ClusterError("410: gone"),
    ],
)
async def test_a_pod_that_the_watch_shows_as_pending_stays_in_the_queue(
    error: ClusterError,
) -> None:
    cluster = CountingCluster([node("n1")])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.fail_next_bind(error)
        cluster.put_pod(pod("a"))
        await harness.clock.advance(0.9)
        assert (cluster.bind_calls, harness.cpu_requested()) == ({"default/a": 1}, {"n1": 0})
        await harness.clock.advance(0.2)
    assert cluster.bound == {"default/a": 1}
    assert harness.outcome("a") == "bound"


async def test_while_the_api_server_is_unavailable_a_pod_is_retried_and_bound_once() -> None:
    cluster = CountingCluster([node("n1")])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        for _ in range(3):
            cluster.fail_next_bind(UnavailableError("503: try again"))
        cluster.put_pod(pod("a"))
        attempts = []
        for moment_s in (0.9, 0.2, 1.8, 0.2, 3.8, 0.2, 100):  # 1, 2 and 4 s of back-off
            await harness.clock.advance(moment_s)
            attempts.append(cluster.bind_calls["default/a"])
    assert attempts == [1, 2, 2, 3, 3, 4, 4]
    assert cluster.bound == {"default/a": 1}
    assert harness.outcome("a") == "bound"
    assert [event.reason for event in harness.events("a")] == ["FailedBinding", "Scheduled"]
    assert harness.cpu_requested() == {"n1": 500}


@pytest.mark.parametrize("error", [InvalidError("400: bad"), InvalidError("422: invalid")])
async def test_a_rejected_binding_has_an_event_and_is_retried_late(error: ClusterError) -> None:
    cluster = CountingCluster([node("n1")])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.fail_next_bind(error)
        cluster.put_pod(pod("a"))
        await harness.clock.advance(59)
        assert cluster.bind_calls == {"default/a": 1}
        assert harness.events("a") == [Event("Warning", "FailedBinding", str(error))]
        assert harness.cpu_requested() == {"n1": 0}
        await harness.clock.advance(2)
    assert harness.where() == {"a": "n1"}


async def test_a_forbidden_binding_is_retried_soon() -> None:
    cluster = CountingCluster([node("n1")])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.fail_next_bind(ForbiddenError("403: no role of that name"))
        cluster.put_pod(pod("a"))
        await harness.clock.advance(1)
    assert cluster.bound == {"default/a": 1}


async def test_a_lost_answer_causes_no_second_binding_and_counts_once() -> None:
    cluster = CountingCluster([node("n1"), node("n2")])
    cluster.lost_answers.append(UnavailableError("connection lost"))
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.put_pod(pod("a"))
        await harness.clock.advance(300)
    assert cluster.bind_calls == cluster.bound == {"default/a": 1}
    assert harness.outcome("a") == "bound"
    assert sorted(harness.cpu_requested().values()) == [0, 500]


async def test_the_watch_may_show_a_binding_before_its_lost_answer() -> None:
    class SlowAnswer(CountingCluster):
        async def bind(self, pod: Pod, node: str) -> None:
            await super().bind(pod, node)
            for _ in range(10):
                await asyncio.sleep(0)
            raise UnavailableError("connection lost")

    harness = SchedulerHarness(SlowAnswer([node("n1"), node("n2")], [pod("a")]))
    async with harness.running():
        await harness.clock.advance(300)
    assert harness.cluster.bind_calls == {"default/a": 1}
    assert harness.outcome("a") == "bound"
    assert sorted(harness.cpu_requested().values()) == [0, 500]


async def test_an_unexpected_error_costs_only_one_attempt(caplog: pytest.LogCaptureFixture) -> None:
    class Careless(CountingCluster):
        async def bind(self, pod: Pod, node: str) -> None:
            if not self.bind_calls[pod.key]:
                self.bind_calls[pod.key] += 1
                raise RuntimeError("a bug in the adapter")
            await super().bind(pod, node)

    harness = SchedulerHarness(Careless([node("n1")], [pod("a"), pod("b")]))
    async with harness.running() as task:
        await harness.clock.advance(1)
        assert not task.done()
        assert harness.cpu_requested() == {"n1": 1000}
    assert harness.cluster.bound == {"default/a": 1, "default/b": 1}
    assert "a bug in the adapter" in caplog.text


class _Fragile(KubeDefault):
    """Raises for one pod, as a strategy with a bug would."""

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        if pod.name == "cursed":
            raise ZeroDivisionError("a bug in the strategy")
        return KubeDefault().score(view, pod, candidates)


async def test_one_pod_that_breaks_the_strategy_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = SchedulerHarness(
        CountingCluster([node("n1")], [pod("cursed"), pod("a")]), strategy=_Fragile()
    )
    async with harness.running() as task:
        await harness.clock.advance(5)
        harness.cluster.put_pod(pod("b"))
        await harness.clock.advance(5)
        assert not task.done()
    assert harness.where() == {"cursed": None, "a": "n1", "b": "n1"}
    # Tried at 0, 1, 3 and 7 s: it backs off as others do.
    assert caplog.text.count("placing default/cursed failed") == 4


# Pods that can't be placed now.


async def test_an_unreadable_annotation_is_reported_and_the_pod_stays_pending() -> None:
    bad = replace(
        read_pod(manifest("bad", annotations={"data-mb": "a lot"}, schedulerName="leadline")),
        uid="uid-bad",
    )
    harness = SchedulerHarness(CountingCluster([node("n1")], [bad]))
    async with harness.running():
        await harness.clock.advance(1)
        (event,) = harness.events("bad")
        assert (event.type, event.reason) == ("Warning", "FailedScheduling")
        assert "leadline.dev/data-mb" in event.message
        assert harness.where() == {"bad": None}
        assert harness.cluster.bind_calls == {}
        harness.cluster.put_pod(replace(bad, problem=None))
        await harness.clock.advance(1)
    assert harness.where() == {"bad": "n1"}


async def test_a_pod_with_excessive_demands_is_reported_and_not_retried() -> None:
    large = large_manifest("spread constraints")
    large["spec"]["schedulerName"] = "leadline"
    cluster = CountingCluster([node("n1")], [read_pod(large)])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(30)
        cluster.put_node(node("n2"))  # news that wakes the pods that it may help
        await harness.clock.advance(29)
    (event,) = harness.events("large")
    assert (event.reason, event.message) == (
        "FailedScheduling",
        "the pod has more than 500 affinity terms, spread constraints, label expressions, "
        "tolerations and resources, more than Leadline evaluates",
    )
    (recorded,) = cluster.events
    assert recorded.count == 1, "it is tried again after a minute"


async def test_an_unschedulable_pod_has_an_event_and_is_retried_when_resources_are_freed() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1", cpu=1000)], [pod("big", cpu=900)]))
    async with harness.running():
        await harness.clock.advance(5)
        harness.cluster.put_pod(waiting := pod("waiting", cpu=800))
        await harness.clock.advance(5)
        (event,) = harness.events("waiting")
        assert (event.type, event.reason) == ("Warning", "FailedScheduling")
        assert event.message == "0 of 1 nodes fit: 1 NodeResourcesFit"
        harness.cluster.remove_pod("default/big")
        await harness.clock.advance(0)
    assert harness.where() == {waiting.name: "n1"}


@pytest.mark.parametrize("how", ["uncordoned", "new node", "finished pod"])
async def test_an_event_that_may_free_resources_retries_unschedulable_pods(how: str) -> None:
    cordoned = node("n1", unschedulable=True)
    full = node("full", cpu=500)
    cluster = CountingCluster([cordoned, full], [pod("old", node_name="full"), pod("a")])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(5)
        assert harness.where()["a"] is None
        if how == "uncordoned":
            cluster.put_node(replace(cordoned, unschedulable=False))
        elif how == "new node":
            cluster.put_node(node("n1"))
        else:
            cluster.put_pod(pod("old", node_name="full", finished=True))
        await harness.clock.advance(0)
    assert harness.where()["a"] == ("full" if how == "finished pod" else "n1")


async def test_an_unschedulable_pod_is_retried_each_minute_without_any_event() -> None:
    """A measured value may have changed, and the cluster has no event for it."""
    harness = SchedulerHarness(CountingCluster([], [pod("a")]))
    async with harness.running():
        await harness.clock.advance(200)
    (seen,) = harness.cluster.events
    assert seen.event == Event("Warning", "FailedScheduling", "no nodes are known")
    assert seen.count == 4


async def test_events_that_cant_be_written_do_not_stop_scheduling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a"), pod("b", cpu=9000)]))
    for _ in range(2):
        harness.cluster.fail_next_event(UnavailableError("503: no room for events"))
    with caplog.at_level(logging.WARNING):
        async with harness.running():
            await harness.clock.advance(1)
            assert harness.cpu_requested() == {"n1": 500}
    assert harness.where() == {"a": "n1", "b": None}
    assert caplog.text.count("503: no room for events") == 2


async def test_long_messages_are_cut_to_what_the_api_server_takes() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a", problem="x" * 5000)]))
    async with harness.running():
        await harness.clock.advance(1)
    (event,) = harness.events("a")
    assert len(event.message) == 1024


# Changes in between.


async def test_a_pod_deleted_from_the_queue_is_not_bound() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")]))
    async with harness.running():
        harness.cluster.put_pod(pod("a"))
        harness.cluster.remove_pod("default/a")
        await harness.clock.advance(100)
    assert harness.cluster.bind_calls == {}
    assert harness.cpu_requested() == {"n1": 0}


async def test_a_pod_deleted_while_it_is_being_bound_takes_no_resources() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a")]))
    harness.cluster.gate.clear()
    async with harness.running():
        assert harness.cpu_requested() == {"n1": 500}
        harness.cluster.remove_pod("default/a")
        await harness.clock.advance(0)
        assert harness.cpu_requested() == {"n1": 0}
        harness.cluster.gate.set()
        await harness.clock.advance(100)
        assert harness.cpu_requested() == {"n1": 0}
    assert harness.cluster.bind_calls == {"default/a": 1}


async def test_a_pod_recreated_with_the_same_name_is_another_pod() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a")]))
    harness.cluster.gate.clear()
    async with harness.running():
        harness.cluster.remove_pod("default/a")
        harness.cluster.put_pod(replace(pod("a"), uid="second"))
        await harness.clock.advance(0)
        harness.cluster.gate.set()
        await harness.clock.advance(10)
        assert harness.cpu_requested() == {"n1": 500}
    assert harness.cluster.pod("default/a").uid == "second"
    assert harness.cluster.bound == {"default/a": 1}


async def test_a_pod_that_changed_while_its_binding_failed_is_retried_in_its_new_version() -> None:
    harness = SchedulerHarness(
        CountingCluster([node("big", cpu=4000), node("small", cpu=600)], [pod("a")])
    )
    harness.cluster.fail_next_bind(UnavailableError("503"))
    harness.cluster.gate.clear()
    async with harness.running():
        harness.cluster.put_pod(pod("a", cpu=500, node_selector={"only": "small"}))
        harness.cluster.put_node(node("small", cpu=600, labels={"only": "small"}))
        await harness.clock.advance(0)
        harness.cluster.gate.set()
        await harness.clock.advance(5)
    assert harness.where() == {"a": "small"}


async def test_a_relist_during_bindings_counts_nothing_twice() -> None:
    nodes = [node("n1", cpu=1000), node("n2", cpu=1000)]
    harness = SchedulerHarness(CountingCluster(nodes, [pod("a"), pod("b"), pod("c")]))
    harness.cluster.gate.clear()
    async with harness.running():
        harness.cluster.relist()
        harness.cluster.put_pod(pod("d"))
        harness.cluster.put_pod(pod("e"))
        await harness.clock.advance(0)
        assert harness.cpu_requested() == {"n1": 1000, "n2": 1000}
        harness.cluster.gate.set()
        await harness.clock.advance(5)
        harness.cluster.relist()
        await harness.clock.advance(5)
        assert harness.cpu_requested() == {"n1": 1000, "n2": 1000}
    assert harness.cluster.bind_calls == harness.cluster.bound
    assert sum(harness.cluster.bound.values()) == 4
    assert harness.where()["e"] is None


@pytest.mark.parametrize("how", ["deleted", "missing in a list"])
async def test_a_deleted_pod_without_a_node_is_no_longer_pending(how: str) -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a", cpu=90_000)]))
    async with harness.running():
        assert harness.outcome("a") == "pending"
        if how == "deleted":
            harness.cluster.remove_pod("default/a")
        else:
            harness.cluster.lose_pod("default/a")
            harness.cluster.relist()
        await harness.clock.advance(0)
        assert harness.outcome("a") == "gone"


# Beginning and ending.


@pytest.mark.parametrize("seed", range(8))
async def test_with_repeated_restarts_every_pod_is_bound_once(seed: int) -> None:
    random = Random(seed)
    nodes = [node(f"n{i}", cpu=16000) for i in range(4)]
    cluster = CountingCluster(nodes, [pod(f"p{i:02}", cpu=100) for i in range(40)])
    for life in range(6):
        harness = SchedulerHarness(cluster)
        async with harness.running():
            if random.random() < 0.7:
                cluster.gate.clear()
            for _ in range(random.randrange(4)):
                cluster.put_pod(pod(f"late-{life}-{random.random()}", cpu=100))
                if random.random() < 0.5:
                    cluster.fail_next_bind(UnavailableError("503"))
                if random.random() < 0.2:
                    cluster.lost_answers.append(UnavailableError("answer lost"))
                for _ in range(random.randrange(60)):
                    await asyncio.sleep(0)
    last = SchedulerHarness(cluster)
    async with last.running():
        await last.clock.advance(60)
        assert all(last.where().values())
        truth = Counter(dict.fromkeys(last.cpu_requested(), 0))
        truth.update({n: sum(100 for w in last.where().values() if w == n) for n in truth})
        assert last.cpu_requested() == truth
    assert set(cluster.bound.values()) == {1}


async def test_a_cancelled_scheduler_finishes_the_bindings_in_progress() -> None:
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a"), pod("b")]))
    harness.cluster.gate.clear()
    async with harness.running() as task:
        assert len(harness.cluster.bind_calls) == 2
        task.cancel()
        await harness.clock.advance(0)
        assert not task.done()
        harness.cluster.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert harness.where() == {"a": "n1", "b": "n1"}
    assert [event.reason for event in harness.events("a")] == ["Scheduled"]


async def test_the_first_decision_waits_for_the_metrics_of_the_ready_nodes() -> None:
    nodes = [node("n1"), node("down", ready=False), node("shut", unschedulable=True)]
    harness = SchedulerHarness(CountingCluster(nodes, [pod("a")]), warm_up_s=10.0)
    async with harness.running():
        await harness.clock.advance(4)
        assert harness.cluster.bind_calls == {}
        builder = TelemetryBuilder()
        builder.state = harness.telemetry
        builder.state.birth(Agent("n1"), builder.stamp("n1"))
        stamp = builder.stamp("n1", measured_s=4.0)
        builder.state.report("n1", stamp, BoardReading({"cpu_percent": 1.0}))
        await harness.clock.advance(1)
    assert harness.where() == {"a": "n1"}


async def test_the_wait_for_metrics_is_bounded() -> None:
    harness = SchedulerHarness(
        CountingCluster([node("n1"), node("n2")], [pod("a")]), warm_up_s=10.0
    )
    async with harness.running():
        await harness.clock.advance(9)
        assert harness.cluster.bind_calls == {}
        await harness.clock.advance(2)
    assert harness.cluster.bound == {"default/a": 1}


async def test_a_run_ends_after_a_second_without_decisions() -> None:
    """DACS' zeta counts the pods that one run of decisions has placed."""
    harness = SchedulerHarness(CountingCluster([node("n1")], [pod("a"), pod("b")]))
    async with harness.running():
        view = harness.state.view(harness.telemetry, 0.0)
        assert view.placed_in_run.tolist() == [2]
        await harness.clock.advance(5)
        harness.cluster.put_pod(pod("c"))
        await harness.clock.advance(0)
        view = harness.state.view(harness.telemetry, 5.0)
        assert view.placed_in_run.tolist() == [1]


async def test_the_same_seed_gives_the_same_placements() -> None:
    async def placed() -> dict[str, str | None]:
        nodes = [node(f"n{i}") for i in range(6)]
        harness = SchedulerHarness(CountingCluster(nodes, [pod(f"p{i}") for i in range(20)]))
        async with harness.running():
            await harness.clock.advance(1)
        return harness.where()

    first = await placed()
    assert first == await placed()
    assert all(first.values())
