"""A snapshot of a real API server, taken before the controller decides, decides the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest
from leadline_controller.clock import SystemClock
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.options import build
from leadline_controller.kube.client import ApiServer
from leadline_controller.kube.connection import Login
from leadline_controller.kube.reflector import watch_cluster
from leadline_controller.snapshot.capture import capture
from leadline_controller.snapshot.score import rule_of, start_scoring
from leadline_controller.snapshot.snapshot import read_snapshot
from leadline_controller.snapshot.writing import write_snapshot
from leadline_controller.strategies import STRATEGIES

from tests.controller.scheduling.paper_cluster import OPTIONS, SCENARIOS, reported
from tests.kube.api import Api
from tests.kube.paper_scenes import PODS, add_cluster
from tests.kube.volume_bench import NAME, Bench, scheduling, until

pytestmark = pytest.mark.cluster
SEED = 7  # as of the scheduler of the bench


@pytest.mark.parametrize("strategy", ["dacs 0.25", "tsra", "kcss"])
@pytest.mark.parametrize("anonymous", [False, True])
async def test_a_snapshot_decides_as_the_controller_does(
    account: Path, api: Api, bench: Bench, strategy: str, anonymous: bool
) -> None:
    scenario = SCENARIOS[2]
    names = await asyncio.to_thread(add_cluster, bench, scenario)
    telemetry = reported(scenario, SystemClock().now_s(), names)
    built = build(STRATEGIES[strategy.partition(" ")[0]], OPTIONS[strategy])
    state = ClusterState()
    async with ApiServer.connect(Login(account)) as server:
        async for change in watch_cluster(server):
            state.apply(change)
            if state.listed:
                break
    rule = Rule(built, FILTERS, Random(SEED), seed=SEED)
    taken = capture(state, telemetry, SystemClock().now_s(), rule, NAME)
    snapshot = read_snapshot(json.loads(json.dumps(write_snapshot(taken, anonymous=anonymous))))
    ours = [pod for pod in taken.pods if pod.name.startswith(f"{bench.name}-")]
    at = taken.pods.index(ours[0])
    assert snapshot.rule is not None
    foretold = next(
        start_scoring(snapshot, rule_of(snapshot.rule, built), [snapshot.pods[at]]).decisions
    )
    async with scheduling(account, built, telemetry):
        there = await until(api, f"{PODS}/{ours[0].name}", lambda pod: pod["spec"].get("nodeName"))
    name_of = dict(zip(snapshot.view.table.names, taken.view.table.names, strict=True))
    assert foretold.node is not None, foretold.why
    assert name_of[foretold.node] == there["spec"]["nodeName"]
