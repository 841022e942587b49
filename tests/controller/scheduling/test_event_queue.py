"""When events are written: in the gaps between bindings, or once they waited long enough."""

import asyncio
from collections.abc import Iterable

import pytest
from leadline_controller.framework.cycle import FilterResult
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import PodEvent
from leadline_controller.framework.view import ClusterView
from leadline_controller.scheduling import event_queue as event_queue
from leadline_controller.scheduling import scheduler
from leadline_controller.scheduling.event_queue import LONGEST_HELD_S, EventQueue
from leadline_controller.snapshot.manual_clock import ManualClock

from tests.controller.scheduling.harness import CountingCluster, Stage, node, pod

AT_ONCE = 4
THOUGHT_S = 0.1


def event(message: str = "why") -> PodEvent:
    return PodEvent("Normal", "Scheduled", message)


def waiting(*names: str, at_s: float = 0.0) -> EventQueue:
    held = EventQueue()
    for name in names:
        held.put(pod(name), event(f"about {name}"), at_s)
    return held


# What is held.


def test_the_first_that_came_up_is_said_first() -> None:
    held = waiting("a", "b", "a")
    said = []
    while held:
        about, what = held.pop()
        said.append((about.name, what.message))
    assert said == [("a", "about a"), ("b", "about b"), ("a", "about a")]
    with pytest.raises(IndexError):
        held.pop()


def test_it_is_overdue_when_the_first_one_waited_five_seconds() -> None:
    held = waiting("a", at_s=10.0)
    held.put(pod("b"), event(), 12.0)
    assert not held.is_overdue(10.0 + LONGEST_HELD_S - 0.001)
    assert held.is_overdue(10.0 + LONGEST_HELD_S)
    held.pop()
    assert not held.is_overdue(12.0 + LONGEST_HELD_S - 0.001)
    assert held.is_overdue(12.0 + LONGEST_HELD_S)
    held.pop()
    assert not held.is_overdue(1e9)


def test_what_is_too_much_to_hold_costs_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p{i}" for i in range(event_queue._MOST + 3)]
    held = waiting(*names)
    kept = []
    while held:
        kept.append(held.pop()[0].name)
    assert kept == names[3:]


@pytest.mark.parametrize(("length", "kept"), [(10, 10), (1024, 1024), (1025, 1024)])
def test_a_message_is_cut_to_what_the_api_server_takes(length: int, kept: int) -> None:
    held = EventQueue()
    held.put(pod("a"), event("x" * length), 0.0)
    said = held.pop()[1]
    assert (said.type, said.reason, said.message) == ("Normal", "Scheduled", "x" * kept)


# When it is said.


class Busy(ManualClock):
    """A clock that also moves while somebody thinks."""

    thought_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.thought_s


class Hearing(CountingCluster):
    """Keeps what is done in its order, and can be slow to take events."""

    def __init__(self, clock: ManualClock, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> None:
        super().__init__(nodes, pods)
        self.clock = clock
        self.done: list[str] = []
        self.bound_s: dict[str, float] = {}
        self.begun_s: dict[str, float] = {}
        self.ear = asyncio.Event()
        self.ear.set()
        self.listening = self.most = 0

    async def bind(self, pod: Pod, node: str) -> None:
        await super().bind(pod, node)
        self.done.append("bind")
        self.bound_s[pod.name] = self.clock.now_s()

    async def record_event(self, pod: Pod, event: PodEvent) -> None:
        self.done.append("event")
        self.begun_s[pod.name] = self.clock.now_s()
        self.listening += 1
        self.most = max(self.most, self.listening)
        try:
            await self.ear.wait()
            await super().record_event(pod, event)
        finally:
            self.listening -= 1

    def told(self) -> set[str]:
        return {seen.pod.name for seen in self.events}


def thoughtful(clock: Busy, pods: int) -> tuple[Hearing, Stage]:
    """Every decision takes a tenth of a second."""

    def think(view: ClusterView, _: Pod) -> FilterResult:
        clock.thought_s += THOUGHT_S
        return FilterResult.everywhere(view)

    cluster = Hearing(clock, [node("n1", cpu=10**6, pods=1000)])
    for i in range(pods):
        cluster.put_pod(pod(f"p{i:03}"))
    return cluster, Stage(cluster, clock=clock, filters={"Slow": think})


async def settled(stage: Stage) -> None:
    for _ in range(20):
        await stage.clock.advance(0)


async def test_nobody_waits_for_a_node_while_events_on_others_are_written() -> None:
    cluster, stage = thoughtful(Busy(), 40)  # four seconds of decisions
    async with stage.running():
        await settled(stage)
    assert cluster.done == ["bind"] * 40 + ["event"] * 40
    assert len(cluster.told()) == 40


async def test_without_a_gap_an_event_waits_five_seconds_and_no_more() -> None:
    cluster, stage = thoughtful(Busy(), 300)
    async with stage.running():
        await settled(stage)
    assert "event" in cluster.done[: cluster.done.index("bind", 100)]
    held_s = [cluster.begun_s[name] - at_s for name, at_s in cluster.bound_s.items()]
    assert min(held_s[:100]) >= LONGEST_HELD_S - AT_ONCE * THOUGHT_S  # those that are said with it
    assert max(held_s) <= LONGEST_HELD_S + 3 * THOUGHT_S
    assert len(cluster.told()) == 300


async def test_four_are_written_at_once() -> None:
    cluster = Hearing(ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)])
    stage = Stage(cluster)
    cluster.ear.clear()
    async with stage.running():
        await settled(stage)
        assert (cluster.listening, len(cluster.bound)) == (AT_ONCE, 10)
        cluster.ear.set()
        await settled(stage)
        assert len(cluster.told()) == 10
    assert cluster.most == AT_ONCE


async def test_a_slow_ear_keeps_no_pod_from_its_node() -> None:
    cluster = Hearing(ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)])
    stage = Stage(cluster)
    cluster.ear.clear()
    async with stage.running():
        await settled(stage)
        cluster.put_pod(pod("late"))
        await stage.clock.advance(2 * LONGEST_HELD_S)
        assert cluster.bound["default/late"] == 1
        assert cluster.told() == set()
        cluster.ear.set()


# At the end.


async def test_what_is_left_is_said_before_it_ends() -> None:
    cluster, stage = thoughtful(Busy(), 30)
    cluster.ear.clear()
    async with stage.running() as task:
        await settled(stage)
        task.cancel()
        await stage.clock.advance(0)
        assert not task.done()
        cluster.ear.set()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
    assert len(cluster.told()) == 30
    assert cluster.most == AT_ONCE


async def test_but_nobody_waits_for_ever_to_be_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scheduler._LAST_WORDS_S == 3.0
    monkeypatch.setattr(scheduler, "_LAST_WORDS_S", 0.02)
    cluster = Hearing(ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)])
    stage = Stage(cluster)
    cluster.ear.clear()
    async with stage.running() as task:
        await settled(stage)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
    assert (cluster.told(), cluster.listening) == (set(), 0)
    assert len(cluster.begun_s) == AT_ONCE


class Lost:
    """A Lease that another took."""

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


async def test_who_leads_no_more_has_no_last_words() -> None:
    lease = Lost()
    cluster = Hearing(ManualClock(), [node("n1", cpu=10**6)], [pod(f"p{i}") for i in range(10)])
    stage = Stage(cluster, leadership=lease)
    cluster.ear.clear()
    async with stage.running() as task:
        await settled(stage)
        lease.held = False
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
    assert cluster.told() == set()
    assert len(cluster.begun_s) == AT_ONCE
