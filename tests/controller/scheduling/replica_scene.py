"""A cluster of which replicas are annotated, and what has been written."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cycle import Rule, Strategy
from leadline_controller.framework.model import CPU, PODS, Node, Pod
from leadline_controller.framework.ports import ClusterError, UnavailableError
from leadline_controller.history.log import DecisionLog
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.replica_order import ReplicaOrder
from leadline_controller.strategies.response_time import ResponseTime

from tests.controller.inspect.harness import FakeLeadership
from tests.controller.keda.scene import PING_MS
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster


class AnnotatedCluster(MemoryCluster):
    """Remembers what was written, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__([Node(name, {CPU: 4000, PODS: 10}) for name in PING_MS])
        self.written: list[tuple[str, dict[str, str | None]]] = []
        self.failing = False
        self.refusals: dict[str, ClusterError] = {}  # by the pod's name

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        if self.failing:
            raise UnavailableError("503: not now")
        if pod.name in self.refusals:
            raise self.refusals[pod.name]
        await super().annotate(pod, annotations)
        self.written.append((pod.name, dict(annotations)))


class Scene:
    """Boards as in PING_MS, a gateway, and the loop that annotates their replicas."""

    def __init__(self, strategy: Strategy | None = None) -> None:
        self.clock = ManualClock(1000.0)
        self.cluster, self.state = AnnotatedCluster(), ClusterState(now_s=self.clock.now_s)
        self.decisions, self.turn = DecisionLog(), FakeLeadership()
        self.told = TelemetryBuilder("gate", *PING_MS)
        rule = Rule(strategy or ResponseTime(), {}, Random(1))
        self.step = DecisionStep(self.state, self.told.state, self.decisions, rule, self.clock)
        self.order = ReplicaOrder(self.cluster, self.step, self.turn, thresholds=True)

    async def follow(self) -> None:
        async for change in self.cluster.watch():
            self.state.apply(change)
            self.order.observe(change)

    def ranked(self) -> list[str]:
        """The names of the pods, those that stay longest first."""
        return [
            pod.name for pod in sorted(self.cluster.pods, key=lambda p: -(p.deletion_cost or 0))
        ]

    def cost(self, name: str) -> int | None:
        return self.cluster.pod(f"default/{name}").deletion_cost

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        tasks = [asyncio.create_task(self.follow()), asyncio.create_task(self.order.run())]
        yield self
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
