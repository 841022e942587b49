"""On a real API server, the paper's scenarios come out as `leadline score` has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from leadline_controller.clock import SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.decisions.log import DecisionLog
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.options import build
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.telemetry.state import TelemetryState
from leadline_experiments.dacs.simulation import MASTER, POD_CPU_MILLI, POD_MIB, Scenario

from tests.controller.scheduling.paper_cluster import OPTIONS, SCENARIOS, reported
from tests.kube.api import Api
from tests.kube.objects import pod
from tests.kube.volume_bench import EVENTS, Bench, until

pytestmark = pytest.mark.cluster

NAME = "leadline-runs"  # of the scheduler
PODS = "/api/v1/namespaces/default/pods"
PAPER = {
    "dacs 0.25": [3, 1, 2],
    "dacs 0.5": [3, 2, 1],
    "tsra": [4, 1, 1],
    "elasticfog": [2, 2, 2],
    "kcss": [0, 3, 3],
}


@asynccontextmanager
async def scheduling(
    account: Path, strategy: Strategy, telemetry: TelemetryState
) -> AsyncIterator[None]:
    """A running scheduler on the cluster."""
    profile = SchedulingProfile(strategy, FILTERS, Random(7), NAME)
    async with KubeCluster.connect(account) as cluster:
        scheduler = Scheduler(
            cluster, ClusterState(), telemetry, DecisionLog(), profile, SystemClock()
        )
        task = asyncio.create_task(scheduler.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def runs(api: Api) -> Iterator[Bench]:
    made = Bench(api, NAME)
    try:
        yield made
    finally:
        made.clean()


def add_cluster(bench: Bench, scenario: Scenario) -> dict[str, str]:
    """Add the scenario's nodes and pods; returns the paper's name of a node -> its name."""
    labels = {"runs": bench.name, "leadline.dev/bandwidth-mbps": "1000"}
    taint = {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}
    names = {MASTER: bench.node(MASTER, cpu="2", memory="8Gi", labels=labels, taints=[taint])}
    for each in scenario.workers:
        cores, memory = each.allocatable["cpu"], each.allocatable["memory"]
        made = bench.node(each.name, cpu=f"{cores}m", memory=f"{memory}", labels=labels)
        names[each.name] = made
    for number, user in enumerate(scenario.users, start=1):
        annotations = {
            "leadline.dev/user-node": names[user],
            "leadline.dev/data-mb": "1",
            "leadline.dev/bandwidth-mbps": f"{scenario.pod_mbps:g}",
        }
        bench.add(PODS, a_pod(f"{bench.name}-{number}", bench.name, annotations))
    return names


def a_pod(name: str, cluster: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    made = pod(
        name,
        f"{POD_CPU_MILLI}m",
        f"{POD_MIB}Mi",
        scheduler=NAME,
        labels={"app": cluster},
        annotations=annotations,
        node_selector={"runs": cluster},
    )
    made["spec"]["containers"][0]["resources"]["limits"] = {"memory": f"{POD_MIB}Mi"}
    return made


@pytest.mark.parametrize("strategy", PAPER)
async def test_scenario_2_comes_out_as_leadline_score_has_it(
    account: Path, api: Api, runs: Bench, strategy: str
) -> None:
    scenario = SCENARIOS[2]
    names = await asyncio.to_thread(add_cluster, runs, scenario)
    telemetry = reported(scenario, SystemClock().now_s(), names)
    built = build(STRATEGIES[strategy.partition(" ")[0]], OPTIONS[strategy])
    async with scheduling(account, built, telemetry):
        found = []
        for number in range(1, scenario.pod_count + 1):
            path = f"{PODS}/{runs.name}-{number}"
            there = await until(api, path, lambda pod: pod["spec"].get("nodeName"))
            found.append(there["spec"]["nodeName"])
    counts = Counter(found)
    assert [counts[names[worker]] for worker in ("n1", "n2", "n3")] == PAPER[strategy]


async def test_a_user_at_an_unknown_node_counts_as_none_with_a_warning(
    account: Path, api: Api, runs: Bench
) -> None:
    await asyncio.to_thread(runs.node, "only", labels={"runs": runs.name})
    lost = a_pod(f"{runs.name}-lost", runs.name, {"leadline.dev/user-node": "mars"})
    await asyncio.to_thread(runs.add, PODS, lost)
    telemetry = reported(SCENARIOS[2], SystemClock().now_s(), {})
    async with scheduling(account, Dacs(), telemetry):
        await until(api, f"{PODS}/{runs.name}-lost", lambda pod: pod["spec"].get("nodeName"))
        events = await until(
            api, EVENTS, lambda every: any(warns(each, runs.name) for each in every["items"])
        )
    (warning,) = [each for each in events["items"] if warns(each, runs.name)]
    assert "the cluster has no node 'mars'" in warning["note"]


def warns(event: Mapping[str, Any], name: str) -> bool:
    return bool(
        event["regarding"].get("name") == f"{name}-lost"
        and (event["type"], event["reason"]) == ("Warning", "UnknownUserNode")
    )
