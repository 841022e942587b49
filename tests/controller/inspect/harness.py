"""The state of a small controller, from which the services and the CLI answer.

Three nodes of the cluster (n1 busy and well, n2 cordoned and short of voltage, n3 never
heard), one agent outside it (guest), two links, and decisions about three pods.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Rule, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, SCHEDULER_NAME, Node, Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.history.log import BOUND, PENDING, DecisionLog
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings
from leadline_controller.history.times import Moment
from leadline_controller.inspect.server import InspectionServer
from leadline_controller.probing.budgets import PlannedTest
from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.probing.spending import AccountStatus
from leadline_controller.registry.lookup import RegistryStatus
from leadline_controller.rescheduling.rescheduler import Rescheduler, ReschedulingSettings
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.queue import QueueStatus
from leadline_controller.serve.settings import ServeSettings, Unserved
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.session import BrokerStatus
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_controller.telemetry.traffic import TrafficReports
from leadline_controller.traffic.graph import TrafficGraph
from leadline_wire.v1 import control_pb2 as pb

from tests.support.memory_cluster import MemoryCluster

NAN = float("nan")
BOOT_ID = bytes(16)
GIB = 1024**3
POLL_S = 0.02


class FakeLeadership:
    """The Leadership port, set by a test."""

    def __init__(self) -> None:
        self.leading = True
        self.named = "this-one"

    def leads(self) -> bool:
        return self.leading

    def left_s(self) -> float:
        return 9.0 if self.leading else -1.0

    def holder(self) -> str:
        return self.named

    async def wait(self) -> None:
        assert self.leading


@dataclass
class FakeParts:
    """The parts of a controller as its servers see them. Those that would need a broker, an API
    server or registries say what the test wants."""

    harness: "ControllerHarness"
    keeps_strategy: bool = False
    broker: Any = None  # a BrokerStatus; one that answers, if None
    queue: QueueStatus | None = None
    stuck: Sequence[str] = ()
    api_server: Any = None
    certificates: Sequence[Any] = ()
    delivery: Any = None
    cluster_name: str = "lab"
    scheduler_name: str = SCHEDULER_NAME
    places: bool = True
    advises: bool = False
    address_policy: Any = None
    unserved: dict[str, Unserved] = field(default_factory=dict)
    rescheduler: Any = None
    shadow: Any = None
    history: Any = None
    recording: Any = None
    traffic_graph: Any = field(default_factory=lambda: TrafficGraph(TrafficReports()))

    def __post_init__(self) -> None:
        harness = self.harness
        self.telemetry, self.state = harness.telemetry, harness.cluster
        self.decisions, self.sampler = harness.decisions, harness.sampler
        self.history = self.history or harness.history
        self.traffic_graph = self.traffic_graph or TrafficGraph(harness.telemetry.traffic)
        self.leadership: Any = harness.turn
        self.clock: Any = SimpleNamespace(now_s=lambda: harness.now_s)
        self.started_s = 0.0
        self.rule = Rule(NetSched(), FILTERS)
        self.session: Any = SimpleNamespace(status=self._broker)
        scheduler = SimpleNamespace(queue=lambda: self.queue or QueueStatus())
        self.scheduler: Any = scheduler if self.places else None
        self.heartbeats: Any = SimpleNamespace(late=lambda: list(self.stuck))
        self.image_lookup: Any = SimpleNamespace(statuses=lambda: harness.registries)
        nobody = SimpleNamespace(refusal=lambda _address, _node: None)
        self.address_policy = self.address_policy or nobody
        self.probe_scheduler: Any = SimpleNamespace(budget=lambda _now_s: harness.budget)
        if self.rescheduler is None:
            step = DecisionStep(self.state, self.telemetry, self.decisions, self.rule, self.clock)
            self.rescheduler = Rescheduler(
                MemoryCluster(), step, ReschedulingSettings(), self.leadership
            )

    def _broker(self) -> BrokerStatus:
        now_s = self.harness.now_s
        found: BrokerStatus = self.broker or BrokerStatus("broker:8883", True, 0.0, now_s)
        return found


class ControllerHarness:
    """The state of a controller, with a clock that the test moves. budget: what it says that
    probing costs."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.telemetry = TelemetryState(TimesToLive())
        self.cluster = ClusterState()
        self.history = Recorder(HistorySettings(), self.moment)
        self.decisions = DecisionLog(sink=self.history.put, now=self.moment)
        self.turn = FakeLeadership()
        self.budget = ProbingStatus()
        self.registries: list[RegistryStatus] = []
        self.sampler = Sampler(self.telemetry)
        self.source = FakeParts(self)
        self._sent: Counter[str] = Counter()

    def moment(self) -> Moment:
        """The same clock with the machine's boot at 0."""
        return Moment("boot", self.now_s, 1_800_000_000.0)

    def stamp(self, node: str, age_s: float = 0.0) -> Stamp:
        """The next message of this node."""
        self._sent[node] += 1
        number = self._sent[node]
        return Stamp(BOOT_ID, 1, number, number * 1000, self.now_s - age_s)

    def hear(self, name: str, **board: Any) -> None:
        """Receive an agent's birth and report; `board` are fields of the report."""
        agent = Agent(name, version="0.1.0", hardware_model="Pi 4", address="192.0.2.1")
        self.telemetry.birth(agent, self.stamp(name))
        self.report(name, **board)

    def sample(self) -> None:
        """Keep what was measured, as the controller does every ten seconds."""
        blocks = self.sampler.sample(self.now_s, 1_800_000_000.0 + self.now_s)
        self.history.put_series(blocks)

    def report(
        self,
        name: str,
        *,
        cpu_percent: float = NAN,
        memory_percent: float = NAN,
        cpu_celsius: float | None = None,
        notes: Sequence[str] = (),
        failed: Mapping[str, str] | None = None,
    ) -> None:
        values = {
            "cpu_percent": cpu_percent,
            "memory_percent": memory_percent,
            "packets_sent_per_s": 120.0,
            "packets_received_per_s": 80.0,
            "disk_bytes_per_s": 5000.0,
            "load_1m": 0.42,
            "frequency_mhz": 1500.0,
        }
        if cpu_celsius is not None:
            values["cpu_celsius"] = cpu_celsius
        self.telemetry.report(
            name,
            self.stamp(name, age_s=3),
            BoardReading(
                values,
                list(notes),
                collectors={"cpu": True} | dict.fromkeys(failed or {}, False),
                failed=dict(failed or {}),
            ),
        )

    def place(
        self, pod: Pod, outcome: str = BOUND, options: Mapping[str, float] | None = None
    ) -> Decision:
        """Decide about a pod with the real cycle, and record the decision."""
        self.cluster.apply(PodChanged(pod))
        view = self.cluster.view(self.telemetry, self.now_s)
        decision = decide(view, pod, Rule(NetSched(), FILTERS, Random(1)))
        if decision.node is not None:
            self.cluster.assume(pod, decision.node)
        self.decisions.add(decision, self.now_s, outcome, options or {})
        return decision


