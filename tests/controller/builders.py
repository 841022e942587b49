"""Builders of nodes, pods and cluster views with defaults for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from leadline_controller.framework.assigned_pods import AssignedPods, Namespaces
from leadline_controller.framework.callers import Caller
from leadline_controller.framework.callers import count as count_callers
from leadline_controller.framework.cluster_objects import (
    ClusterObject,
    NamespaceLabels,
    PodSelector,
    PodSelectors,
    Storage,
)
from leadline_controller.framework.link_table import LinkTable
from leadline_controller.framework.model import CPU, MEMORY, PODS, HostPort, Link, Node, Pod
from leadline_controller.framework.node_metrics import METRICS, NodeMetrics
from leadline_controller.framework.traffic import NO_TRAFFIC, Traffic
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.kubeobjects.manifest import read_pod

GIB = 1024**3


def node(name: str, *, cores: float = 4, gib: float = 8, pods: int = 110, **fields: Any) -> Node:
    extended = fields.pop("extended", {})
    allocatable = {CPU: round(cores * 1000), MEMORY: round(gib * GIB), PODS: pods, **extended}
    return Node(name, allocatable=allocatable, **fields)


def view(
    nodes: Sequence[Node],
    *,
    requested: Mapping[str, Sequence[int]] | None = None,
    metrics: Mapping[str, Sequence[float]] | None = None,
    links: Sequence[Link] = (),
    bandwidth_requested_mbps: Sequence[float] | None = None,
    placed: Sequence[int] | None = None,
    ports: Mapping[int, tuple[HostPort, ...]] | None = None,
    assigned_pods: Sequence[Pod] = (),
    objects: Sequence[ClusterObject] = (),
    bandwidth_most_mbps: Sequence[float] = (),
    bandwidth_host_limited: Sequence[bool] = (),
    errors: Mapping[str, float] | None = None,
    recently_placed: Sequence[int] = (),
    traffic: Traffic = NO_TRAFFIC,
) -> ClusterView:
    table = NodeTable(nodes)
    places = [table.index[pod.node_name or ""] for pod in assigned_pods]
    spaces = [each for each in objects if isinstance(each, NamespaceLabels)]
    count = len(nodes)
    unknown = [float("nan")] * count
    measured = metrics or {}
    assert set(measured) <= set(METRICS)
    callers: dict[tuple[str, str], Mapping[Caller, int]] = {}
    for each in assigned_pods:
        count_callers(callers, each, +1)
    return ClusterView(
        callers=callers,
        table=table,
        requested={k: np.array(v, dtype=np.int64) for k, v in (requested or {}).items()},
        metrics=NodeMetrics(
            **{name: np.array(measured.get(name, unknown), dtype=np.float64) for name in METRICS},
            bandwidth_most_mbps=np.array(bandwidth_most_mbps, dtype=np.float64),
            bandwidth_host_limited=np.array(bandwidth_host_limited, dtype=np.bool_),
            errors=np.full((count, len(METRICS)), [errors.get(name, 0.0) for name in METRICS])
            if errors
            else np.zeros((0, 0)),
        ),
        links=LinkTable(table.index, links),
        bandwidth_requested_mbps=np.array(
            bandwidth_requested_mbps or [0.0] * count, dtype=np.float64
        ),
        placed_in_run=np.array(placed or [0] * count, dtype=np.int64),
        recently_placed=np.array(recently_placed, dtype=np.int64),
        host_ports=ports or {},
        assigned_pods=AssignedPods().with_pods(zip(assigned_pods, places, strict=True)),
        mounts={
            place: tuple(p for p, at in zip(assigned_pods, places, strict=True) if at == place)
            for place in set(places)
        },
        namespaces=Namespaces({space.name: space.labels for space in spaces}),
        pod_selectors=PodSelectors(each for each in objects if isinstance(each, PodSelector)),
        storage=Storage.of(objects),
        traffic=traffic,
    )


def manifest(
    name: str = "p",
    *,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if requests is not None:
        resources["requests"] = dict(requests)
    if limits is not None:
        resources["limits"] = dict(limits)
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": {f"leadline.dev/{k}": v for k, v in (annotations or {}).items()},
        },
        "spec": {"containers": [{"name": "app", "resources": resources}], **spec},
    }


def pod(name: str = "p", **fields: Any) -> Pod:
    return read_pod(manifest(name, **fields))
