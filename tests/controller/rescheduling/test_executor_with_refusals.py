"""What the executor does with answers that are wrong for a while, or for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from random import Random

import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Owner, Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ForbiddenError,
    InvalidError,
    UnavailableError,
    Workload,
)
from leadline_controller.kubeobjects.manifest import GOES_FIRST
from leadline_controller.rescheduling.executor import Executor, ExecutorHooks, MoveOutcome
from leadline_controller.rescheduling.journal import HourlyBudgets, Journal, MoveNote
from leadline_controller.rescheduling.plan import Plan, PlannedMove

from tests.controller.scheduling.harness import node
from tests.support.leadership import Leads
from tests.support.manual_clock import ManualClock
from tests.support.workload_cluster import Faults, FaultyApi, WorkloadCluster


class Api(FaultyApi):
    """Answers what the test wants: a step's error is raised as long as it is there."""

    def __init__(self, cluster: WorkloadCluster, leads: Leads) -> None:
        super().__init__(cluster, leads)
        self.errors: dict[str, ClusterError] = {}
        self.hidden = 0  # how often the Deployment is not found

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        self._fail("annotate")
        await super().annotate(pod, annotations)

    async def scale(self, over: Workload, replicas: int, extra: str | None) -> Workload:
        self._fail("scale up" if extra else "scale down")
        return await super().scale(over, replicas, extra)

    async def deployment(self, namespace: str, owner: Owner) -> Workload | None:
        self._fail("deployment")
        if owner.kind == "Deployment" and self.hidden:
            self.hidden -= 1
            return None
        return await super().deployment(namespace, owner)

    async def write_note(self, key: str, text: str | None) -> None:
        self._fail("write")
        await super().write_note(key, text)

    def _fail(self, step: str) -> None:
        if step in self.errors:
            raise self.errors[step]


