"""Pods with volumes that Leadline does not schedule: an event on each says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.cluster.state import ClusterState

from tests.kube.account import Right, granted, without
from tests.kube.api import Api
from tests.kube.objects import pod
from tests.kube.volume_bench import (
    CLAIMS,
    NAME,
    PODS,
    PROVISIONER,
    VOLUMES,
    Bench,
    event_on,
    is_bound,
    node_of,
    scheduling,
    until,
)
from tests.kube.volumes import NO_PROVISIONER, SELECTED_NODE, volume

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("volume_controllers")]


def with_a_resource_claim(bench: Bench) -> str:
    name = f"{bench.name}-pod"
    wanted = [{"name": "gpu", "resourceClaimName": "gpu"}]
    bench.add(PODS, pod(name, scheduler=NAME, resourceClaims=wanted))
    return name


def with_a_missing_claim(bench: Bench) -> str:
    return bench.pod(f"{bench.name}-claim")


def with_a_missing_class(bench: Bench) -> str:
    return bench.pod(bench.claim())


def with_a_foreign_claim(bench: Bench) -> str:
    """The volume controller ignores a claim that was not made for the pod; so must Leadline."""
    bench.storage_class()
    bench.volume("pv", f"{bench.name}-a")
    bench.claim("pod-data")
    return bench.ephemeral_pod()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (with_a_resource_claim, "resourceClaims is not supported"),
        (with_a_missing_claim, '-claim" not found'),
        (with_a_missing_class, "is not bound, and is not to wait for its first pod"),
        (with_a_foreign_claim, '-pod-data" was not made for this pod'),
    ],
)
async def test_an_event_says_why_the_pod_is_not_scheduled(
    bench: Bench, state: ClusterState, make: Callable[[Bench], str], message: str
) -> None:
    bench.node("a")
    pod_name = make(bench)
    events = await event_on(bench.api, pod_name, message)
    (event,) = [
        event
        for event in events["items"]
        if event["regarding"].get("name") == pod_name and event["reportingController"] == "leadline"
    ]
    assert (event["type"], event["reason"]) == ("Warning", "FailedScheduling")
    assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("awsElasticBlockStore", {"volumeID": "aws://eu-1/vol-1"}),
        ("azureFile", {"secretName": "s", "secretNamespace": "default", "shareName": "x"}),
        ("vsphereVolume", {"volumePath": "[data] x.vmdk"}),
    ],
)
async def test_a_claim_bound_to_an_in_tree_cloud_volume_is_rejected(
    bench: Bench, state: ClusterState, kind: str, source: dict[str, Any]
) -> None:
    bench.node("a")
    bench.storage_class(waits=False)
    manifest = volume(f"{bench.name}-pv", bench.classes)
    del manifest["spec"]["hostPath"]
    manifest["spec"][kind] = source
    bench.add(VOLUMES, manifest)
    wanted = bench.claim()
    await until(bench.api, f"{CLAIMS}/{wanted}", is_bound)

    pod_name = bench.pod(wanted)

    await event_on(bench.api, pod_name, f"is of kind {kind}, which Leadline does not model")
    assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]


async def test_a_pod_is_scheduled_once_the_foreign_claim_is_replaced_by_its_own(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    pod_name = with_a_foreign_claim(bench)
    await event_on(bench.api, pod_name, "was not made for this pod")

    anothers = f"{CLAIMS}/{pod_name}-data"
    bench.api.delete(anothers)
    bench.api.patch(anothers, {"metadata": {"finalizers": None}})

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


def storage_rights() -> list[Right]:
    """The rights on storage, without watch: a kind that can be listed is known at first."""
    return [
        right
        for right in granted()
        if (right.resource.startswith("persistent") or right.group == "storage.k8s.io")
        and right.verb != "watch"
    ]


@pytest.mark.parametrize("right", storage_rights(), ids=str)
async def test_a_missing_right_is_named_and_pods_wait_for_it(
    bench: Bench, account: Path, right: Right
) -> None:
    provisions = str(right) == "patch persistentvolumeclaims"
    bench.node("a")
    bench.storage_class(PROVISIONER if provisions else NO_PROVISIONER)
    if not provisions:
        bench.volume("pv", f"{bench.name}-a")
    wanted = bench.claim()
    with ExitStack() as taken:
        taken.enter_context(without(right, bench.api, Api(account)))
        async with scheduling(account):
            pod_name = bench.pod(wanted)
            message = f'cannot {right.verb} resource "{right.resource}" in API group'
            await event_on(bench.api, pod_name, message)
            assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]

            await asyncio.to_thread(taken.close)

            if provisions:
                await until(bench.api, f"{CLAIMS}/{wanted}", is_selected)
            else:
                assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


def is_selected(claim: Any) -> bool:
    return SELECTED_NODE in claim["metadata"].get("annotations", {})
