"""Preemption while pods come and go, nodes are cordoned, requests fail, and controllers are killed
in the middle of them. What must hold is computed here from the cluster's pods alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from random import Random

import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import CPU, Node, Pod
from leadline_controller.framework.ports import ClusterChange, UnavailableError

from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod
from tests.support.manual_clock import ManualClock

# It computes for long, as simulated networks do.
pytestmark = pytest.mark.experiment

SEEDS = range(8)
STEPS = 60
NODES = 4
CORES = 4000
PRIORITIES = (0, 0, 0, 50, 100, 200)


class Arena(CountingCluster):
    """A cluster whose answers take a while and now and then are lost. state: of the controller that
    runs, with which each eviction is judged. wrong: what must not be."""

    def __init__(self, random: Random) -> None:
        super().__init__([node(f"n{i}", cpu=CORES) for i in range(NODES)])
        self.random = random
        self.state: ClusterState | None = None
        self.preempted: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.is_calm = False

    async def _pass_time(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 3, 10))):
            await asyncio.sleep(0)

    def _lose(self) -> None:
        if not self.is_calm and self.random.random() < 0.1:
            raise UnavailableError("503: no answer")

    async def watch(self) -> AsyncGenerator[ClusterChange, None]:
        async for change in super().watch():
            await self._pass_time()
            yield change

    async def bind(self, pod: Pod, node: str) -> None:
        await self._pass_time()
        await super().bind(pod, node)

    async def nominate(self, pod: Pod, node: str | None) -> None:
        await self._pass_time()
        self._lose()
        await super().nominate(pod, node)
        await self._pass_time()
        self._lose()

    async def preempt(self, pod: Pod, message: str) -> None:
        self._judge(pod, message)
        await self._pass_time()
        self._lose()
        if pod.key in self._pods and self._pods[pod.key].terminating:
            self.wrong.append(f"{pod.name} is evicted though it ends")
        await super().preempt(pod, message)
        self.preempted[pod.uid] += 1
        await self._pass_time()
        self._lose()

    def _judge(self, victim: Pod, message: str) -> None:
        assert self.state is not None
        by = message.split("room for default/")[1].split(" ")[0]
        found = [each for each in self.state.pods() if each[0].name == by]
        if not found or found[0][1] is not None or not found[0][0].is_pending:
            self.wrong.append(f"{by} evicts {victim.name} and is on a node, or gone")
            return
        preemptor = found[0][0]
        if victim.priority >= preemptor.priority:
            self.wrong.append(f"{by} evicts {victim.name}, which is as important")
        for each in self.state.nodes().values():
            if not each.unschedulable and self._free(each, preemptor) >= preemptor.requests[CPU]:
                self.wrong.append(f"{by} evicts {victim.name} and fits {each.name}")

    def _free(self, node: Node, preemptor: Pod) -> int:
        """The CPU left for the preemptor when all pods that are ending are gone."""
        assert self.state is not None
        used = 0
        nominated = {each.uid: on for each, on in self.state.nominated()}
        for each, on in self.state.pods():
            if on == node.name and not (each.terminating or self.preempted[each.uid]):
                used += each.requests[CPU]
            elif nominated.get(each.uid) == node.name and each.uid != preemptor.uid:
                used += each.requests[CPU] if each.priority >= preemptor.priority else 0
        return node.allocatable[CPU] - used

    def act(self, number: int) -> None:
        """Something happens."""
        random, pods = self.random, list(self.pods)
        match random.choice(("add", "add", "add", "add", "delete", "end", "cordon", "uncordon")):
            case "add":
                cpu, priority = random.choice((500, 1000, 2000, 3000)), random.choice(PRIORITIES)
                self.put_pod(pod(f"p{number}", cpu, priority=priority))
            case "delete" if pods:
                self.remove_pod(random.choice(pods).key)
            case "end":
                self.end(0.5)
            case "cordon" | "uncordon" as what:
                name = f"n{random.randrange(NODES)}"
                self.put_node(node(name, cpu=CORES, unschedulable=what == "cordon"))

    def end(self, share: float) -> None:
        """Some pods that are terminating end."""
        for each in self.pods:
            if each.terminating and self.random.random() < share:
                self.remove_pod(each.key)


async def run(arena: Arena, clock: ManualClock, steps: range) -> None:
    """One controller's time, which ends in the middle of whatever it does."""
    harness = SchedulerHarness(arena, preemption=True, clock=clock)
    arena.state = harness.state
    task = asyncio.create_task(harness.scheduler.run())
    try:
        for number in steps:
            arena.act(number)
            for _ in range(arena.random.choice((0, 1, 5, 20))):
                await asyncio.sleep(0)
            if arena.random.random() < 0.4:
                await clock.advance(arena.random.choice((0.0, 1.0, 2.0)))
    finally:
        # A killed process finishes nothing.
        for each in (task, *harness.scheduler._tasks):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("seed", SEEDS)
async def test_nobody_is_evicted_in_vain_or_twice(seed: int) -> None:
    arena, clock = Arena(Random(seed)), ManualClock()
    ends = sorted(arena.random.sample(range(1, STEPS), 3))
    for begin, end in zip((0, *ends), (*ends, STEPS), strict=True):
        await run(arena, clock, range(begin, end))
    assert arena.wrong == []
    assert set(arena.preempted.values()) <= {1}


@pytest.mark.parametrize("seed", SEEDS)
async def test_when_all_is_calm_no_pod_waits_that_could_run(seed: int) -> None:
    arena, clock = Arena(Random(f"calm {seed}")), ManualClock()
    await run(arena, clock, range(STEPS))
    arena.is_calm = True
    harness = SchedulerHarness(arena, preemption=True, clock=clock)
    arena.state = harness.state
    async with harness.running():
        for number in range(NODES):
            arena.put_node(node(f"n{number}", cpu=CORES))
        for _ in range(30):
            await clock.advance(30)
            arena.end(1.0)
    assert arena.wrong == []
    for waiting in (each for each in arena.pods if each.node_name is None):
        for each in arena.nodes:
            stays = [
                one.requests[CPU]
                for one in arena.pods
                if one.node_name == each.name and one.priority >= waiting.priority
            ]
            assert sum(stays) + waiting.requests[CPU] > CORES, (waiting.name, each.name)
    assert not [each for each in arena.pods if each.node_name is None and each.nominated_node]


def test_the_seeds_preempt_often() -> None:
    async def count() -> int:
        total = 0
        for seed in SEEDS:
            arena = Arena(Random(seed))
            await run(arena, ManualClock(), range(STEPS))
            total += sum(arena.preempted.values())
        return total

    assert asyncio.run(count()) >= len(SEEDS)
