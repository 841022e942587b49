"""Extender arguments as kube-scheduler sends them, and an extender service in memory."""

import json
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from leadline_controller.cluster.reservations import Reservation
from leadline_controller.cluster.state import ClusterState
from leadline_controller.extender.protocol import read_extender_args
from leadline_controller.extender.service import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderService,
    extender_rule,
)
from leadline_controller.filters import EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.cycle import Filter, Rule, Strategy
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import PodChanged, Relisted
from leadline_controller.history.log import DecisionLog
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.kube.objects import Object, node, pod
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

BANDWIDTH = "leadline.dev/bandwidth-mbps"
PATIENCE_S = 90.0
NAMES = ["n1", "n2", "n3"]
OWN_FILTERS: Mapping[str, Filter] = {name: FILTERS[name] for name in EXTENDER_FILTERS}


def wide(name: str, mbps: float, cpu: str = "4", **fields: Any) -> Object:
    """A node with a link of this capacity."""
    return node(name, cpu=cpu, labels={BANDWIDTH: f"{mbps:g}"}, **fields)


def nodes_with_mbps(*mbps: float) -> list[Node]:
    """n1, n2 and so on, with links of these capacities."""
    return [read_node(wide(f"n{i}", each)) for i, each in enumerate(mbps, 1)]


def pod_manifest(name: str, mbps: float | str | None = None, **annotations: str) -> Object:
    """A pod of kube-scheduler; `annotations` without their prefix, and with _ for -."""
    named = {f"leadline.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    if mbps is not None:
        named[BANDWIDTH] = mbps if isinstance(mbps, str) else f"{mbps:g}"
    made = pod(name, cpu="100m", annotations=named, scheduler="default-scheduler")
    made["metadata"] |= {"namespace": "default", "uid": f"uid-{name}"}
    return made


def args(
    pod: Object, names: Iterable[str] | None = None, nodes: Iterable[Object] | None = None
) -> bytes:
    """ExtenderArgs in the JSON of Go."""
    whole = None if nodes is None else {"metadata": {}, "items": list(nodes)}
    named = None if names is None else list(names)
    return json.dumps({"Pod": pod, "Nodes": whole, "NodeNames": named}).encode()


def extender_args(
    pod: Object, names: Iterable[str] | None = None, nodes: Iterable[Object] | None = None
) -> ExtenderArgs:
    return read_extender_args(args(pod, names, nodes))


def replacement_manifest(name: str, mbps: float) -> Object:
    """A pod of the ReplicaSet whose uid is "uid-set"."""
    made = pod_manifest(name, mbps)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "uid-set"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


def binding(pod: Pod, node: str) -> ExtenderBindingArgs:
    return ExtenderBindingArgs(pod.namespace, pod.name, pod.uid, node)


# The nodes that pass, and why the others do not.
Filtered = tuple[list[str], dict[str, str]]


class ExtenderHarness:
    """An extender service for a cluster in memory; `hear` passes on changes of the watch."""

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        *,
        strategy: Strategy | None = None,
        every_filter: bool = False,
        warm_up_s: float = 0.0,
        expected_s: float = 60.0,
        uncertain_s: float = 0.05,
        cluster: MemoryCluster | None = None,
    ) -> None:
        strategy = strategy or Dacs(alpha=0.0)
        self.cluster = cluster or MemoryCluster(nodes)
        self.clock = ManualClock()
        self.state = ClusterState(now_s=self.clock.now_s)
        self.telemetry = TelemetryState(TimesToLive())
        self.decisions = DecisionLog()
        rule = extender_rule(Rule(strategy, FILTERS, Random(7)), every_filter=every_filter)
        step = DecisionStep(
            *(self.state, self.telemetry, self.decisions, rule, self.clock), warm_up_s
        )
        self.extender_service = ExtenderService(
            self.cluster,
            step,
            every_filter=every_filter,
            expected_s=expected_s,
            uncertain_s=uncertain_s,
        )

    def list(self) -> None:
        """Send the first list of the watch."""
        self.hear(Relisted(tuple(self.cluster.nodes), tuple(self.cluster.pods)))

    def hear(self, change: Any) -> None:
        """Send a change of the watch."""
        self.state.apply(change)
        self.extender_service.observe(change)

    def filter(self, *asked: Any, **nodes: Any) -> Filtered:
        return self.extender_service.filter(extender_args(*asked, **nodes))

    def prioritize(self, *asked: Any, **nodes: Any) -> dict[str, int]:
        return self.extender_service.prioritize(extender_args(*asked, **nodes))

    async def bind(self, pod: Pod, node: str) -> None:
        await self.extender_service.bind(binding(pod, node))

    def put(self, name: str, mbps: float | None = None) -> Pod:
        return self.put_manifest(pod_manifest(name, mbps))

    def put_manifest(self, manifest: Object) -> Pod:
        """Create a pod that our watch shows as well."""
        pod = self.cluster.put_pod(pending(manifest))
        self.hear(PodChanged(pod))
        return pod

    def keep_room(self, mbps: float, node: str) -> None:
        """Reserve room on a node for the replacement of a pod that moves there."""
        moved = pending(replacement_manifest("moved", mbps))
        self.state.reserve(Reservation(moved, node, "elsewhere"))

    def outcome(self, name: str) -> tuple[str | None, str]:
        record = self.decisions.get(f"default/{name}")
        assert record is not None
        return record.node, record.outcome

    def free_mbps(self) -> dict[str, float]:
        view = self.state.view(self.telemetry, self.clock.now_s())
        return dict(zip(view.table.names, view.bandwidth_free_mbps().tolist(), strict=True))


def pending(pod: Object) -> Pod:
    """The pod as the watch shows it."""
    return extender_args(pod, []).pod


def listed(nodes: Iterable[Node] | None = None, **options: Any) -> ExtenderHarness:
    """A harness that has its list, by default of three nodes, the third with the widest link and so
    the best for much data."""
    harness = ExtenderHarness(nodes_with_mbps(10, 100, 1000) if nodes is None else nodes, **options)
    harness.list()
    return harness
