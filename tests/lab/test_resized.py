"""A running pod is resized in place where its kubelet has no room for it: it moves, and the new
kubelet gives it the size. Nothing is played here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from leadline_lab.spec import BoardSpec

from tests.kube.moving import CONTROLLERS, controlling, until
from tests.kube.objects import Object, deployment
from tests.lab.lab_images import SLEEP, push_image
from tests.lab.running import PODS, RunningLab, Size, is_ready, running_lab

pytestmark = [pytest.mark.network, pytest.mark.cluster]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def service(name: str, image: str, cpu: str) -> Object:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "schedulerName": "leadline",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return deployment(name, spec)


def pods_of(lab: RunningLab, name: str) -> list[Any]:
    found = lab.api.get(f"{PODS}?labelSelector=app%3D{name}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def where(lab: RunningLab, name: str) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in pods_of(lab, name) if is_ready(pod)]


def in_force(lab: RunningLab, name: str) -> list[str]:
    """The CPU that the kubelets have given the pods' containers."""
    return [
        container.get("resources", {}).get("requests", {}).get("cpu", "")
        for pod in pods_of(lab, name)
        for container in pod["status"].get("containerStatuses", ())
    ]


async def test_a_resized_pod_moves_to_the_board_that_has_the_room_and_gets_it_there() -> None:
    sizes = {name: Size(cpu=1, memory_mb=1000) for name in ("n1", "n2")}
    boards = [BoardSpec(name, rate_mbps=100) for name in sizes]
    with running_lab(boards, CONTROLLERS, sizes) as lab:
        image = push_image(lab.lab, "service", command=SLEEP)
        cordon = {"spec": {"unschedulable": True}}
        lab.api.patch("/api/v1/nodes/n2", cordon)
        async with controlling(lab.plane.kubeconfig, "automatic"):
            for name, cpu in (("other", "600m"), ("web", "100m")):
                made = service(name, image, cpu)
                await asyncio.to_thread(lab.api.create, DEPLOYMENTS, made)
            await until(lambda: where(lab, "other") + where(lab, "web") == ["n1", "n1"])
            lab.api.patch("/api/v1/nodes/n2", {"spec": {"unschedulable": False}})
            (pod,) = pods_of(lab, "web")
            container = pod["spec"]["containers"][0]
            bigger = {**container, "resources": {"requests": {"cpu": "800m"}}}
            path = f"{PODS}/{pod['metadata']['name']}/resize"
            lab.api.patch(path, {"spec": {"containers": [bigger]}})
            await until(lambda: where(lab, "web") == ["n2"])
            await until(lambda: in_force(lab, "web") == ["800m"])
            assert where(lab, "other") == ["n1"]
