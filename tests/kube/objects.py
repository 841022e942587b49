"""Kubernetes objects as plain dicts, with defaults for all that a test need not set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]


def node(
    name: str,
    cpu: str = "4",
    memory: str = "4Gi",
    pods: int = 110,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
    unschedulable: bool = False,
    address: str | None = None,
) -> Object:
    """Return a node as its kubelet would register it; quantities in Kubernetes' notation."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints], "unschedulable": unschedulable},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [condition("Ready", ready)],
            **({"addresses": [{"type": "InternalIP", "address": address}]} if address else {}),
        },
    }


def condition(kind: str, holds: bool) -> Object:
    """Return a node's condition."""
    return {"type": kind, "status": str(holds), "reason": "Test", "message": "set by a test"}


def pod(
    name: str,
    cpu: str | None = None,
    memory: str | None = None,
    *,
    scheduler: str = "leadline",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    host_port: int | None = None,
    **spec: Any,
) -> Object:
    """Return a pod of one container; `spec` holds further fields by their Kubernetes names."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    container: Object = {"name": "main", "image": "test", "resources": {"requests": requests}}
    if host_port is not None:
        container["ports"] = [{"containerPort": host_port, "hostPort": host_port}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "nodeSelector": dict(node_selector or {}),
            **spec,
        },
    }


def deployment(
    name: str,
    spec: Object,
    replicas: int = 1,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return a Deployment whose pods have this spec, and by default the label app of its name."""
    labels = dict(labels or {"app": name})
    metadata = {"labels": labels, "annotations": dict(annotations or {})}
    template = {"metadata": metadata, "spec": spec}
    selector = {"matchLabels": labels}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def binding(pod: Object, node_name: str) -> Object:
    """Return the binding of a pod, as the API server answered it, to a node."""
    metadata = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": target,
    }


def namespace(name: str) -> Object:
    """Return a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