@asynccontextmanager
async def answering(
    harness: ControllerHarness, settings: ServeSettings | None = None
) -> AsyncIterator[str]:
    """Run an inspection service in this event loop; yields its address."""
    server = InspectionServer(
        settings or ServeSettings("127.0.0.1:0"), harness.source, poll_s=POLL_S
    )
    harness.history.start()
    try:
        yield await server.start()
    finally:
        await server.stop()
        await harness.history.stop()


def node(name: str, **changed: Any) -> Node:
    allocatable = {CPU: 4000, MEMORY: 4 * GIB, PODS: 110}
    return Node(name, allocatable=allocatable, **changed)


def pod(name: str, cpu_milli: int = 500, *, namespace: str = "default", **changed: Any) -> Pod:
    requests = {CPU: cpu_milli, MEMORY: GIB, PODS: 1}
    return Pod(namespace, name, uid=f"uid-{name}", requests=requests, **changed)


def account(name: str, pings_per_minute: float | None = None) -> AccountStatus:
    """Half of the bytes of a day are spent, and a tenth of the hour's link time is left."""
    return AccountStatus(
        name=name,
        allowed_share=0.001,
        share=0.0004,
        hour_share=0.0009,
        day_share=0.0005,
        bytes_per_day=1_000_000_000,
        bytes=700_000_000,
        day_bytes=500_000_000,
        tests=12,
        age_s=100_000.0,
        pings_per_minute=pings_per_minute,
    )


def example_controller(extra_nodes: Sequence[str] = ()) -> ControllerHarness:
    """The controller of the module's docstring; `extra_nodes` are nodes without an agent."""
    harness = ControllerHarness()
    names = ["n3", *extra_nodes]
    cordoned = node("n2", unschedulable=True, tier="edge")
    harness.cluster.apply(Relisted((node("n1"), cordoned, *map(node, names)), ()))
    harness.hear("n1", cpu_percent=12.5, memory_percent=40.0, cpu_celsius=51.0)
    harness.hear("n2", cpu_percent=80.0, notes=("under-voltage", "throttled"))
    harness.hear("guest", cpu_percent=3.0)
    harness.telemetry.rtts("n1", harness.stamp("n1", age_s=2), {"n2": PingRound(0.42)})
    # Too short to be more than a lower bound.
    test = BandwidthTest("n1", "n2", 94.9 * 6, seconds=0.001, at_s=harness.now_s - 120)
    harness.telemetry.bandwidth(test)
    harness.place(pod("web-1"), BOUND, {"alpha": 0.5})
    harness.now_s += 5
    harness.place(pod("huge", cpu_milli=64000), PENDING)
    harness.now_s += 5
    harness.place(pod("web-2"), "failed: the API server refused it")
    harness.budget = ProbingStatus(
        nodes=tuple(account(name, 96.0) for name in ("n1", "n2", *extra_nodes)),
        uplinks=(account("lte"),),
        running=(PlannedTest("n1", "n2", 131_072, ("lte",), {}),),
    )
    return harness


async def next_event(
    stream: grpc.aio.UnaryStreamCall[pb.WatchRequest, pb.WatchEvent],
) -> pb.WatchEvent:
    event = await stream.read()
    assert isinstance(event, pb.WatchEvent)  # the end of the stream is none
    return event
