"""Profiles of services that are only in the controller's file count for moves as for placements."""

from random import Random
from typing import Any

import pytest
from leadline_controller.cluster.service_profiles import (
    BoardProfile,
    ServiceProfile,
    ServiceProfiles,
)
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import (
    CPU,
    PODS,
    Node,
    Owner,
    PendingResize,
    Pod,
    PodAnnotations,
)
from leadline_controller.framework.ports import Relisted
from leadline_controller.framework.view import ClusterView
from leadline_controller.preferences import rule
from leadline_controller.rescheduling import resized
from leadline_controller.rescheduling.demand import DemandAnswer, answer_demand
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.settings import Settings
from leadline_controller.strategies.response_time import ResponseTime
from leadline_controller.wiring import Controller, running

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

BOARD = BoardProfile("", 10.0, 1.0, 1.0, 100)
PING_MS = {"n1": 60.0, "n2": 5.0}


def web(**changed: Any) -> Pod:
    """A pod on n1 with a threshold, and no profile of its own."""
    return Pod(
        "default",
        "web",
        "uid-web",
        {CPU: 1000, PODS: 1},
        labels={"app": "web"},
        annotations=PodAnnotations(user_node="gate", response_time_ms=100.0),
        node_name="n1",
        ready=True,
        created_s=1.0,
        owner=Owner("ReplicaSet", "web", "uid-set"),
        **changed,
    )


@pytest.fixture
def how() -> Rule:
    return Rule(ResponseTime(), FILTERS, Random(1), rule("on"))


def controller(pod: Pod, how: Rule) -> Controller:
    nodes = [Node(name, {CPU: 4000, PODS: 9}) for name in PING_MS]
    nodes.append(Node("gate", {CPU: 4000, PODS: 9}, unschedulable=True))
    clock = ManualClock(1000.0)
    settings = Settings(rescheduling=ReschedulingSettings("automatic", cooldown_s=0.0))
    made = Controller(settings, MemoryCluster(nodes), how, clock=clock)
    service = ServiceProfile("default", {"app": "web"}, dict.fromkeys(PING_MS, BOARD))
    made.state.use_profiles(ServiceProfiles([service]))
    made.state.apply(Relisted(tuple(nodes), (pod,)))
    telemetry = TelemetryBuilder()
    telemetry.state = made.telemetry
    for name in ("gate", *PING_MS):
        telemetry.birth(name)
    for name, ping_ms in PING_MS.items():
        telemetry.rtt("gate", name, ping_ms, 999.0)
    return made


async def test_a_plan_and_its_checks_know_the_profile(how: Rule) -> None:
    rescheduler = controller(web(), how).rescheduler
    plan = await rescheduler.plan()

    assert [(m.target, m.score, m.better_score) for m in plan.moves] == [("n2", 70.0, 15.0)]
    (move,) = plan.moves
    assert rescheduler._refusal(move) == ""
    assert rescheduler._fits_beside(move)


async def test_a_resized_pod_is_looked_at_with_its_profile_and_what_it_prefers(
    how: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[DemandAnswer | None] = []

    def answer(view: ClusterView, pod: Pod, by: Rule) -> DemandAnswer | None:
        assert (by.strategy, by.filters, by.prefer) == (how.strategy, how.filters, how.prefer)
        found.append(answer_demand(view, pod, by))
        return None

    monkeypatch.setattr(resized, "answer_demand", answer)
    held, wanted = {CPU: 1000, PODS: 1}, {CPU: 2000, PODS: 1}
    here = controller(web(resize=PendingResize("Infeasible", held, wanted)), how)
    async with running(here.resized.run()):
        here.notify(Relisted((), (here.state.pod("uid-web") or web(),)))
        await here.clock.advance(60.0)  # type: ignore[attr-defined]

    assert found
    assert found[0] is not None
    assert (found[0].case, found[0].target) == ("migrate", "n2")
