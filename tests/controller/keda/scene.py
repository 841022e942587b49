"""A service that KEDA scales over five nodes."""

from collections.abc import Mapping
from random import Random
from typing import Any

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.ports import Relisted
from leadline_controller.history.log import DecisionLog
from leadline_controller.keda.scaler import ScalerService, read_trigger
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.strategies.response_time import ResponseTime

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.support.manual_clock import ManualClock

PING_MS = {"w1": 5.0, "w2": 20.0, "w3": 40.0, "w4": 120.0}


PROFILE_MS = dict.fromkeys(PING_MS, 10.0)


RATE = {"pods": "app=web", "requests": "requests_total", "target": "50"}


TIME = {**RATE, "metric": "response-time"}


def replica(name: str, node: str | None = None, app: str = "web", **changed: Any) -> Pod:
    annotations = PodAnnotations(
        user_node="gate",
        response_time_ms=changed.pop("response_time_ms", 100.0),
        profile_ms=PROFILE_MS,
    )
    requests = {CPU: changed.pop("cpu_milli", 1000), PODS: 1}
    return Pod(
        "default",
        name,
        uid=name,
        requests=requests,
        labels={"app": app},
        annotations=annotations,
        node_name=node,
        **changed,
    )


class Scene:
    """Five nodes of one core, of which w4 is over the threshold and gate is cordoned."""

    def __init__(self, *pods: Pod, strategy: Any = None) -> None:
        self.clock = ManualClock(1000.0)
        self.rate_per_s = 0.0
        self.state = ClusterState(now_s=self.clock.now_s)
        telemetry = TelemetryBuilder("gate", *PING_MS)
        for name, rtt_ms in PING_MS.items():
            telemetry.rtt("gate", name, rtt_ms, 999.0)
        nodes = [Node(name, {CPU: 1000, PODS: 10}) for name in PING_MS]
        nodes.append(Node("gate", {CPU: 1000, PODS: 10}, unschedulable=True))
        self.state.apply(Relisted(tuple(nodes), pods))
        rule = Rule(strategy or ResponseTime(), FILTERS, Random(1))
        step = DecisionStep(self.state, telemetry.state, DecisionLog(), rule, self.clock)
        self.service = ScalerService(step, lambda _counter, _client: self.rate_per_s)

    async def value(self, metadata: Mapping[str, str], rate_per_s: float) -> float:
        self.rate_per_s = rate_per_s
        return await self.service.value(read_trigger("default", metadata))
