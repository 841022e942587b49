"""On a real API server, the paper's scenarios come out as `leadline score` has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.clock import SystemClock
from leadline_controller.framework.options import build
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.dacs import Dacs

from tests.controller.scheduling.paper_cluster import OPTIONS, SCENARIOS, reported
from tests.kube.api import Api
from tests.kube.paper_scenes import PODS, a_pod, add_cluster
from tests.kube.volume_bench import EVENTS, Bench, scheduling, until

pytestmark = pytest.mark.cluster

PAPER = {
    "dacs 0.25": [3, 1, 2],
    "dacs 0.5": [3, 2, 1],
    "tsra": [4, 1, 1],
    "elasticfog": [2, 2, 2],
    "kcss": [0, 3, 3],
}


@pytest.mark.parametrize("strategy", PAPER)
async def test_scenario_2_comes_out_as_leadline_score_has_it(
    account: Path, api: Api, bench: Bench, strategy: str
) -> None:
    scenario = SCENARIOS[2]
    names = await asyncio.to_thread(add_cluster, bench, scenario)
    telemetry = reported(scenario, SystemClock().now_s(), names)
    built = build(STRATEGIES[strategy.partition(" ")[0]], OPTIONS[strategy])
    async with scheduling(account, built, telemetry):
        found = []
        for number in range(1, scenario.pod_count + 1):
            path = f"{PODS}/{bench.name}-{number}"
            there = await until(api, path, lambda pod: pod["spec"].get("nodeName"))
            found.append(there["spec"]["nodeName"])
    counts = Counter(found)
    assert [counts[names[worker]] for worker in ("n1", "n2", "n3")] == PAPER[strategy]


async def test_a_user_at_an_unknown_node_counts_as_none_with_a_warning(
    account: Path, api: Api, bench: Bench
) -> None:
    await asyncio.to_thread(bench.node, "only", labels={"runs": bench.name})
    lost = a_pod(f"{bench.name}-lost", bench.name, {"leadline.dev/user-node": "mars"})
    await asyncio.to_thread(bench.add, PODS, lost)
    telemetry = reported(SCENARIOS[2], SystemClock().now_s(), {})
    async with scheduling(account, Dacs(), telemetry):
        await until(api, f"{PODS}/{bench.name}-lost", lambda pod: pod["spec"].get("nodeName"))
        events = await until(
            api, EVENTS, lambda every: any(warns(each, bench.name) for each in every["items"])
        )
    (warning,) = [each for each in events["items"] if warns(each, bench.name)]
    assert "the cluster has no node 'mars'" in warning["note"]


def warns(event: Mapping[str, Any], name: str) -> bool:
    return bool(
        event["regarding"].get("name") == f"{name}-lost"
        and (event["type"], event["reason"]) == ("Warning", "UnknownUserNode")
    )
