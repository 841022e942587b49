"""Automatic mode: what is measured becomes worse, and pods move without anybody asking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Better, Rule, Scores, Strategy, best
from leadline_controller.framework.model import CPU, PODS, Node, Owner, Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.history.record import DecisionRecord
from leadline_controller.history.store import HistorySettings
from leadline_controller.rescheduling import rescheduler as reschedulers
from leadline_controller.rescheduling import trigger
from leadline_controller.rescheduling.journal import HourlyBudgets
from leadline_controller.rescheduling.plan import Plan
from leadline_controller.rescheduling.rescheduler import Rescheduler, ReschedulingSettings
from leadline_controller.rescheduling.trigger import Assumptions
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller, running

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.support.memory_cluster import MemoryCluster
from tests.support.tasks import until

PATIENCE_S = 90.0


@dataclass(frozen=True)
class ByBandwidth(Strategy):
    name: ClassVar[str] = "by-bandwidth"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "a test"
    needs: ClassVar[tuple[str, ...]] = ("bandwidth_mbps",)

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        total = view.metrics.bandwidth_mbps[candidates]
        return Scores(candidates, total, best(total, self.better), lambda at: f"{total[at]}")


class Scene:
    def __init__(
        self,
        nodes: Sequence[str] = ("n1", "n2", "n3"),
        history: HistorySettings | None = None,
        **settings: object,
    ) -> None:
        names = ("n1", "n2", "n3")
        self.cluster = MemoryCluster([Node(name, {CPU: 4000, PODS: 9}) for name in nodes])
        owner = Owner("ReplicaSet", "web", "uid-web")
        web = Pod("default", "web", "uid", {CPU: 1, PODS: 1}, node_name="n1", owner=owner)
        self.cluster.put_pod(Pod(**{n: getattr(web, n) for n in _FIELDS}, ready=True, created_s=1))
        given = {"mode": "automatic", "worse_for_s": 0.1, "cooldown_s": 0.0, **settings}
        given |= {"timeout_s": 0.2, "budgets": HourlyBudgets(9, 9, 9)}
        moves = ReschedulingSettings(**given)  # type: ignore[arg-type]
        whole = Settings(warm_up_s=0.0, rescheduling=moves, decisions=history or HistorySettings())
        rule = Rule(ByBandwidth(), FILTERS, Random(1))
        self.controller = Controller(whole, self.cluster, rule)
        self._builder = TelemetryBuilder()
        self._builder.state = self.controller.telemetry
        for name in names:
            self._builder.birth(name)

    def measure(self, n1: float) -> None:
        """The links of n2 and n3 do 90 Mbit/s, and that of n1 does this much."""
        now_s = self.controller.clock.now_s()
        for a, b, mbps in (("n2", "n3", 90.0), ("n1", "n2", n1), ("n1", "n3", n1)):
            self._builder.bandwidth(a, b, mbps, now_s)


_FIELDS = ("namespace", "name", "uid", "requests", "node_name", "owner")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reschedulers, "_LOOK_S", 0.02)
    monkeypatch.setattr(reschedulers, "_POLL_S", 0.02)


async def test_a_link_that_stays_worse_moves_the_pod() -> None:
    here = Scene()
    async with (
        running(*here.controller.placing()),
    ):
        here.measure(80.0)
        await asyncio.sleep(0.3)
        assert not here.cluster.pod("default/web").terminating

        here.measure(9.0)
        here.measure(9.0)

        await until(lambda: here.cluster.pod("default/web").terminating)
        rescheduler = here.controller.rescheduler
        await until(lambda: rescheduler.last[0])
        (outcome,) = rescheduler.last[1]
        assert "bandwidth_mbps of n1 is 9, and was 80" in outcome.move.why


async def test_a_link_that_was_worse_at_a_plan_before_moves_a_pod_after_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trigger, "_LINKS", ())
    here, plans = Scene(), []
    plan = Rescheduler.plan

    async def counting(rescheduler: Rescheduler, only: Any = None) -> Plan:
        plans.append(await plan(rescheduler, only))
        return plans[-1]

    monkeypatch.setattr(Rescheduler, "plan", counting)
    async with running(*here.controller.placing()):
        here.measure(80.0)
        await asyncio.sleep(0.3)
        here.measure(9.0)
        here.measure(9.0)
        await until(lambda: here.cluster.pod("default/web").terminating)
    assert [len(each.moves) for each in plans[:3]] == [1, 1, 1]


async def test_an_error_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = Scene()
    looks = []

    def fail(*_: object) -> list[object]:
        looks.append(1)
        if len(looks) < 4:
            raise ValueError("on purpose")
        return []

    monkeypatch.setattr(Assumptions, "look", fail)
    async with running(*here.controller.placing()):
        await until(lambda: len(looks) > 5)
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1
    assert "on purpose" in errors[0].message


async def test_what_was_assumed_survives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, decoded = [False], []
    look, measured = Assumptions.look, DecisionRecord.measured

    def look_on(*given: Any) -> Any:
        looking[0] = True
        try:
            return look(*given)
        finally:
            looking[0] = False

    def measured_on(record: DecisionRecord, on: str) -> dict[str, float]:
        decoded.append(looking[0])
        return measured(record, on)

    monkeypatch.setattr(Assumptions, "look", look_on)
    monkeypatch.setattr(DecisionRecord, "measured", measured_on)
    history = HistorySettings(tmp_path / "decisions.db")
    first = Scene(("n1",), history)
    first.cluster.put_pod(replace(first.cluster.pod("default/web"), uid="new", node_name=None))
    first.measure(80.0)
    async with (
        first.controller.storing_decisions(),
        running(*first.controller.placing()),
    ):
        await until(lambda: first.cluster.pod("default/web").node_name is not None)
    placed = first.cluster.pod("default/web")

    again = Scene(history=history)
    again.cluster.put_pod(replace(placed, ready=True))
    again.measure(9.0)  # the first that the new controller measures
    async with (
        again.controller.storing_decisions(),
        running(*again.controller.placing()),
    ):
        rescheduler = again.controller.rescheduler
        await until(lambda: rescheduler.last[0])
        (outcome,) = rescheduler.last[1]
    assert "bandwidth_mbps of n1 is 9, and was 80" in outcome.move.why
    # A look has no pause, so a thousand of them would hold up the scheduler.
    assert decoded
    assert not any(decoded)


async def test_what_the_decision_knew_counts_and_not_what_is_first_looked_at() -> None:
    here = Scene(("n1",))
    here.cluster.put_pod(replace(here.cluster.pod("default/web"), uid="new", node_name=None))
    here.measure(80.0)
    control = here.controller
    async with running(Scheduler(here.cluster, control.step, on_change=control.notify).run()):
        await until(lambda: here.cluster.pod("default/web").node_name is not None)
        here.measure(9.0)
        here.measure(9.0)
        for name in ("n2", "n3"):
            here.cluster.put_node(Node(name, {CPU: 4000, PODS: 9}))
        here.cluster.put_pod(replace(here.cluster.pod("default/web"), ready=True))
        rescheduler = control.rescheduler
        async with running(rescheduler.run()):
            await until(lambda: rescheduler.last[0])
            (outcome,) = rescheduler.last[1]
    assert "bandwidth_mbps of n1 is 9, and was 80" in outcome.move.why
