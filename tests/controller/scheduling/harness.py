"""A running scheduler on a cluster in memory, with a clock that the test moves."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.ports import Event, Leadership
from leadline_controller.history.log import DecisionLog
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster


class CountingCluster(MemoryCluster):
    """Counts calls of bind and successful bindings, and can delay them or lose answers."""

    def __init__(self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        super().__init__(nodes, pods)
        self.bind_calls: Counter[str] = Counter()
        self.bound: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()
        self.lost_answers: list[Exception] = []

    async def bind(self, pod: Pod, node: str) -> None:
        self.bind_calls[pod.key] += 1
        await self.gate.wait()
        await super().bind(pod, node)
        self.bound[pod.key] += 1
        if self.lost_answers:
            raise self.lost_answers.pop()

    def lose_pod(self, key: str) -> None:
        """Remove a pod without telling the watch."""
        del self._pods[key]


class SchedulerHarness:
    """A scheduler with everything that it needs."""

    def __init__(self, cluster: CountingCluster, **options: Any) -> None:
        self.cluster = cluster
        self.clock = options.pop("clock", None) or ManualClock()
        self.telemetry = options.pop("telemetry", None) or TelemetryState(TimesToLive())
        self.state = ClusterState(now_s=self.clock.now_s)
        self.decisions = DecisionLog()
        strategy: Strategy = options.pop("strategy", KubeDefault())
        filters = options.pop("filters", FILTERS)
        self.leadership: Leadership = options.pop("leadership", SOLE_LEADER)
        rule = Rule(strategy, filters, Random(7), options.pop("prefer", None))
        warm_up_s = options.pop("warm_up_s", 0.0)
        self.step = DecisionStep(
            *(self.state, self.telemetry, self.decisions, rule, self.clock, warm_up_s),
            on_decision=options.pop("on_decision", lambda _: None),
        )
        self.phases: list[str] = []
        self.victims: list[int] = []
        self.scheduler = Scheduler(
            cluster,
            self.step,
            self.leadership,
            observe=lambda phase, _s: self.phases.append(phase),
            on_preempted=self.victims.append,
            **options,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(self.scheduler.run())
        try:
            await self.clock.advance(0)
            yield task
        finally:
            self.cluster.gate.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def where(self) -> dict[str, str | None]:
        return {pod.name: pod.node_name for pod in self.cluster.pods}

    def events(self, name: str) -> list[Event]:
        return [seen.event for seen in self.cluster.events if seen.about.name == name]

    def outcome(self, name: str) -> str | None:
        record = self.decisions.get(f"default/{name}")
        return record.outcome if record else None

    def cpu_requested(self) -> dict[str, int]:
        view = self.state.view(self.telemetry, self.clock.now_s())
        return dict(zip(view.table.names, map(int, view.requested_of(CPU)), strict=True))


def node(name: str, cpu: int = 4000, pods: int = 110, **fields: Any) -> Node:
    return Node(name, allocatable={CPU: cpu, MEMORY: 2**33, PODS: pods}, **fields)


def pod(name: str, cpu: int = 500, **fields: Any) -> Pod:
    requests = {CPU: cpu, MEMORY: 2**20, PODS: 1}
    return Pod("default", name, uid=f"uid-{name}", requests=requests, **fields)
