"""On a real API server, a Deployment's pods are spread by kube-scheduler's default constraints."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.preferences import rule
from leadline_controller.strategies.dacs import Dacs

from tests.kube.api import Api
from tests.kube.objects import Object, deployment, pod
from tests.kube.volume_bench import NAME, Bench, scheduling, until

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
SETS = "/apis/apps/v1/namespaces/default/replicasets"
# One board has more room than the others, so that the paper's rule puts all pods there.
CORES = ("16", "4", "4", "4")


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
    made = bench.add(SETS, deployment(bench.name, pod("template")["spec"], replicas=0))
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    owner = {**kind, "name": bench.name, "uid": made["metadata"]["uid"]}
    for number in range(6):
        bench.add(PODS, a_replica(bench, number, owner))


@pytest.mark.parametrize(("setting", "counts"), [("on", [2, 2, 1, 1]), ("off", [6])])
async def test_a_deployment_of_6_on_4_boards(
    account: Path, api: Api, bench: Bench, setting: str, counts: list[int]
) -> None:
    await asyncio.to_thread(add_deployment, bench)
    async with scheduling(account, Dacs(), prefer=rule(setting)):
        found = []
        for number in range(6):
            path = f"{PODS}/{bench.name}-{number}"
            there = await until(api, path, lambda pod: pod["spec"].get("nodeName"))
            found.append(there["spec"]["nodeName"])
    assert sorted(Counter(found).values(), reverse=True) == counts
