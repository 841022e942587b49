"""A short thread of DACS' experiments with real parts: three pods of its first scenario."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from leadline_controller.strategies.dacs import Dacs
from leadline_experiments.dacs.simulation import LAMBDA_S, PHI, SCENARIO_1, place

from tests.system.dacs_lab import STOCK, play

pytestmark = [pytest.mark.network, pytest.mark.broker, pytest.mark.cluster]
DACS = ("dacs", "alpha=0.5")
LOADS = {"low load": 5, "high load": 50}


@pytest.mark.timeout(900)
def test_real_parts_place_pods_as_the_simulation_and_the_pods_compute() -> None:
    scenario = replace(SCENARIO_1, pod_count=3)
    ours, stock = play(scenario, [DACS, STOCK], LOADS)
    strategy = Dacs(0.5, phi=PHI, lambda_s=LAMBDA_S)
    assert ours.outcome.nodes == place(scenario, strategy, Random(0))
    for (a, b), table_ms in scenario.rtt_ms.items():
        assert table_ms < ours.rtt_ms[f"{min(a, b)}-{max(a, b)}"] < table_ms * 1.5 + 10
    for run in (ours, stock):
        assert None not in run.outcome.nodes
        low, high = (run.outcome.requests[load] for load in LOADS)
        for short, long in zip(low, high, strict=True):
            # Ten times the work, under a quota of a fifth of a core.
            assert long.processing_s > 3 * short.processing_s
        assert 0 < run.served_share < 1.5
        # A round trip for the connection and one for the answer, but for users at their pods' node.
        far = scenario.rtt_between_ms(run.outcome.nodes[0] or "", "n1") / 1000
        assert run.outcome.requests["low load"][0].network_s > 2 * far
