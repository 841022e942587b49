"""Pods with volumes placed on a real API server, whose own volume controller binds the claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from leadline_controller.clock import SystemClock
from leadline_controller.filters import FILTERS
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.scheduling.scheduler import Placing, Scheduler
from leadline_controller.state.cluster import ClusterState
from leadline_controller.state.decisions import DecisionLog
from leadline_controller.state.telemetry import TelemetryState, TimesToLive
from leadline_controller.strategies.kube_default import KubeDefault

from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.objects import Object, node
from tests.kube.volumes import (
    NO_PROVISIONER,
    SELECTED_NODE,
    claim,
    mounting,
    storage_class,
    volume,
)

pytestmark = pytest.mark.cluster

NAME = "leadline-volumes"
PROVISIONER = "test.leadline.dev/by-hand"
PATIENCE_S = 60
_numbers = count(1)


@pytest.fixture(scope="module", autouse=True)
def volume_binder(plane: ControlPlane) -> Iterator[None]:
    with kube_controller_manager(plane, ["persistentvolume-binder-controller"]):
        yield


class Bench:
    """Makes what a test needs under names of its own, and removes it."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"vol{next(_numbers)}"
        self.classes = f"{self.name}-class"
        self._made: list[str] = []

    def node(self, suffix: str) -> str:
        name = f"{self.name}-{suffix}"
        self.api.add_node(node(name))
        self._made.append(f"/api/v1/nodes/{name}")
        return name

    def add(self, collection: str, manifest: Object) -> Any:
        made = self.api.create(collection, manifest)
        self._made.append(f"{collection}/{made['metadata']['name']}")
        return made

    def storage_class(self, provisioner: str = NO_PROVISIONER, *, waits: bool = True) -> None:
        manifest = storage_class(self.classes, provisioner, waits=waits)
        self.add("/apis/storage.k8s.io/v1/storageclasses", manifest)

    def volume(self, suffix: str, node_name: str, **spec: Any) -> str:
        name = f"{self.name}-{suffix}"
        local = {"local": {"path": "/data"}}
        manifest = volume(name, self.classes, node_name=node_name, **local, **spec)
        self.add("/api/v1/persistentvolumes", manifest)
        return name

    def claim(self, suffix: str = "claim") -> str:
        name = f"{self.name}-{suffix}"
        self.add(CLAIMS, claim(name, self.classes))
        return name

    def pod(self, claim_name: str, suffix: str = "pod", **rest: Any) -> str:
        name = f"{self.name}-{suffix}"
        self.add(PODS, mounting(claim_name, name, scheduler=NAME, **rest))
        return name

    def clean(self) -> None:
        for path in reversed(self._made):
            with suppress(ApiError):
                self.api.patch(path, {"metadata": {"finalizers": None}})
                self.api.delete(path)
                # The volume controller adds its finalizers again meanwhile.
                self.api.patch(path, {"metadata": {"finalizers": None}})


CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def bench(api: Api) -> Iterator[Bench]:
    made = Bench(api)
    try:
        yield made
    finally:
        made.clean()


@asynccontextmanager
async def scheduling(kubeconfig: Path) -> AsyncIterator[ClusterState]:
    """A scheduler at work on the cluster."""
    state = ClusterState()
    async with KubeCluster(kubeconfig) as cluster:
        scheduler = Scheduler(
            cluster,
            state,
            TelemetryState(TimesToLive()),
            DecisionLog(),
            Placing(KubeDefault(), FILTERS, Random(7), NAME),
            SystemClock(),
        )
        task = asyncio.create_task(scheduler.run())
        try:
            yield state
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def state(plane: ControlPlane) -> AsyncIterator[ClusterState]:
    async with scheduling(plane.kubeconfig) as running:
        yield running


async def until(api: Api, path: str, holds: Callable[[Any], object]) -> Any:
    """The object at `path` when `holds` is true of it."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(found := await asyncio.to_thread(api.get, path)):
            await asyncio.sleep(0.1)
    return found


async def node_of(api: Api, pod_name: str) -> str:
    found = await until(api, f"{PODS}/{pod_name}", lambda pod: pod["spec"].get("nodeName"))
    return str(found["spec"]["nodeName"])


async def event_on(api: Api, pod_name: str, saying: str) -> Any:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"

    def said(events: Any) -> bool:
        return any(
            e["regarding"]["name"] == pod_name and saying in e["note"] for e in events["items"]
        )

    return await until(api, path, said)


def is_bound(claim: Any) -> bool:
    return claim["status"].get("phase") == "Bound"


async def test_a_claim_that_waits_takes_a_local_volume_and_its_pod_goes_there(
    bench: Bench, state: ClusterState
) -> None:
    for suffix in "abc":
        bench.node(suffix)
    bench.storage_class()
    there = bench.volume("pv", f"{bench.name}-b")
    wanted = bench.claim()

    pod_name = bench.pod(wanted)

    assert await node_of(bench.api, pod_name) == f"{bench.name}-b"
    found = bench.api.get(f"{CLAIMS}/{wanted}")
    assert (found["status"]["phase"], found["spec"]["volumeName"]) == ("Bound", there)
    kept = bench.api.get(f"{VOLUMES}/{there}")
    assert kept["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    assert kept["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
