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

from tests.kube.account import applied, login, wait_allowed
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
PATIENCE_S = 60  # the volume controller looks again every 15 s
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
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
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
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture(scope="module")
def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig with no rights but those of the manifests."""
    admin = Api(plane.kubeconfig)
    with applied(admin):
        file = login(admin, plane.kubeconfig, tmp_path_factory.mktemp("account") / "kubeconfig")
        wait_allowed(Api(file), True, group="", resource="pods", verb="watch")
        yield file


@pytest.fixture
async def state(account: Path) -> AsyncIterator[ClusterState]:
    async with scheduling(account) as running:
        yield running


async def until(api: Api, path: str, holds: Callable[[Any], object]) -> Any:
    """The object at `path` when `holds` is true of it."""
    for _ in range(10 * PATIENCE_S):
        if holds(found := await asyncio.to_thread(api.get, path)):
            return found
        await asyncio.sleep(0.1)
    events = await asyncio.to_thread(api.get, EVENTS)
    said = [(e["regarding"].get("name"), e["reason"], e["note"]) for e in events["items"]]
    raise AssertionError(f"{path} is still {found}; events: {said}")


async def node_of(api: Api, pod_name: str) -> str:
    found = await until(api, f"{PODS}/{pod_name}", lambda pod: pod["spec"].get("nodeName"))
    return str(found["spec"]["nodeName"])


async def event_on(api: Api, pod_name: str, saying: str) -> Any:
    def said(events: Any) -> bool:
        return any(
            e["regarding"].get("name") == pod_name and saying in e["note"] for e in events["items"]
        )

    return await until(api, EVENTS, said)


def is_bound(claim: Any) -> bool:
    return bool(claim["status"].get("phase") == "Bound")


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


async def test_the_volume_of_a_bound_claim_says_where_its_pod_goes(
    bench: Bench, state: ClusterState
) -> None:
    for suffix in "abc":
        bench.node(suffix)
    bench.storage_class(waits=False)
    bench.volume("pv", f"{bench.name}-c")
    wanted = bench.claim()
    await until(bench.api, f"{CLAIMS}/{wanted}", is_bound)

    pod_names = [bench.pod(wanted, f"pod{i}") for i in range(3)]

    assert {await node_of(bench.api, each) for each in pod_names} == {f"{bench.name}-c"}


async def test_a_claim_that_does_not_wait_holds_its_pod_back_until_it_is_bound(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(waits=False)
    wanted = bench.claim()
    pod_name = bench.pod(wanted)
    await event_on(bench.api, pod_name, f'persistentvolumeclaim "{wanted}" is not bound')
    assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]

    bench.volume("pv", f"{bench.name}-a")

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"
    assert is_bound(bench.api.get(f"{CLAIMS}/{wanted}"))


async def test_a_missing_claim_is_named_and_waited_for(bench: Bench, state: ClusterState) -> None:
    bench.node("a")
    bench.storage_class()
    bench.volume("pv", f"{bench.name}-a")
    pod_name = bench.pod(f"{bench.name}-claim")
    await event_on(bench.api, pod_name, f'persistentvolumeclaim "{bench.name}-claim" not found')

    bench.claim()

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


async def selected(bench: Bench, claim_name: str) -> str:
    """Where a volume for the claim is to be made, once that is said."""
    found = await until(
        bench.api,
        f"{CLAIMS}/{claim_name}",
        lambda claim: SELECTED_NODE in claim["metadata"].get("annotations", {}),
    )
    return str(found["metadata"]["annotations"][SELECTED_NODE])


def provision(bench: Bench, claim_name: str, node_name: str) -> None:
    """Make a volume for the claim there, as provisioners do."""
    metadata = bench.api.get(f"{CLAIMS}/{claim_name}")["metadata"]
    reference = {key: metadata[key] for key in ("namespace", "name", "uid")}
    bench.volume(f"made-for-{claim_name}", node_name, claimRef=reference)


async def test_a_volume_is_made_where_its_pod_is_to_be_and_only_then_is_the_pod_bound(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    pod_name = bench.pod(wanted)

    assert await selected(bench, wanted) == f"{bench.name}-a"
    assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]
    provision(bench, wanted, f"{bench.name}-a")

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"
    assert is_bound(bench.api.get(f"{CLAIMS}/{wanted}"))


async def test_more_pods_may_wait_for_volumes_than_are_bound_at_once(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    claims = [bench.claim(f"claim{i}") for i in range(40)]
    for wanted in claims:
        bench.pod(wanted, f"pod-of-{wanted}")
    for wanted in claims:
        await selected(bench, wanted)

    other = bench.claim("last")
    provision(bench, other, f"{bench.name}-a")
    await until(bench.api, f"{CLAIMS}/{other}", is_bound)
    pod_name = bench.pod(other)

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


async def test_a_volume_that_cannot_be_made_has_the_pod_tried_anew(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    pod_name = bench.pod(wanted)
    await selected(bench, wanted)

    bench.node("b")
    bench.api.patch(f"{CLAIMS}/{wanted}", {"metadata": {"annotations": {SELECTED_NODE: None}}})
    await event_on(bench.api, pod_name, "no volume could be made")
    again = await selected(bench, wanted)
    provision(bench, wanted, again)

    assert await node_of(bench.api, pod_name) == again


async def test_a_pod_that_goes_while_its_volume_is_made_is_forgotten(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    path = f"{PODS}/{bench.pod(wanted)}"
    uid = bench.api.get(path)["metadata"]["uid"]
    await selected(bench, wanted)
    assert state.is_assumed(uid)

    bench.api.delete(path)
    again = bench.pod(wanted)
    provision(bench, wanted, f"{bench.name}-a")

    assert await node_of(bench.api, again) == f"{bench.name}-a"
    assert not state.is_assumed(uid)


async def test_a_scheduler_that_starts_anew_goes_on_with_what_was_begun(
    bench: Bench, account: Path
) -> None:
    bench.node("a")
    bench.node("b")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    async with scheduling(account):
        pod_name = bench.pod(wanted)
        chosen = await selected(bench, wanted)

    provision(bench, wanted, chosen)

    async with scheduling(account):
        assert await node_of(bench.api, pod_name) == chosen
