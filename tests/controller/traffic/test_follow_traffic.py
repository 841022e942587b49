"""The loop between the boards' reports, the graph, the decisions and the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from leadline_controller import loops
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import Owner
from leadline_controller.framework.ports import ObjectChanged, PodDeleted, Relisted
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.traffic import NO_TRAFFIC, Traffic
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_controller.telemetry.traffic import BoardTraffic
from leadline_controller.traffic.graph import TrafficGraph

from tests.controller.inspect.harness import FakeLeadership
from tests.controller.traffic.traffic_builder import board, flow, replica
from tests.support.manual_clock import ManualClock
from tests.support.tasks import until

WEB, DB = replica("web", 1, 5), replica("db", 2, 6)


@dataclass
class Follower:
    """A controller's parts that the loop joins."""

    folder: Path
    clock: ManualClock
    leadership: FakeLeadership = field(default_factory=FakeLeadership)
    used: list[Traffic] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.telemetry = TelemetryState(TimesToLive())
        self.state = ClusterState()
        self.state.apply(Relisted((board(1), board(2)), (WEB, DB)))
        self.graph = TrafficGraph(self.telemetry.traffic, lambda: 0.0, self.state.has_maker)
        self.history = Recorder(HistorySettings(self.folder / "d.db"))

    def report(self, amount: int = 7_500_000) -> None:
        now_s = self.clock.now_s()
        flows = (flow(WEB.ip, DB.ip, amount),)
        self.telemetry.traffic.add(BoardTraffic("n1", now_s, 60.0, flows))

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        self.history.start()
        parts = self.graph, self.state, self.history
        task = asyncio.create_task(
            loops.follow_traffic(*parts, self.used.append, self.leadership, self.clock)
        )
        try:
            await until(lambda: bool(self.clock._sleepers))
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.history.stop()

    async def minute(self) -> None:
        """Let a minute pass, in which the board reports."""
        for second in range(6):
            if not second:
                self.report()
            await self.clock.advance(10.0)
            await until(lambda: bool(self.clock._sleepers))


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path, ManualClock(1000.0))


async def test_decisions_get_the_traffic_once_a_minute(follower: Follower) -> None:
    async with follower.following():
        await follower.clock.advance(300.0)
        assert follower.used == []  # no board reports
        for _ in range(3):
            await follower.minute()
    assert len(follower.used) == 3
    (db,) = follower.used[-1].peers[workload_of(WEB)]
    assert db.mbps == pytest.approx(1.0)


async def test_a_new_controller_knows_what_the_one_before_knew(follower: Follower) -> None:
    async with follower.following():
        await follower.minute()
    again = Follower(follower.folder, follower.clock)
    async with again.following():
        await until(lambda: bool(again.used))
    (db,) = again.used[-1].peers[workload_of(WEB)]
    assert db.mbps == pytest.approx(1.0, rel=1e-3)


async def test_a_standby_stores_nothing(follower: Follower) -> None:
    follower.leadership.leading = False
    async with follower.following():
        await follower.minute()
    follower.history.start()
    assert await follower.history.traffic() == b""
    await follower.history.stop()


async def test_it_is_stored_every_ten_minutes_at_most(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[float] = []
    monkeypatch.setattr(
        follower.history, "put_traffic", lambda _: stored.append(follower.clock.now_s())
    )
    async with follower.following():
        for _ in range(25):
            await follower.minute()
        await follower.clock.advance(3000.0)  # no report, so nothing to store
    assert len(stored) == 3
    assert stored[1] - stored[0] >= 600.0


async def test_an_unreadable_document_is_told_and_the_loop_goes_on(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    follower.history.put_traffic(b"rubbish")
    async with follower.following():
        await follower.minute()
    assert len(follower.used) == 1
    assert "who talks to whom is not known from before: the stored traffic" in caplog.text


def test_views_have_the_traffic_that_decisions_shall_read() -> None:
    state, telemetry = ClusterState(), TelemetryState(TimesToLive())
    assert state.view(telemetry, 0.0).traffic is NO_TRAFFIC
    traffic = Traffic({workload_of(WEB): ()})
    state.use_traffic(traffic)
    assert state.view(telemetry, 0.0).traffic is traffic


def test_a_deployment_that_is_scaled_to_none_still_makes_its_pods() -> None:
    owner = Owner("ReplicaSet", "web-abc", "rs", "apps/v1")
    pod, state = replace(WEB, owner=owner), ClusterState()
    state.apply(Relisted((board(1),), (pod,)))
    assert not state.has_maker(pod)
    labels = (Requirement("app", "In", ("web",)),)
    state.apply(ObjectChanged(PodSelector("ReplicaSet", "shop", "web-abc", labels)))
    state.apply(PodDeleted(pod))
    assert state.has_maker(pod)
