"""A real ReplicaSet removes first what the controller says. Of a service with a response time that
is the newest replica, also of replicas that were created together, of which the one that was placed
last is the newest; of a workload that asks for it, the one in the worst place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from leadline_controller.kubeobjects.annotations import DELETION_ORDER
from leadline_controller.kubeobjects.manifest import DELETION_COST
from leadline_controller.scheduling.replica_order import PREDICTED_MS
from leadline_controller.serve.settings import KedaSettings

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.kwok import kwok
from tests.kube.objects import Object, deployment, node
from tests.kube.scaling import (
    CONTROLLERS,
    DEPLOYMENTS,
    PING_MS,
    PODS,
    Scene,
    Service,
    controller,
    removed,
    timed_service,
)
from tests.system.daemons import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_a_replica_set_removes_the_newest_first(plane: ControlPlane, api: Api) -> None:
    with kube_controller_manager(plane, CONTROLLERS), kwok(plane) as nodes:
        gate = node("keda-gate", cpu="2", unschedulable=True)
        nodes.add_nodes([*(node(name, cpu="2") for name in PING_MS), gate])
        try:
            asyncio.run(up_and_down(plane, api))
        finally:
            nodes.remove_nodes([*PING_MS, "keda-gate"])


async def up_and_down(plane: ControlPlane, api: Api) -> None:
    """Four replicas at once, then one less each time."""
    scene = Scene(api, Service(), "ordered", lambda: "see the log of this test")
    made = timed_service("ordered", response_time_ms=1000, profile_ms=10)
    order = sorted(PING_MS, key=lambda name: PING_MS[name])
    async with controller(plane, KedaSettings("127.0.0.1:0")), made_for(scene, made):
        for replicas in (1, 4):
            await scale(scene, replicas)
            assert set(await scene.scaled_to(replicas)) == set(order[:replicas])
        await asyncio.to_thread(annotated, scene)
        for replicas in (3, 2, 1):
            await scale(scene, replicas)
            assert set(await scene.scaled_to(replicas)) == set(order[:replicas])


@asynccontextmanager
async def made_for(scene: Scene, made: Object) -> AsyncIterator[None]:
    """The Deployment of the scene, until the end of the context."""
    try:
        await asyncio.to_thread(scene.api.create, DEPLOYMENTS, made)
        yield
    finally:
        await asyncio.to_thread(removed, scene.api, f"{DEPLOYMENTS}/{scene.name}")
        for each in await asyncio.to_thread(scene.pods):
            await asyncio.to_thread(removed, scene.api, f"{PODS}/{each['metadata']['name']}")


@pytest.mark.parametrize("asks", ["pod template", "namespace"])
def test_a_replica_set_removes_the_worst_placed_first(
    plane: ControlPlane, api: Api, asks: str
) -> None:
    """The oldest two, which had to go to the cloud: by age they would stay."""
    tiers = {"order-edge": "edge", "order-cloud": "cloud"}
    made = [
        node(name, cpu="4", labels={"leadline.dev/tier": tier}, unschedulable=tier == "edge")
        for name, tier in tiers.items()
    ]
    with kube_controller_manager(plane, CONTROLLERS), kwok(plane) as nodes:
        nodes.add_nodes(made)
        try:
            ask(api, "true" if asks == "namespace" else None)
            asyncio.run(
                to_the_edge(plane, api, {DELETION_ORDER: "true"} if asks != "namespace" else {})
            )
        finally:
            ask(api, None)
            nodes.remove_nodes([*tiers])


def ask(api: Api, text: str | None) -> None:
    api.patch("/api/v1/namespaces/default", {"metadata": {"annotations": {DELETION_ORDER: text}}})


async def to_the_edge(plane: ControlPlane, api: Api, annotations: dict[str, str]) -> None:
    scene = Scene(api, Service(), "placed", lambda: "see the log of this test")
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "500m"}}}
    spec = {"schedulerName": "leadline", "containers": [container]}
    made = deployment("placed", spec, replicas=2, annotations=annotations)
    async with (
        controller(plane, KedaSettings("127.0.0.1:0"), "kubedsm", deletion_cost=False),
        made_for(scene, made),
    ):
        assert await scene.scaled_to(2) == {"order-cloud": 2}
        change = {"spec": {"unschedulable": False}}
        await asyncio.to_thread(api.patch, "/api/v1/nodes/order-edge", change)
        await scale(scene, 4)
        assert await scene.scaled_to(4) == {"order-cloud": 2, "order-edge": 2}
        await asyncio.to_thread(costs_of_all, scene)
        await scale(scene, 3)
        assert await scene.scaled_to(3) == {"order-cloud": 1, "order-edge": 2}
        await scale(scene, 2)
        assert await scene.scaled_to(2) == {"order-edge": 2}


def costs_of_all(scene: Scene) -> None:
    """Wait until each replica has a cost; those on the edge have the higher ones."""

    def costs() -> list[tuple[int, str]]:
        pods = [(x["spec"]["nodeName"], x["metadata"].get("annotations", {})) for x in scene.pods()]
        return sorted((int(texts.get(DELETION_COST, 0)), on) for on, texts in pods)

    found = eventually(costs, lambda found: min(found)[0] > 0, "all are annotated")
    assert [on for _, on in found] == ["order-cloud"] * 2 + ["order-edge"] * 2


async def scale(scene: Scene, replicas: int) -> None:
    change = {"spec": {"replicas": replicas}}
    await asyncio.to_thread(scene.api.patch, f"{DEPLOYMENTS}/{scene.name}", change)


def annotated(scene: Scene) -> None:
    """Each replica costs less than those on nearer nodes, and has the predictions beside it."""

    def annotations() -> dict[str, dict[str, str]]:
        return {x["spec"]["nodeName"]: x["metadata"]["annotations"] for x in scene.pods()}

    def complete(found: dict[str, dict[str, str]]) -> bool:
        return all(DELETION_COST in each for each in found.values())

    shown = eventually(annotations, complete, "every replica is annotated")
    by_ping = sorted(PING_MS, key=lambda name: PING_MS[name])
    costs = [int(shown[name][DELETION_COST]) for name in by_ping]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == 4
    predicted = json.loads(shown["keda-w1"][PREDICTED_MS])
    assert predicted == {name: ping_ms + 10 for name, ping_ms in PING_MS.items()}
