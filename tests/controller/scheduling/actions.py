"""Changes of a cluster as actions on a Stage, and demands of pods."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from leadline_controller.framework.cluster_objects import Claim, ClusterObject, Volume
from leadline_controller.framework.model import (
    AffinityTerm,
    Disk,
    HostPort,
    Node,
    SpreadConstraint,
    Taint,
)
from leadline_controller.framework.selectors import Requirement

from tests.controller.scheduling.harness import SchedulerHarness, node
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PORT = HostPort("0.0.0.0", "TCP", 80)
DISK = Disk("awsElasticBlockStore", "vol-1")
TAINT, OTHER_TAINT = (Taint(key, "", "NoSchedule") for key in "ab")
BACKED_OFF_S = 10.0

Action = Callable[[SchedulerHarness], Any]


def label_in(label: str, value: str) -> Requirement:
    return Requirement(label, "In", (value,))


def term(app: str, key: str = HOST, **fields: Any) -> AffinityTerm:
    spaces = fields.pop("namespaces", frozenset({"default"}))
    return AffinityTerm(key, (label_in("app", app),), spaces, **fields)


def spread(key: str, **fields: Any) -> SpreadConstraint:
    return SpreadConstraint(key, 1, (label_in("app", "web"),), **fields)


def two_nodes(**fields: Any) -> list[Node]:
    return [node(name, labels={HOST: name, ZONE: name}, **fields) for name in ("n1", "n2")]


def bound_claim(name: str = "c", **fields: Any) -> Claim:
    return Claim("default", name, f"uid-{name}", "made", volume="v", bound=True, **fields)


def volume(**fields: Any) -> Volume:
    fields = {"driver": "csi.test", "handle": "h", "claim": "default/c", **fields}
    return Volume("v", "made", Fraction(2**30), **fields)


def measure_bandwidth(harness: SchedulerHarness, mbps: float) -> None:
    """Report a bandwidth test between the two nodes."""
    builder = TelemetryBuilder()
    builder.state = harness.telemetry
    for name in ("n1", "n2"):
        builder.birth(name)
    builder.bandwidth("n1", "n2", mbps, harness.clock.now_s())


def change_node(**changed: Any) -> Action:
    return lambda harness: harness.cluster.put_node(replace(harness.cluster.nodes[0], **changed))


def change_pod(name: str, **changed: Any) -> Action:
    def change(harness: SchedulerHarness) -> None:
        harness.cluster.put_pod(replace(harness.cluster.pod(f"default/{name}"), **changed))

    return change


def delete_pod(name: str) -> Action:
    return lambda harness: harness.cluster.remove_pod(f"default/{name}")


def put_object(made: ClusterObject) -> Action:
    return lambda harness: harness.cluster.put_object(made)
