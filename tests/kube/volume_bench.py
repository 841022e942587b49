"""The objects of a volume test in the cluster, with unique names, deleted after the test.

A test plays the provisioner. The claims are bound by Kubernetes' own volume controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from leadline_controller.clock import SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Prefer, Rule, Strategy
from leadline_controller.history.log import DecisionLog
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.kube.api import Api, ApiError
from tests.kube.objects import Object, node, pod
from tests.kube.volumes import NO_PROVISIONER, claim, mounting, storage_class, volume
from tests.support.tasks import running

PROVISIONER = "test.leadline.dev/by-hand"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PODS = "/api/v1/namespaces/default/pods"
NAME = "leadline-test"  # of the scheduler
PATIENCE_S = 60  # the volume controller looks again every 15 s
_numbers = count(1)


class Bench:
    """Creates a test's objects with unique names and deletes them."""

    def __init__(self, api: Api, scheduler: str = NAME) -> None:
        self.api = api
        self._scheduler = scheduler
        self.name = f"vol{next(_numbers)}"
        self.classes = f"{self.name}-class"
        self._made: list[str] = []

    def node(self, suffix: str, **rest: Any) -> str:
        name = f"{self.name}-{suffix}"
        self.api.add_node(node(name, **rest))
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
        self.add(PODS, mounting(claim_name, name, scheduler=self._scheduler, **rest))
        return name

    def ephemeral_pod(self, suffix: str = "pod") -> str:
        """Make a pod whose claim, NAME-data, is made for it."""
        name = f"{self.name}-{suffix}"
        spec = claim("", self.classes)["spec"]
        data = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
        self._made.append(f"{CLAIMS}/{name}-data")
        self.add(PODS, pod(name, scheduler=self._scheduler, volumes=[data]))
        return name

    def provision(self, claim_name: str, node_name: str) -> str:
        """Create a volume for the claim on this node, as a provisioner does."""
        metadata = self.api.get(f"{CLAIMS}/{claim_name}")["metadata"]
        reference = {key: metadata[key] for key in ("namespace", "name", "uid")}
        return self.volume(f"made-for-{claim_name}", node_name, claimRef=reference)

    def clean(self) -> None:
        for path in reversed(self._made):
            with suppress(ApiError):
                self.api.patch(path, {"metadata": {"finalizers": None}})
                self.api.delete(path)
                # The volume controller adds its finalizers again.
                self.api.patch(path, {"metadata": {"finalizers": None}})


@asynccontextmanager
async def scheduling(
    kubeconfig: Path,
    strategy: Strategy | None = None,
    telemetry: TelemetryState | None = None,
    prefer: Prefer | None = None,
) -> AsyncIterator[ClusterState]:
    """A running scheduler on the cluster."""
    state, telemetry = ClusterState(), telemetry or TelemetryState(TimesToLive())
    rule = Rule(strategy or KubeDefault(), FILTERS, Random(7), prefer)
    step = DecisionStep(state, telemetry, DecisionLog(), rule, SystemClock())
    async with (
        KubeCluster.connect(kubeconfig) as cluster,
        running(Scheduler(cluster, step, scheduler_name=NAME).run()),
    ):
        yield state


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
