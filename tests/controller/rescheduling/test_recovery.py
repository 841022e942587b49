"""A controller that begins to lead: the notes of the one before it, and the plans of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.ports import ClusterError, ForbiddenError, UnavailableError
from leadline_controller.history.times import Moment
from leadline_controller.rescheduling.executor import Executor
from leadline_controller.rescheduling.journal import HourlyBudgets, Journal, MoveNote
from leadline_controller.rescheduling.plan import Plan, PlannedMove
from leadline_controller.rescheduling.rescheduler import (
    Mode,
    RefusedError,
    Rescheduler,
    ReschedulingSettings,
)
from leadline_controller.settings import Settings
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.wiring import Controller, running

from tests.controller.scheduling.harness import node
from tests.support.leadership import Leads
from tests.support.manual_clock import ManualClock
from tests.support.workload_cluster import Faults, FaultyApi, WorkloadCluster


class Api(FaultyApi):
    """Its notes cannot be read while there is an error."""

    error: ClusterError | None = None
    reads = 0
    unwritable = False

    async def write_note(self, key: str, text: str | None) -> None:
        if self.unwritable:
            raise UnavailableError("503: not now")
        await super().write_note(key, text)

    async def read_notes(self) -> Mapping[str, str]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().read_notes()


class Led:
    """A controller with KubeDSM on two nodes, with two pods on n1."""

    def __init__(self, mode: Mode) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.cluster = WorkloadCluster(
            [node("n1"), node("n2")], Faults(Random(1)), self.clock.now_s
        )
        self.cluster.add_workload("d0", 2, None, scaled=True)
        self.leads = Leads()
        self.api = Api(self.cluster, self.leads)
        settings = ReschedulingSettings(mode, cooldown_s=0.0, timeout_s=12.0)
        self.controller = Controller(
            Settings(warm_up_s=0.0, rescheduling=settings),
            self.api,
            Rule(KubeDsm(), FILTERS, Random(1)),
            leadership=self.leads,
            clock=self.clock,
            now=lambda: Moment("boot", self.clock.now_s(), 0.0),
        )

    @property
    def rescheduler(self) -> Rescheduler:
        return self.controller.rescheduler

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.cluster.tick()
            await self.clock.advance(1.0)

    def plan(self) -> Plan:
        """Each pod to the other node."""
        moves = [
            PlannedMove(pod, pod.node_name or "", "n2" if pod.node_name == "n1" else "n1", "a test")
            for pod in self.cluster.pods_of("d0")
        ]
        return Plan("kubedsm", "higher", tuple(moves))


@asynccontextmanager
async def led(mode: Mode = "automatic", error: ClusterError | None = None) -> AsyncIterator[Led]:
    made = Led(mode)
    made.api.error = error

    async def run() -> None:
        async with running(*made.controller.placing()) as placing:
            await placing

    task = asyncio.create_task(run())
    try:
        await made.clock.advance(0.0)
        yield made
    finally:
        made.leads.live = False
        task.cancel()
        await made.clock.advance(5)
        await asyncio.gather(task, return_exceptions=True)


async def test_while_the_notes_cannot_be_read_pods_are_placed_and_none_is_moved() -> None:
    async with led(error=UnavailableError("503: not now")) as made:
        await made.pass_s(20)
        assert made.cluster.healthy("d0") == 2
        assert made.rescheduler.recovered()
        assert made.rescheduler.is_busy
        assert made.controller.suggestions is not None
        assert (
            made.controller.suggestions.have_moved(
                made.controller.state.view(made.controller.telemetry, made.clock.now_s()), ()
            )
            is None
        )
        with pytest.raises(RefusedError, match="cannot be read yet"):
            await made.rescheduler.apply("x")

        made.api.error = None
        await made.pass_s(3)
        assert not made.rescheduler.is_busy


async def test_a_move_from_a_node_that_is_gone_is_refused() -> None:
    async with led() as made:
        await made.pass_s(6)
        plan = made.plan()
        source = plan.moves[0].source
        made.cluster.remove_node(source)  # its pods are still there
        outcomes = made.rescheduler.submit(plan)
        await made.clock.advance(3.0)
        assert outcomes.done()
        first = outcomes.result()[0]
        assert (first.ending, first.why) == ("refused", f"{source} is gone")


async def test_an_error_in_a_plan_ends_neither_its_waiters_nor_the_plans_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise KeyError("on purpose")

    async with led() as made:
        await made.pass_s(6)
        with monkeypatch.context() as patched:
            patched.setattr(Executor, "carry_out", fail)
            outcomes = made.rescheduler.submit(made.plan())
            await made.pass_s(3)
        assert [each.ending for each in outcomes.result()] == ["failed", "failed"]
        assert "on purpose" in outcomes.result()[0].why
        assert not made.rescheduler.is_busy
        assert made.rescheduler.last[1] == tuple(outcomes.result())

        again = made.rescheduler.submit(Plan("kubedsm", "higher", ()))
        await made.pass_s(3)
        assert again.result() == []


async def test_a_move_in_progress_ends_when_rescheduling_is_off() -> None:
    async with led("off") as made:
        await made.pass_s(6)
        made.leads.live = False
        await made.pass_s(3)
        workload = made.cluster._workloads["default/d0"]
        (pod, _) = made.cluster.pods_of("d0")
        await Journal(made.cluster, HourlyBudgets()).begin(
            MoveNote(
                *(pod.uid, pod.key, "uid-d0-set", pod.node_name or "", "n2"),
                begun_s=made.clock.now_s(),
                newest_s=made.clock.now_s(),
                kind="ReplicaSet",
                deployment=workload.key,
                replicas=2,
            )
        )
        await made.cluster.scale(workload, 3, pod.uid)
        made.leads.live = True
        made.leads._ended.set()
        await made.pass_s(30)
        workload = made.cluster._workloads["default/d0"]
        assert (workload.replicas, workload.extra) == (2, None)
        assert made.rescheduler.journal.begun() == ()


async def test_without_rights_to_the_notes_nothing_waits_when_it_is_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with led("off", error=ForbiddenError("403: no")) as made:
        await made.pass_s(6)
        assert made.cluster.healthy("d0") == 2
        assert made.api.reads == 1
        assert caplog.messages == []


async def test_plans_that_wait_when_leadership_ends_are_cancelled() -> None:
    async with led("manual") as made:
        await made.pass_s(6)
        plan = made.plan()
        first = made.rescheduler.submit(plan)
        await made.clock.advance(0.0)
        second = made.rescheduler.submit(plan)
        made.rescheduler.running = plan  # as `apply` leaves it
        made.leads.live = False
        await made.pass_s(3)
        assert first.done()
        assert [each.ending for each in second.result()] == ["cancelled", "cancelled"]
        assert made.rescheduler.running is None

        evicted = made.cluster.witness.steps["evict"]
        made.leads.live = True
        made.leads._ended.set()
        await made.pass_s(20)
        assert not made.rescheduler.is_busy
        assert made.cluster.witness.steps["evict"] == evicted


async def test_an_end_that_could_not_be_noted_is_noted_soon() -> None:
    async with led() as made:
        await made.pass_s(6)
        outcomes = made.rescheduler.submit(Plan("kubedsm", "higher", made.plan().moves[:1]))
        await made.pass_s(2)
        assert made.cluster.witness.steps["evict"] == 1
        made.api.unwritable = True
        await made.pass_s(20)
        assert outcomes.done()
        assert len(made.rescheduler.journal.begun()) == 1
        made.api.unwritable = False
        await made.pass_s(3)
        assert made.rescheduler.journal.begun() == ()
