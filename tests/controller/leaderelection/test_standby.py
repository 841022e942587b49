"""A scheduler among several, without the Lease and after acquiring it."""

import asyncio

from leadline_controller.framework.ports import NotLeadingError
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.scheduling.scheduler import BINDINGS_AT_ONCE

from tests.controller.leaderelection.electing import running
from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod
from tests.support.manual_clock import ManualClock
from tests.support.memory_lease import MemoryLease


def candidate(
    cluster: CountingCluster, lease: MemoryLease, clock: ManualClock, name: str
) -> SchedulerHarness:
    return SchedulerHarness(cluster, clock=clock, leadership=LeaderElector(lease, name, clock))


def elector(harness: SchedulerHarness) -> LeaderElector:
    assert isinstance(harness.leadership, LeaderElector)
    return harness.leadership


async def test_a_standby_scheduler_watches_and_does_nothing() -> None:
    lease, clock = MemoryLease(), ManualClock()
    lease.overwrite("other", 10)
    cluster = CountingCluster([node("n1"), node("n2")], [pod("a"), pod("huge", cpu=90_000)])
    harness = candidate(cluster, lease, clock, "me")
    async with running(clock, elector(harness)), harness.running():
        cluster.put_pod(pod("theirs", node_name="n2"))
        await clock.advance(9)
        assert cluster.bind_calls == {}
        assert (harness.decisions.get("default/a"), harness.events("huge")) == (None, [])
        assert harness.cpu_requested() == {"n1": 0, "n2": 500}
        await clock.advance(4)
    assert cluster.bound == {"default/a": 1}
    assert [event.reason for event in harness.events("huge")] == ["FailedScheduling"]


async def test_one_of_two_schedulers_binds_and_the_other_takes_over() -> None:
    lease, clock = MemoryLease(), ManualClock()
    cluster = CountingCluster([node("n1")])
    first, second = (candidate(cluster, lease, clock, name) for name in ("a", "b"))
    async with (
        running(clock, elector(first)) as (leading,),
        running(clock, elector(second)),
        first.running(),
        second.running(),
    ):
        for number in range(5):
            cluster.put_pod(pod(f"early-{number}"))
        await clock.advance(5)
        assert first.outcome("early-0") == "bound"
        leading.cancel()
        await clock.advance(0)
        cluster.put_pod(pod("late"))
        await clock.advance(3)
    assert (first.outcome("late"), second.outcome("late")) == (None, "bound")
    assert second.outcome("early-0") is None
    assert cluster.bind_calls == cluster.bound == {pod.key: 1 for pod in cluster.pods}


async def test_a_binding_after_the_fence_closed_is_dropped_without_an_event() -> None:
    """The fence closed between the decision and the request. The next leader schedules the pod,
    or this one when it leads again."""
    cluster = CountingCluster([node("n1")])
    harness = SchedulerHarness(cluster)
    async with harness.running():
        cluster.fail_next_bind(NotLeadingError("this controller is no longer the leader"))
        cluster.put_pod(pod("a"))
        await harness.clock.advance(0)
        assert harness.cpu_requested() == {"n1": 0}
        assert harness.events("a") == []
        assert harness.outcome("a") == "failed: this controller is no longer the leader"
        await harness.clock.advance(2)
    assert cluster.bound == {"default/a": 1}


async def test_no_binding_starts_after_the_renew_deadline() -> None:
    """Hanging bindings fill all slots; slots that are freed after the deadline stay unused."""
    lease, clock = MemoryLease(), ManualClock()
    pods = [pod(f"p{i:03}", cpu=100) for i in range(BINDINGS_AT_ONCE + 8)]
    cluster = CountingCluster([node("n1", cpu=90_000, pods=1000)], pods)
    cluster.gate.clear()
    harness = candidate(cluster, lease, clock, "me")
    async with running(clock, elector(harness)) as (renewing,), harness.running():
        for _ in range(10):
            await clock.advance(0)
        assert len(cluster.bind_calls) == BINDINGS_AT_ONCE
        renewing.cancel()
        await clock.advance(8)
        cluster.gate.set()
        await clock.advance(20)
        assert len(cluster.bind_calls) == BINDINGS_AT_ONCE
        assert len(cluster.bound) == BINDINGS_AT_ONCE
        assert not elector(harness).leads()


async def test_a_standby_scheduler_stops_at_once() -> None:
    lease, clock = MemoryLease(), ManualClock()
    lease.overwrite("other", 1000)
    harness = candidate(CountingCluster([node("n1")], [pod("a")]), lease, clock, "me")
    async with running(clock, elector(harness)), harness.running() as task:
        await clock.advance(30)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
