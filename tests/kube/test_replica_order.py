"""A real ReplicaSet removes the newest replica first, because the controller says so: also of
replicas that were created together, of which the one that was placed last is the newest."""

from __future__ import annotations

import asyncio
import json

import pytest
from leadline_controller.api.settings import KedaSettings
from leadline_controller.kubeobjects.manifest import DELETION_COST
from leadline_controller.scheduling.replica_order import PREDICTED_MS

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.kwok import kwok
from tests.kube.objects import node
from tests.kube.test_keda import (
    CONTROLLERS,
    DEPLOYMENTS,
    PING_MS,
    PODS,
    Scene,
    Service,
    controller,
    deployment,
    removed,
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
    made = deployment("ordered", response_time_ms=1000, profile_ms=10)
    order = sorted(PING_MS, key=lambda name: PING_MS[name])
    async with controller(plane, KedaSettings("127.0.0.1:0")):
        try:
            await asyncio.to_thread(api.create, DEPLOYMENTS, made)
            for replicas in (1, 4):
                await scale(api, replicas)
                assert set(await scene.scaled_to(replicas)) == set(order[:replicas])
            await asyncio.to_thread(annotated, scene)
            for replicas in (3, 2, 1):
                await scale(api, replicas)
                assert set(await scene.scaled_to(replicas)) == set(order[:replicas])
        finally:
            await asyncio.to_thread(removed, api, f"{DEPLOYMENTS}/ordered")
            for each in await asyncio.to_thread(scene.pods):
                await asyncio.to_thread(removed, api, f"{PODS}/{each['metadata']['name']}")


async def scale(api: Api, replicas: int) -> None:
    change = {"spec": {"replicas": replicas}}
    await asyncio.to_thread(api.patch, f"{DEPLOYMENTS}/ordered", change)


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
