"""The clusters of the DACS paper as a running controller sees them: nodes and pods of a cluster,
and round trips and packets that agents report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leadline_controller.framework.model import MEMORY, PODS, Node, Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.telemetry.state import TelemetryState
from leadline_experiments.dacs.simulation import (
    LAMBDA_S,
    MASTER,
    PACKETS_PER_S,
    PHI,
    SCENARIO_1,
    SCENARIO_2,
    Scenario,
    cluster,
)

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder

SCENARIOS = {1: SCENARIO_1, 2: SCENARIO_2}
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "dacs 0.25": {"alpha": 0.25, "phi": PHI, "lambda": LAMBDA_S},
    "dacs 0.5": {"alpha": 0.5, "phi": PHI, "lambda": LAMBDA_S},
    "dacs 1": {"alpha": 1.0},
    **{name: {} for name in ("tsra", "nas", "kcss", "elasticfog", "kube-default")},
}


def offline(scenario: Scenario) -> tuple[ClusterView, tuple[Pod, ...]]:
    """The view and the pods of `leadline score`."""
    return cluster(scenario)


def online(
    scenario: Scenario, at_s: float = 0.0, rename: Mapping[str, str] | None = None
) -> tuple[Sequence[Node], Sequence[Pod], TelemetryState]:
    """Nodes; pods, of which those before the others are assigned; and what agents reported."""
    view, wanted = cluster(scenario)
    before = [
        Pod("default", f"before-{name}", f"uid-{name}", {MEMORY: mib * 2**20, PODS: 1})
        for name, mib in zip(("n1", "n2", "n3"), scenario.before_mib, strict=True)
        if mib
    ]
    there = [replace(pod, node_name=pod.name.removeprefix("before-"), runs_s=0.0) for pod in before]
    pending = [replace(pod, uid=f"uid-{pod.name}") for pod in wanted]
    nodes = [replace(node, bandwidth_mbps=node.bandwidth_mbps) for node in view.nodes]
    return nodes, [*there, *pending], reported(scenario, at_s, rename or {})


def reported(scenario: Scenario, at_s: float, rename: Mapping[str, str]) -> TelemetryState:
    """What the agents of the scenario's nodes, by these names, reported at this time."""
    names = [*(node.name for node in scenario.workers), MASTER]
    builder = TelemetryBuilder(*(rename.get(name, name) for name in names))
    for name in names:
        packets = (PACKETS_PER_S, PACKETS_PER_S)
        builder.report(rename.get(name, name), float("nan"), float("nan"), *packets, at_s=at_s)
    for (a, b), rtt_ms in scenario.rtt_ms.items():
        builder.rtt(rename.get(a, a), rename.get(b, b), rtt_ms, at_s)
    return builder.state
