"""On a real API server, a Deployment's pods are spread by kube-scheduler's default constraints."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from leadline_controller.clock import SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.filters import FILTERS
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.preferences import rule
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.kube.api import Api
from tests.kube.objects import Object, pod
from tests.kube.volume_bench import Bench, until

pytestmark = pytest.mark.cluster

NAME = "leadline-spreading"  # of the scheduler
PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
# One board has more room than the others, so that the paper's rule puts all pods there.
CORES = ("16", "4", "4", "4")


@pytest.fixture
def bench(api: Api) -> Iterator[Bench]:
    made = Bench(api, NAME)
    try:
        yield made
    finally:
        made.clean()


def a_replica(bench: Bench, number: int, owner: Object) -> Object:
    made = pod(
        f"{bench.name}-{number}",
        scheduler=NAME,
        labels={"app": bench.name},
        node_selector={"spread": bench.name},
    )
    size = {"cpu": "500m", "memory": "128Mi"}
    made["spec"]["containers"][0]["resources"] = {"requests": size, "limits": size}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def add_deployment(bench: Bench) -> None:
    """Four boards, and a ReplicaSet with six pods, as its controller makes them."""
    for number, cores in enumerate(CORES):
        size: dict[str, Any] = {"cpu": cores, "memory": f"{cores}Gi"}
        bench.node(f"n{number}", labels={"spread": bench.name}, **size)
    labels = {"app": bench.name}
    template = {"metadata": {"labels": labels}, "spec": pod("template")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template, "replicas": 0}
    made = bench.add(SETS, {"metadata": {"name": bench.name}, "spec": spec})
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    owner = {**kind, "name": bench.name, "uid": made["metadata"]["uid"]}
    for number in range(6):
        bench.add(PODS, a_replica(bench, number, owner))


@pytest.mark.parametrize(("setting", "counts"), [("on", [2, 2, 1, 1]), ("off", [6])])
async def test_a_deployment_of_6_on_4_boards(
    account: Path, api: Api, bench: Bench, setting: str, counts: list[int]
) -> None:
    await asyncio.to_thread(add_deployment, bench)
    how = SchedulingProfile(Dacs(), FILTERS, Random(7), NAME, prefer=rule(setting))
    telemetry, decisions = TelemetryState(TimesToLive()), DecisionLog()
    async with KubeCluster.connect(account) as cluster:
        scheduler = Scheduler(cluster, ClusterState(), telemetry, decisions, how, SystemClock())
        task = asyncio.create_task(scheduler.run())
        try:
            found = []
            for number in range(6):
                path = f"{PODS}/{bench.name}-{number}"
                there = await until(api, path, lambda pod: pod["spec"].get("nodeName"))
                found.append(there["spec"]["nodeName"])
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert sorted(Counter(found).values(), reverse=True) == counts