class Stage:
    """Deployment d0 with one replica, on n1, and an executor. Pods go where `goes` says."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self.cluster = WorkloadCluster(
            [node("n1"), node("n2")], Faults(Random(1)), self.clock.now_s
        )
        self.goes = "n1"
        self.sees = asyncio.Event()  # whether the watch brings changes
        self.sees.set()
        self.cluster.add_workload("d0", 1, None, scaled=False)
        self.api = Api(self.cluster, Leads())
        self.executor = self.made()

    def made(self) -> Executor:
        self.state = ClusterState()
        self.journal = Journal(self.api, HourlyBudgets(9, 9, 9))
        hooks = ExecutorHooks(lambda _: "", lambda _: True, self.clock.now_s)
        return Executor(
            self.api, self.state, self.journal, hooks, self.clock, Leads(), timeout_s=12.0
        )

    async def follow(self) -> None:
        async for change in self.cluster.watch():
            await self.sees.wait()
            self.state.apply(change)
            self.executor.observe()

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.cluster.tick()
            for pod in self.cluster.pods:
                if pod.node_name is None:
                    await self.cluster.bind(pod, self.goes)
            await self.clock.advance(1.0)

    def pod(self, on: str = "n1") -> Pod:
        (pod,) = (p for p in self.cluster.pods_of("d0") if p.node_name == on)
        return pod

    def deployment(self) -> Workload:
        return self.cluster._workloads["default/d0"]

    async def move(self, seconds: int, during: Callable[[int], None]) -> MoveOutcome:
        """Move the pod to n2. during(second): called before each second."""
        move = PlannedMove(self.pod(), "n1", "n2", "a test")
        moving = asyncio.create_task(self.executor.carry_out(Plan("liking", "higher", (move,))))
        for second in range(seconds):
            during(second)
            await self.pass_s(1)
        assert moving.done()
        return moving.result()[0]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    follows = asyncio.create_task(made.follow())
    await made.pass_s(6)
    made.goes = "n2"
    yield made
    follows.cancel()
    await asyncio.wait([follows])


async def test_a_403_for_a_while_leaves_no_extra_replica(stage: Stage) -> None:
    def during(second: int) -> None:
        stage.api.errors.clear()
        if 2 <= second < 10:
            said = ForbiddenError("403: the roles are not loaded")
            stage.api.errors.update({"annotate": said, "scale down": said})

    outcome = await stage.move(30, during)
    assert outcome.ending == "moved"
    assert (stage.deployment().replicas, stage.deployment().extra) == (1, None)
    assert stage.journal.begun() == ()


@pytest.mark.parametrize("error", [InvalidError("422: no"), ForbiddenError("403: never")])
async def test_without_the_cost_the_extra_replica_goes_too(
    stage: Stage, error: ClusterError
) -> None:
    stage.api.errors["annotate"] = error
    outcome = await stage.move(60, lambda _: None)
    assert (outcome.ending, outcome.why) == ("failed", str(error))
    assert (stage.deployment().replicas, stage.deployment().extra) == (1, None)
    assert stage.journal.begun() == ()


async def test_the_note_stays_open_while_the_extra_replica_stays(stage: Stage) -> None:
    stage.api.errors["scale down"] = InvalidError("422: no")
    outcome = await stage.move(30, lambda _: None)
    assert outcome.ending == "failed"
    assert "its extra replica stays: 422: no" in outcome.why
    (note,) = stage.journal.begun()
    assert note.uid == stage.deployment().extra

    stage.api.errors.clear()
    assert await stage.executor.adopt() == [note]
    finishing = asyncio.create_task(stage.executor.finish([note]))
    await stage.pass_s(20)
    assert finishing.done()
    assert (stage.deployment().replicas, stage.deployment().extra) == (1, None)
    assert stage.journal.begun() == ()


async def test_a_deployment_that_is_not_found_once_is_not_gone(stage: Stage) -> None:
    stage.api.hidden = 2
    outcome = await stage.move(30, lambda _: None)
    assert outcome.ending == "moved"
    assert (stage.deployment().replicas, stage.deployment().extra) == (1, None)


async def test_a_move_whose_deployment_is_not_found_at_first_is_adopted(stage: Stage) -> None:
    stage.api.errors["scale down"] = InvalidError("422: no")
    await stage.move(30, lambda _: None)
    stage.api.errors.clear()
    stage.api.hidden = 1
    assert len(await stage.executor.adopt()) == 1


async def test_a_deployment_that_is_gone_ends_the_move(stage: Stage) -> None:
    stage.api.errors["scale down"] = InvalidError("422: no")
    await stage.move(30, lambda _: None)
    (note,) = stage.journal.begun()
    stage.api.hidden = 1000
    finishing = asyncio.create_task(stage.executor.finish([note]))
    await stage.pass_s(60)
    assert finishing.done()
    assert stage.journal.begun() == ()


async def test_one_note_that_cannot_be_judged_does_not_keep_the_others(stage: Stage) -> None:
    def noted(uid: str, deployment: str) -> MoveNote:
        return MoveNote(uid, f"default/{uid}", "o", "n1", "n2", 1.0, 0.0, "ReplicaSet", deployment)

    await stage.journal.begin(noted("a", "default/d0"))
    await stage.journal.begin(noted("b", ""))
    stage.api.errors["deployment"] = InvalidError("422: no")
    assert [note.uid for note in await stage.executor.adopt()] == ["a", "b"]


async def test_an_end_that_could_not_be_noted_is_noted_before_the_next_move(stage: Stage) -> None:
    def during(second: int) -> None:
        if second == 2:
            stage.api.errors["write"] = UnavailableError("503: not now")

    assert (await stage.move(30, during)).ending == "moved"
    assert len(stage.journal.begun()) == 1
    stage.api.errors.clear()
    pod = stage.pod("n2")
    back = asyncio.create_task(
        stage.executor.carry_out(
            Plan("liking", "higher", (PlannedMove(pod, "n2", "n1", "a test"),))
        )
    )
    await stage.clock.advance(0.0)
    assert [note.uid for note in stage.journal.begun()] == [pod.uid]
    back.cancel()
    await asyncio.wait([back])


async def test_a_move_that_was_noted_without_an_answer_is_not_open_for_ever(stage: Stage) -> None:
    stage.cluster.faults.after = 1.0
    assert (await stage.move(5, lambda _: None)).ending == "refused"
    stage.cluster.faults.stop()
    await stage.journal.load()
    assert len(stage.journal.begun()) == 1
    await stage.executor.note_endings()
    await stage.journal.load()
    assert stage.journal.begun() == ()


def cost(stage: Stage, on: str) -> int | None:
    return stage.pod(on).deletion_cost


async def with_cost(stage: Stage, amount: int) -> None:
    stage.cluster.put_pod(replace(stage.pod(), deletion_cost=amount))
    await stage.clock.advance(0.0)


async def test_a_pod_that_was_never_made_first_keeps_its_cost(stage: Stage) -> None:
    await with_cost(stage, -7)
    stage.api.errors["annotate"] = InvalidError("422: no")
    stage.api.errors["scale down"] = InvalidError("422: no")
    await stage.move(30, lambda _: None)
    stage.api.errors.clear()
    stage.cluster._workloads["default/d0"] = replace(stage.deployment(), extra=None, replicas=2)
    assert await stage.executor.adopt() == []
    assert cost(stage, "n1") == -7


def somebody_scales(stage: Stage, at: int) -> Callable[[int], None]:
    """So that no pod goes when the extra replica is taken back."""

    def during(second: int) -> None:
        if second == at:
            stage.cluster.wanted["d0"] = 3
            stage.cluster._workloads["default/d0"] = replace(stage.deployment(), replicas=3)

    return during


async def test_a_pod_that_stays_after_all_gets_the_cost_back_that_it_had(stage: Stage) -> None:
    await with_cost(stage, 7)
    seen = set()
    during = somebody_scales(stage, 2)

    def watch(second: int) -> None:
        during(second)
        seen.add(cost(stage, "n1"))

    outcome = await stage.move(60, watch)
    assert outcome.why == "another pod of its ReplicaSet was removed instead"
    assert seen == {7, GOES_FIRST}
    assert cost(stage, "n1") == 7


async def test_the_extra_replica_stays_until_the_watch_has_shown_the_cost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the ReplicaSet's controller, which watches as well, may remove the newest pod."""
    annotate, replicas = stage.api.annotate, set()

    async def annotate_unseen(pod: Pod, annotations: Mapping[str, str | None]) -> None:
        stage.sees.clear()
        await annotate(pod, annotations)

    def during(second: int) -> None:
        if not stage.sees.is_set():
            assert cost(stage, "n1") == GOES_FIRST
            replicas.add(stage.deployment().replicas)
        if second == 8:
            stage.sees.set()
            monkeypatch.undo()

    monkeypatch.setattr(stage.api, "annotate", annotate_unseen)
    outcome = await stage.move(30, during)
    assert replicas == {2}
    assert (outcome.ending, stage.deployment().replicas) == ("moved", 1)


