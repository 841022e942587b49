"""The joined rooms: the loops that probe, learn what pods use, and follow pulls."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from leadline_controller import loops, wiring
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import Layer, Node, Pod
from leadline_controller.framework.ports import ImagePull, NotFoundError, PodUsage, Relisted
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.store import HistorySettings
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.notify import LATE_S, Heartbeats
from leadline_controller.probing.budgets import BandwidthBudget, Uplink
from leadline_controller.probing.planning import DELIVERY_S, ProbeLimits
from leadline_controller.probing.scheduler import ProbeScheduler, ProbeSettings
from leadline_controller.registry.lookup import LookupSettings
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import Settings
from leadline_controller.telemetry.accepted import Agent
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.traffic import BoardTraffic
from leadline_controller.wiring import Servers
from leadline_wire.v1 import control_pb2 as control
from leadline_wire.v1 import telemetry_pb2 as pb
from leadline_wire.v1.control_pb2_grpc import InspectionStub

from tests.controller.extender.harness import wide
from tests.controller.inspect.harness import FakeLeadership
from tests.controller.probing import harness as probing
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.controller.traffic.traffic_builder import board, flow, replica
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster
from tests.support.ports import free_port
from tests.support.tasks import running, until

NODES = [wide("n1", 10), wide("n2", 1000)]


async def test_the_budget_is_that_of_the_boards_that_are_probed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without the broker no board is sent a lease.
    monkeypatch.setattr(
        "leadline_controller.wiring.controller.BrokerSession.is_prompt", lambda _: True
    )
    node = Node("n1", addresses=("192.0.2.1",))
    settings = Settings(serve=GrpcSettings("127.0.0.1:0"), broker_port=free_port())
    controller = wiring.Controller(settings, MemoryCluster([node]))
    agent = Agent("n1", address="192.0.2.1", probes=("icmp",))
    controller.telemetry.birth(agent, TelemetryBuilder().stamp("n1"))
    async with (
        Servers(controller).serving() as addresses,
        grpc.aio.insecure_channel(addresses["grpc"]) as channel,
    ):
        stub = InspectionStub(channel)
        answer = await stub.GetBudget(control.GetBudgetRequest())
        assert (list(answer.nodes), answer.leader) == ([], True)
        async with wiring.running(controller.measure(), controller.follow()):
            for _ in range(4500):
                answer = await stub.GetBudget(control.GetBudgetRequest())
                if answer.nodes:
                    break
                await asyncio.sleep(0.02)
    assert [(each.name, each.allowed_share) for each in answer.nodes] == [("n1", 0.001)]


@pytest.mark.parametrize("leads", [True, False])
async def test_the_leader_writes_what_it_measured_at_its_end_and_a_standby_writes_nothing(
    leads: bool, tmp_path: Path
) -> None:
    path = tmp_path / "d.db"
    settings = Settings(
        serve=GrpcSettings("127.0.0.1:0"),
        broker_port=free_port(),
        decisions=HistorySettings(path),
    )
    turn = FakeLeadership()
    turn.leading = leads
    controller = wiring.Controller(settings, MemoryCluster(), leadership=turn)
    controller.telemetry.report(
        "n1",
        Stamp(bytes(16), 1, 1, 1, controller.clock.now_s()),
        BoardReading({"cpu_percent": 20.0}),
    )
    async with controller.storing_decisions(), running(controller.measure()):
        while controller.sampler._minute < 0:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.01)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT step_s, board FROM series ORDER BY step_s").fetchall()
    assert rows == ([(60, "n1"), (900, "n1")] if leads else [])


class Failing(probing.LeaseRecorder):
    """Raises an error from `failures` for each ping lease until there is none left."""

    failures: list[Exception]

    def send(self, lease: pb.Lease) -> None:
        if lease.HasField("ping") and self.failures:
            raise self.failures.pop(0)
        super().send(lease)


def measuring(
    controller: wiring.Controller, probe_scheduler: ProbeScheduler, *more: Any, **named: Any
) -> Coroutine[Any, Any, None]:
    """The loop that measures, with the parts of this controller."""
    return loops.measure(
        probe_scheduler,
        controller.telemetry,
        lambda: controller.state.nodes() if controller.state.listed else None,
        controller.leadership,
        controller.clock,
        controller.heartbeats.part("measuring"),
        *more,
        **named,
    )


class Metered:
    """A metrics API."""

    async def pod_usage(self) -> Sequence[PodUsage]:
        return [PodUsage("default", "web-1", 0.3, 5e7, 1e9)]


@pytest.mark.parametrize("assumed_load", [True, False])
def test_assumed_load_can_be_turned_off(assumed_load: bool) -> None:
    controller = wiring.Controller(Settings(assumed_load=assumed_load), MemoryCluster())
    controller.state.apply(Relisted((Node("n1"),), ()))
    view = controller.state.view(controller.telemetry, 0.0)
    assert (view.assumed is not None) == assumed_load


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        (Settings(), 0.3),
        (Settings(metrics_api=False), 0.1),
        (Settings(assumed_load=False), 0.1),
    ],
)
async def test_what_running_pods_use_is_expected_of_their_siblings(
    settings: Settings, cores: float
) -> None:
    cluster = MemoryCluster([read_node(each) for each in NODES])
    web = Pod("default", "web-1", labels={"app": "web"}, node_name="n1", ready=True)
    cluster.put_pod(web)
    clock = ManualClock()
    controller = wiring.Controller(settings, cluster, clock=clock, usage=Metered())
    work = [] if controller.usage is None else [controller.follow_usage(controller.usage)]
    async with wiring.running(controller.follow(), *work):
        await until(lambda: controller.state.listed)
        await clock.advance(2.0)
    new = replace(web, name="web-2", uid="2", node_name=None)
    assert controller.state.recent.expected.of(new).cpu_cores == cores


async def test_what_boards_count_reaches_decisions() -> None:
    web, db = replica("web", 1, 5), replica("db", 2, 6)
    cluster, clock = MemoryCluster([board(1), board(2)]), ManualClock(1000.0)
    for pod in (web, db):
        cluster.put_pod(pod)
    controller = wiring.Controller(Settings(), cluster, clock=clock)
    counted = BoardTraffic("n1", 990.0, 60.0, (flow(web.ip, db.ip),))
    controller.telemetry.traffic.add(counted)
    async with wiring.running(*controller.work()):
        await until(lambda: controller.state.listed)
        await clock.advance(10.0)
        await until(lambda: bool(view_of(controller).traffic.peers))
    (peer,) = view_of(controller).traffic.peers[workload_of(web)]
    assert peer.name == "shop/db"
    assert peer.mbps == pytest.approx(1.0)


def view_of(controller: wiring.Controller) -> ClusterView:
    return controller.state.view(controller.telemetry, controller.clock.now_s())


@asynccontextmanager
async def ticking(
    sent: probing.LeaseRecorder, turn: FakeLeadership, clock: ManualClock
) -> AsyncIterator[wiring.Controller]:
    """The loop of a controller that sends what is due, on a clock that a test moves."""
    controller = wiring.Controller(Settings(), MemoryCluster(), leadership=turn, clock=clock)
    boards = probing.ProbeHarness("n1", "n2")
    probe_scheduler = ProbeScheduler(
        boards.telemetry.state, sent.send, ProbeSettings(probing.LIMITS), lambda: boards.nodes
    )
    async with running(measuring(controller, probe_scheduler)):
        await clock.advance(0)
        yield controller


async def test_an_error_of_probing_is_logged_once_and_probing_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent, clock = Failing(), ManualClock()
    sent.failures = [OSError("no route")] * 4 + [KeyError("n1")]
    async with ticking(sent, FakeLeadership(), clock):
        await clock.advance(1.9)
        assert sent.pings == []
        await clock.advance(1)
        assert {node for node, _ in sent.pings} == {"n1", "n2"}
    assert [record.getMessage() for record in caplog.records] == [
        "probing the network failed, trying again: OSError('no route')",
        "probing the network failed, trying again: KeyError('n1')",
    ]


async def test_measuring_beats_only_while_the_brokers_session_runs() -> None:
    clock, is_running = ManualClock(), True
    heartbeats = Heartbeats(clock.now_s)
    controller = wiring.Controller(
        Settings(),
        MemoryCluster(),
        leadership=FakeLeadership(),
        clock=clock,
        heartbeats=heartbeats,
    )
    boards = probing.ProbeHarness("n1")
    probe_scheduler = ProbeScheduler(
        boards.telemetry.state, boards.sent.send, ProbeSettings(), lambda: boards.nodes
    )
    async with running(measuring(controller, probe_scheduler, lambda: is_running)):
        await clock.advance(2 * LATE_S)
        assert heartbeats.late() == []
        is_running = False
        await clock.advance(LATE_S + 1)
        assert heartbeats.late() == ["measuring"]


async def test_only_the_leader_probes_and_a_new_one_waits_for_the_end_of_the_last_test() -> None:
    sent, clock, turn = probing.LeaseRecorder(), ManualClock(), FakeLeadership()
    longest_s = DELIVERY_S + (probing.LIMITS.ttl_ms + probing.LIMITS.duration_ms) / 1000 + 1
    tested = sent.tests
    turn.leading = False
    async with ticking(sent, turn, clock):
        for _ in range(2):  # first after it stood by, then after it led
            await clock.advance(100)
            assert (sent.pings, tested) == ([], [])
            turn.leading = True
            await clock.advance(1)
            assert len(sent.pings) == 2
            await clock.advance(longest_s - 1)
            assert tested == []
            await clock.advance(1)
            assert len(tested) == 2
            turn.leading = False
            await clock.advance(1)
            sent.pings.clear()
            tested.clear()


@pytest.mark.parametrize(
    ("budget", "mbps"),
    [
        (BandwidthBudget(), None),
        (BandwidthBudget(link_time_share=0.0), 1000.0),
        (BandwidthBudget(bytes_per_day=0), 1000.0),
    ],
    ids=["default", "no link time", "no bytes"],
)
async def test_without_a_budget_the_speed_of_the_interface_counts(
    budget: BandwidthBudget, mbps: float | None
) -> None:
    builder = TelemetryBuilder()
    builder.state = wiring.Controller(Settings(budget=budget), MemoryCluster()).telemetry
    builder.birth("n1")
    reading = BoardReading({"link_mbps": 1000.0})
    builder.state.report("n1", builder.stamp("n1", measured_s=0.0), reading)
    (link,) = builder.state.node_links(("n1",), 0.0)
    assert (link.bandwidth.mbps if link.bandwidth else None) == mbps


async def test_the_settings_of_probing_reach_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ProbeSettings] = []

    def noted(telemetry: Any, send: Any, settings: ProbeSettings, *more: Any) -> ProbeScheduler:
        given.append(settings)
        return ProbeScheduler(telemetry, send, settings, *more)

    monkeypatch.setattr(wiring.controller, "ProbeScheduler", noted)
    settings = Settings(
        broker_port=free_port(),
        anchors=("n1",),
        limits=ProbeLimits(interval_s=5.0),
        budget=BandwidthBudget(link_time_share=0.0),
        uplinks=(Uplink("lte", frozenset({"n2"})),),
    )
    wiring.Controller(settings, MemoryCluster([]))
    (probing_as,) = given
    assert (probing_as.limits, probing_as.budget) == (settings.limits, settings.budget)
    assert (probing_as.uplinks, probing_as.anchors) == (settings.uplinks, settings.anchors)


async def test_retained_messages_of_new_nodes_are_requested_once() -> None:
    clock, fetched = ManualClock(), list[str]()
    cluster = MemoryCluster([read_node(each) for each in NODES])
    controller = wiring.Controller(Settings(), cluster, leadership=FakeLeadership(), clock=clock)
    boards = probing.ProbeHarness()
    probe_scheduler = ProbeScheduler(
        boards.telemetry.state, boards.sent.send, ProbeSettings(), lambda: boards.nodes
    )
    async with running(measuring(controller, probe_scheduler, fetch=fetched.extend)):
        await clock.advance(1)
        assert fetched == []
        async with running(controller.follow()):
            await until(lambda: controller.state.listed)
            await clock.advance(5)
            assert fetched == ["n1", "n2"]  # once


class Kubelets:
    """Reports these pulls, and has no secrets."""

    def __init__(self, *pulls: ImagePull) -> None:
        self._pulls = pulls

    async def watch_pulls(self) -> AsyncGenerator[ImagePull, None]:
        for pull in self._pulls:
            yield pull
        await asyncio.Event().wait()

    async def read_secret(self, key: str) -> bytes:
        raise NotFoundError(f"secret {key}")


def layered_controller(settings: Settings, pulls: Kubelets) -> wiring.Controller:
    controller = wiring.Controller(settings, MemoryCluster(), pulls=pulls)
    controller.state.apply(Relisted((Node("n1"),), (Pod("default", "web", "u", node_name="n1"),)))
    agent = Agent("n1", version="", hardware_model="", address="")
    controller.telemetry.birth(agent, Stamp(b"0" * 16, 1, 1, 0, 0.0))
    layers = {"": (Layer("sha256:x", 20.0),)}
    controller.state.images.learn("reg.example/web:1", "reg.example/web@sha256:y", layers)
    return controller


async def test_a_pull_teaches_the_nodes_speed_and_a_lower_bound_of_its_link() -> None:
    began = ImagePull("n1", "u", "reg.example/web:1")
    pulls = Kubelets(began, replace(began, took_s=2.2))
    controller = layered_controller(Settings(images=LookupSettings(enabled=False)), pulls)
    async with running(controller.look_up_images()):
        await until(
            lambda: (
                controller.state.images.table(controller.state.table).pull_mbps.tolist()
                == [pytest.approx(80.0)]
            )
        )
        assert controller.image_lookup is None
        (link,) = controller.telemetry.node_links(("n1",), controller.clock.now_s())
        assert link.bandwidth is not None
        assert link.bandwidth.source == "pulls"
        assert link.bandwidth.lower_bound


async def test_a_pull_that_fails_is_logged_once_and_the_next_ones_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = ImagePull("n1", "u", "reg.example/web:1")
    bad = replace(began, image="bad")
    pulls = Kubelets(bad, bad, began, replace(began, took_s=2.2))
    controller = layered_controller(Settings(images=LookupSettings(enabled=False)), pulls)
    observe = controller.state.images.observe

    def fail_once_bad(pull: ImagePull) -> float | None:
        if pull is bad:
            raise ArithmeticError("a fault of ours")
        return observe(pull)

    monkeypatch.setattr(controller.state.images, "observe", fail_once_bad)
    async with running(controller.look_up_images()):
        table = controller.state.table
        await until(
            lambda: controller.state.images.table(table).pull_mbps.tolist() == [pytest.approx(80)]
        )
    assert caplog.text.count("a pull on node n1 is not counted: ArithmeticError") == 1


async def test_no_registry_is_asked_by_rules_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "registries.yaml"
    file.write_text("mirrors: [hunter2]")
    settings = Settings(images=LookupSettings(registries_file=file))
    assert layered_controller(settings, Kubelets()).image_lookup is None
    assert "no registry is asked" in caplog.text
    assert "hunter2" not in caplog.text
    file.write_text("configs: {reg.example: {auth: {password: hunter2, token: hunter2}}}")
    assert layered_controller(settings, Kubelets()).image_lookup is not None
    assert f"{file}: not supported and left out: configs.reg.example.auth.token" in caplog.text
    assert "hunter2" not in caplog.text
