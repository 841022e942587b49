"""When events are written: in the gaps between bindings, or once they waited long enough."""

import asyncio
from collections.abc import Iterable

import pytest
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import Event
from leadline_controller.framework.view import ClusterView
from leadline_controller.scheduling import event_recorder
from leadline_controller.scheduling.event_recorder import OVERDUE_S, EventRecorder

from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

MAX_WRITES = 4
DECISION_S = 0.1


def event(message: str = "why") -> Event:
    return Event("Normal", "Scheduled", message)


class WrittenEvents(MemoryCluster):
    """A cluster that notes each event, repeated ones as well."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, Event]] = []

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        self.written.append((about.name, event))


def recorder(clock: ManualClock, cluster: MemoryCluster) -> EventRecorder:
    return EventRecorder(cluster, clock, lambda: None)


# The queue.


async def test_the_oldest_event_is_written_first() -> None:
    cluster = WrittenEvents()
    events = recorder(ManualClock(), cluster)
    for name in ("a", "b", "a"):
        events.put(pod(name), event(f"about {name}"))
    await events.flush(lambda: True)
    written = [(name, event.message) for name, event in cluster.written]
    assert written == [("a", "about a"), ("b", "about b"), ("a", "about a")]
    events.write()
    await asyncio.sleep(0)
    assert len(cluster.written) == 3


async def test_it_is_overdue_when_the_oldest_event_has_waited_for_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert OVERDUE_S == 5.0
    monkeypatch.setattr(event_recorder, "_MAX_WRITES", 1)
    clock = ManualClock()
    events = recorder(clock, WrittenEvents())
    events.put(pod("a"), event())
    await clock.advance(2.0)
    events.put(pod("b"), event())
    for left_s in (3.0, 2.0):
        await clock.advance(left_s - 0.001)
        assert not events.is_overdue()
        await clock.advance(0.001)
        assert events.is_overdue()
        events.write()
        await asyncio.sleep(0)
        assert not events.is_overdue()
    await clock.advance(1e9)
    assert not events.is_overdue()


async def test_past_the_limit_the_oldest_events_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_recorder, "_MAX_QUEUED", 50)
    cluster = WrittenEvents()
    events = recorder(ManualClock(), cluster)
    names = [f"p{i}" for i in range(event_recorder._MAX_QUEUED + 3)]
    for name in names:
        events.put(pod(name), event())
    await events.flush(lambda: True)
    assert [name for name, _ in cluster.written] == names[3:]


@pytest.mark.parametrize(("length", "kept"), [(10, 10), (1024, 1024), (1025, 1024)])
async def test_a_message_is_cut_to_what_the_api_server_takes(length: int, kept: int) -> None:
    cluster = WrittenEvents()
    events = recorder(ManualClock(), cluster)
    events.put(pod("a"), event("x" * length))
    await events.flush(lambda: True)
    assert cluster.written == [("a", event("x" * kept))]


# When the scheduler writes.


class BusyClock(ManualClock):
    """A clock that also moves while the scheduler decides."""

    decided_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.decided_s


class EventCluster(CountingCluster):
    """Notes bindings and events in their order, and can be slow to take events."""

    def __init__(self, clock: ManualClock, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        super().__init__(nodes, pods)
        self.clock = clock
        self.done: list[str] = []
        self.bound_s: dict[str, float] = {}
        self.event_s: dict[str, float] = {}
        self.takes_events = asyncio.Event()
        self.takes_events.set()
        self.writing = self.most = 0

    async def bind(self, pod: Pod, node: str) -> None:
        await super().bind(pod, node)
        self.done.append("bind")
        self.bound_s[pod.name] = self.clock.now_s()

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        self.done.append("event")
        self.event_s[about.name] = self.clock.now_s()
        self.writing += 1
        self.most = max(self.most, self.writing)
        try:
            await self.takes_events.wait()
            await super().record_event(about, event)
        finally:
            self.writing -= 1

    def with_events(self) -> set[str]:
        return {seen.about.name for seen in self.events}


def slow_stage(clock: BusyClock, pods: int) -> tuple[EventCluster, SchedulerHarness]:
    """Every decision takes a tenth of a second."""

    def slow_filter(view: ClusterView, _: Pod) -> FilterResult:
        clock.decided_s += DECISION_S
        return FilterResult.all_pass(view)

    cluster = EventCluster(clock, [node("n1", cpu=10**6, pods=1000)])
    for i in range(pods):
        cluster.put_pod(pod(f"p{i:03}"))
    return cluster, SchedulerHarness(cluster, clock=clock, filters={"Slow": slow_filter})


async def let_it_run(harness: SchedulerHarness) -> None:
    for _ in range(20):
        await harness.clock.advance(0)


async def test_no_pod_waits_for_a_node_while_events_on_others_are_written() -> None:
    cluster, harness = slow_stage(BusyClock(), 40)  # four seconds of decisions
    async with harness.running():
        await let_it_run(harness)
    assert cluster.done == ["bind"] * 40 + ["event"] * 40
    assert len(cluster.with_events()) == 40


async def test_while_pods_are_pending_an_event_waits_five_seconds_and_no_more() -> None:
    cluster, harness = slow_stage(BusyClock(), 300)
    async with harness.running():
        await let_it_run(harness)
    assert "event" in cluster.done[: cluster.done.index("bind", 100)]
    waited_s = [cluster.event_s[name] - at_s for name, at_s in cluster.bound_s.items()]
    assert (
        min(waited_s[:100]) >= OVERDUE_S - MAX_WRITES * DECISION_S
    )  # up to four are written with the overdue one
    assert max(waited_s) <= OVERDUE_S + 3 * DECISION_S
    assert len(cluster.with_events()) == 300


async def test_four_events_are_written_at_once() -> None:
    cluster = EventCluster(
        ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)]
    )
    harness = SchedulerHarness(cluster)
    cluster.takes_events.clear()
    async with harness.running():
        await let_it_run(harness)
        assert (cluster.writing, len(cluster.bound)) == (MAX_WRITES, 10)
        cluster.takes_events.set()
        await let_it_run(harness)
        assert len(cluster.with_events()) == 10
    assert cluster.most == MAX_WRITES


async def test_a_slow_api_server_delays_no_binding() -> None:
    cluster = EventCluster(
        ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)]
    )
    harness = SchedulerHarness(cluster)
    cluster.takes_events.clear()
    async with harness.running():
        await let_it_run(harness)
        cluster.put_pod(pod("late"))
        await harness.clock.advance(2 * OVERDUE_S)
        assert cluster.bound["default/late"] == 1
        assert cluster.with_events() == set()
        cluster.takes_events.set()


# At the end.


async def test_the_scheduler_writes_the_remaining_events_before_it_ends() -> None:
    cluster, harness = slow_stage(BusyClock(), 30)
    cluster.takes_events.clear()
    async with harness.running() as task:
        await let_it_run(harness)
        task.cancel()
        await harness.clock.advance(0)
        assert not task.done()
        cluster.takes_events.set()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
    assert len(cluster.with_events()) == 30
    assert cluster.most == MAX_WRITES


async def test_it_does_not_wait_for_ever_to_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert event_recorder._FLUSH_S == 3.0
    monkeypatch.setattr(event_recorder, "_FLUSH_S", 0.02)
    cluster = EventCluster(
        ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)]
    )
    harness = SchedulerHarness(cluster)
    cluster.takes_events.clear()
    async with harness.running() as task:
        await let_it_run(harness)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
    assert (cluster.with_events(), cluster.writing) == (set(), 0)
    assert len(cluster.event_s) == MAX_WRITES


class LostLease:
    """The Lease, which another controller takes."""

    def __init__(self) -> None:
        self.held = True

    def leads(self) -> bool:
        return self.held

    def left_s(self) -> float:
        return 10.0

    def holder(self) -> str:
        return "another"

    async def wait(self) -> None:
        await asyncio.Event().wait()


async def test_without_the_lease_it_writes_no_more_events() -> None:
    lease = LostLease()
    cluster = EventCluster(
        ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)]
    )
    harness = SchedulerHarness(cluster, leadership=lease)
    cluster.takes_events.clear()
    async with harness.running() as task:
        await let_it_run(harness)
        lease.held = False
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
    assert cluster.with_events() == set()
    assert len(cluster.event_s) == MAX_WRITES
