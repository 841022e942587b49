"""A pod resized in place on a real API server, where its kubelet has no room: DACS, Section 6.2.

The test plays the kubelet's part: the condition PodResizePending, and what is allocated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.moving import CONTROLLERS, Town, controlling, town, until
from tests.kube.objects import pod
from tests.kube.played_kubelets import played_kubelets
from tests.kube.volume_bench import EVENTS

pytestmark = pytest.mark.cluster

CORDONED = {"spec": {"unschedulable": True}}
UNCORDONED = {"spec": {"unschedulable": False}}


@pytest.fixture(scope="module")
def controllers(plane: ControlPlane) -> Iterator[None]:
    api = Api(plane.kubeconfig)
    with kube_controller_manager(plane, CONTROLLERS), played_kubelets(api, "default"):
        yield


@pytest.fixture
def place(api: Api, controllers: None) -> Iterator[Town]:
    """Two nodes of four cores, the first with a pod of two and one of a tenth."""
    with town(api, 2) as made:
        api.patch(f"/api/v1/nodes/{made.node(2)}", CORDONED)
        two = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
        made.deployment(suffix="other", containers=[two])
        made.deployment()
        yield made


def one_pod(place: Town) -> Any:
    (pod,) = place.pods()
    return pod


def cores_of(pod: Any) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def resize(api: Api, place: Town, cores: str) -> None:
    """Resize the pod, and say as its kubelet that there is no room."""
    name = one_pod(place)["metadata"]["name"]
    path = f"{place.pods_path}/{name}"
    container = api.get(path)["spec"]["containers"][0]
    held = container["resources"]["requests"]
    wanted = {**container, "resources": {"requests": {**held, "cpu": cores}}}
    status = {
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "image": "x",
                "imageID": "x",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": held,
                "resources": {"requests": held},
            }
        ],
    }
    api.patch(f"{path}/status", {"status": status})
    api.patch(f"{path}/resize", {"spec": {"containers": [wanted]}})


async def test_it_moves_to_the_node_with_the_room_and_is_resized_there(
    place: Town, api: Api, account: Path
) -> None:
    async with controlling(account, "automatic"):
        await until(lambda: place.where() + place.where("other") == ["n1", "n1"])
        await asyncio.to_thread(api.patch, f"/api/v1/nodes/{place.node(2)}", UNCORDONED)
        await asyncio.to_thread(resize, api, place, "3")
        await until(lambda: place.where() == ["n2"] and len(place.pods()) == 1)
        await until(lambda: cores_of(one_pod(place)) == "3")


async def test_it_goes_where_the_most_is_left_of_the_nodes_that_it_may_be_on(
    api: Api, controllers: None, account: Path
) -> None:
    with town(api, 4) as place:
        first, second, third, empty = place.nodes
        for on, cores in ((first, "2"), (second, "1.5"), (third, "3")):
            taken = pod(f"{place.name}-on-{on}", cpu=cores, labels={"app": "taken"}, nodeName=on)
            api.create(place.pods_path, taken)
        not_there = {"key": "metadata.name", "operator": "NotIn", "values": [empty]}
        terms = {"nodeSelectorTerms": [{"matchFields": [not_there]}]}
        wish = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        for other in (second, third):
            api.patch(f"/api/v1/nodes/{other}", CORDONED)
        async with controlling(account, "automatic"):
            await asyncio.to_thread(place.deployment, affinity=wish)
            await until(lambda: place.where() == ["n1"])
            for other in (second, third):
                await asyncio.to_thread(api.patch, f"/api/v1/nodes/{other}", UNCORDONED)
            # 2 cores are left on the first, 2.5 on the second, 1 on the third.
            await asyncio.to_thread(resize, api, place, "3.5")
            await until(lambda: place.where() == ["n2"] and len(place.pods()) == 1)
            await until(lambda: cores_of(one_pod(place)) == "3500m")


async def test_without_automatic_moves_an_event_says_what_it_would_do(
    place: Town, api: Api, account: Path
) -> None:
    async with controlling(account, "manual"):
        await until(lambda: place.where() + place.where("other") == ["n1", "n1"])
        await asyncio.to_thread(api.patch, f"/api/v1/nodes/{place.node(2)}", UNCORDONED)
        await asyncio.to_thread(resize, api, place, "3")
        await until(lambda: notes_on(api, place))
        (note,) = await asyncio.to_thread(notes_on, api, place)
    assert note == (
        f"It would move to {place.node(2)}: it asks for cpu 0.1 -> 3 cores, which "
        f"{place.node(1)} does not have (Deferred) and {place.node(2)} has; rescheduling is "
        "manual, not automatic"
    )
    assert place.where() == ["n1"]


def notes_on(api: Api, place: Town) -> list[str]:
    return [
        event["note"]
        for event in api.get(EVENTS)["items"]
        if event["reason"] == "ChangedDemand"
        and event["regarding"].get("name", "").startswith(place.name)
    ]
