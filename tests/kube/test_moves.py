"""Pods are moved on a real API server, with the stock controllers of workloads and budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.moving import CONTROLLERS, Town, moving, town, until
from tests.kube.played_kubelets import played_kubelets

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane) -> Iterator[None]:
    api = Api(plane.kubeconfig)
    with kube_controller_manager(plane, CONTROLLERS), played_kubelets(api, "default"):
        yield


@pytest.fixture
def place(api: Api, controllers: None) -> Iterator[Town]:
    with town(api) as made:
        yield made


async def test_a_pod_moves_to_the_node_that_is_better(place: Town, plane: ControlPlane) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        place.deployment()
        await until(lambda: place.where() == ["n1"])

        here.likes[place.node(2)] = 10.0
        plan = await here.rescheduler.plan()
        (move,) = plan.moves
        assert (move.source, move.target) == (place.node(1), place.node(2))
        assert (move.score, move.better_score, move.gain) == (5.0, 10.0, 0.5)
        (outcome,) = await here.rescheduler.submit(plan)

        assert (outcome.ending, outcome.why) == ("moved", "")
        await until(lambda: place.where() == ["n2"])


async def test_the_replacement_of_a_deployments_pod_is_ready_before_it_goes(
    place: Town, plane: ControlPlane
) -> None:
    async with moving(plane.kubeconfig) as here:
        here.likes[place.node(1)] = 5.0
        path = place.deployment()
        await until(lambda: place.where() == ["n1"])
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
