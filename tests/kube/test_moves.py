"""Pods are moved on a real API server, with the stock controllers of workloads and budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from leadline_controller.framework.model import Pod
from leadline_controller.rescheduling.plan import PlannedMove

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.moving import CONTROLLERS, NOTES, Moving, Town, moving, town, until
from tests.kube.played_kubelets import played_kubelets

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def managers(plane: ControlPlane) -> Iterator[None]:
    with kube_controller_manager(plane, CONTROLLERS):
        yield


@pytest.fixture
def place(api: Api, managers: None) -> Iterator[Town]:
    with town(api) as made, played_kubelets(api, "default"):
        yield made


async def test_a_pod_moves_to_the_node_that_is_better(place: Town, plane: ControlPlane) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        place.deployment()
        await here.knows(place, ["n1"])

        here.likes[place.node(2)] = 10.0
        plan = await here.rescheduler.plan()
        (move,) = plan.moves
        assert (move.source, move.target) == (place.node(1), place.node(2))
        assert (move.score, move.better_score, move.gain) == (5.0, 10.0, 0.5)
        (outcome,) = await here.rescheduler.submit(plan)

        assert (outcome.ending, outcome.why) == ("moved", "")
        await until(lambda: place.where() == ["n2"])


async def test_a_pod_of_another_scheduler_stays_and_the_plan_says_why(
    place: Town, plane: ControlPlane
) -> None:
    async with moving(plane.kubeconfig) as here:
        place.deployment(schedulerName="default-scheduler", nodeName=place.node(1))
        await here.knows(place, ["n1"])

        here.likes[place.node(2)] = 10.0
        stays = (await here.rescheduler.plan()).stays
        (stay,) = [each for each in stays if each.pod.startswith(f"default/{place.name}")]
        assert (stay.node, stay.why) == (
            place.node(1),
            "it was not placed by Leadline's scheduler: 'default-scheduler' would place its "
            "replacement",
        )


async def test_the_replacement_of_a_deployments_pod_is_ready_before_it_goes(
    place: Town, plane: ControlPlane
) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        path = place.deployment()
        await here.knows(place, ["n1"])
        fewest = [9]
        here.likes[place.node(2)] = 10.0
        plan = await here.rescheduler.plan()
        assert plan.moves[0].disruption.startswith("none")

        done = here.rescheduler.submit(plan)
        while not done.done():
            fewest.append(len(await asyncio.to_thread(place.where)))
        (outcome,) = await done

        assert (outcome.ending, outcome.why) == ("moved", "")
        assert min(fewest) == 1
        await until(lambda: place.where() == ["n2"])
        found = place.api.get(path)
        assert found["spec"]["replicas"] == 1
        assert "leadline.dev/extra-replica" not in found["metadata"].get("annotations", {})


async def test_an_autoscaled_pod_is_evicted_and_its_replacement_keeps_away(
    place: Town, plane: ControlPlane
) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        path = place.deployment()
        place.autoscaler()
        await here.knows(place, ["n1"])
        here.likes[place.node(2)] = 10.0
        plan = await here.rescheduler.plan()
        assert "the only ready pod" in plan.moves[0].disruption
        # The strategy changes its mind, but the room was reserved before.
        done = here.rescheduler.submit(plan)
        await until(lambda: place.where() != ["n1"])
        here.likes[place.node(1)] = 99.0
        (outcome,) = await done

        assert (outcome.ending, outcome.why) == ("moved", "")
        assert place.where() == ["n2"]
        assert place.api.get(path)["metadata"]["generation"] == 1
        reasons = [each["reason"] for each in place.events()]
        assert "Rescheduling" in reasons
        (pod,) = place.pods()
        record = here.controller.decisions.get(f"default/{pod['metadata']['name']}")
        assert record is not None
        assert record.why.startswith(f"moved from {place.node(1)}: 5 -> 10")


async def test_a_disruption_budget_is_respected(place: Town, plane: ControlPlane) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        place.deployment()
        budget = place.budget(minAvailable=1)
        await here.knows(place, ["n1"])
        await until(lambda: place.api.get(budget)["status"].get("currentHealthy") == 1)
        here.likes[place.node(2)] = 10.0
        await until(lambda: here.controller.state.objects.budgets())

        plan = await here.rescheduler.plan()

        assert plan.moves == ()
        pod = pod_of(here, place)
        why = next(stay.why for stay in plan.stays if stay.pod == pod.key)
        assert "allows no disruption now" in why
        move = PlannedMove(pod, place.node(1), place.node(2), "somebody insists")
        (outcome,) = await here.rescheduler.submit(replace(plan, moves=(move,)))
        assert outcome.ending == "refused"
        assert place.where() == ["n1"]


async def test_nothing_moves_during_a_pause_whoever_wrote_it(
    place: Town, plane: ControlPlane
) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        place.deployment()
        await here.knows(place, ["n1"])
        here.likes[place.node(2)] = 10.0
        place.api.patch(NOTES, {"data": {"paused": "by kubectl"}})

        (outcome,) = await here.rescheduler.submit(await here.rescheduler.plan())
        assert (outcome.ending, outcome.why) == ("refused", "rescheduling is paused")

        await here.rescheduler.resume()
        (outcome,) = await here.rescheduler.submit(await here.rescheduler.plan())
        assert outcome.ending == "moved"


async def test_a_replacement_that_is_never_ready_goes_and_the_old_pod_stays(
    api: Api, plane: ControlPlane, managers: None
) -> None:
    with town(api) as place:
        bad = place.node(2)
        with played_kubelets(api, "default", lambda pod: pod["spec"]["nodeName"] != bad):
            async with moving(plane.kubeconfig, timeout_s=3.0) as here:
                here.likes[place.node(1)] = 5.0
                path = place.deployment(2)
                await here.knows(place, ["n1", "n1"])
                here.likes[bad] = 10.0
                plan = await here.rescheduler.plan()
                assert len(plan.moves) == 2

                first, second = await here.rescheduler.submit(plan)

                assert first.ending == "failed"
                assert "is not ready after 3 s" in first.why
                assert second.ending == "cancelled"
                await until(lambda: len(place.pods()) == 2)
                assert place.where() == ["n1", "n1"]
                assert place.api.get(path)["spec"]["replicas"] == 2


def pod_of(here: Moving, place: Town) -> Pod:
    (found,) = [pod for pod, _ in here.controller.state.pods() if pod.name.startswith(place.name)]
    return found