async def test_the_replacement_of_a_failed_move_is_not_the_first_to_go(stage: Stage) -> None:
    stage.cluster.never_ready.add("n2")
    outcome = await stage.move(60, somebody_scales(stage, 4))
    assert outcome.ending == "failed"
    costs = [pod.deletion_cost for pod in stage.cluster.pods_of("d0")]
    assert costs == [None, None, None]


async def test_the_cost_outlives_the_controller(stage: Stage) -> None:
    await with_cost(stage, 7)
    stage.api.errors["scale down"] = InvalidError("422: no")
    await stage.move(30, lambda _: None)
    assert cost(stage, "n1") == GOES_FIRST
    stage.api.errors.clear()
    stage.cluster._workloads["default/d0"] = replace(stage.deployment(), extra=None)
    assert await stage.executor.adopt() == []
    assert cost(stage, "n1") == 7


async def test_a_controller_that_takes_over_knows_whose_place_a_replacement_has(
    stage: Stage,
) -> None:
    await with_cost(stage, 7)
    stage.api.errors["scale down"] = InvalidError("422: no")
    await stage.move(30, lambda _: None)
    replacement = stage.pod("n2")
    assert stage.state.reservations.replaced_by(replacement.uid) is None
    await stage.executor.adopt()
    moved = stage.state.reservations.replaced_by(replacement.uid)
    assert moved is not None
    assert (moved.node_name, moved.deletion_cost) == ("n1", 7)  # and not that of the first to go
