"""The controller's answers as plain data, for JSON and YAML.

Numbers stay numbers. An unknown value is null or missing. An explanation has the shape of a
decision in the output of `leadline score`.
"""

from datetime import UTC, datetime
from typing import Any

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.framework.options import value_of_text

Document = dict[str, Any]
AGES = ("report", "bandwidth", "rtt")


def nodes(response: pb.ListNodesResponse) -> Document:
    """{"nodes": [...]}."""
    return {"nodes": [node(status) for status in response.nodes]}


def node(status: pb.NodeStatus) -> Document:
    """One node; its metrics by name, each with its age in seconds."""
    return {
        "name": status.name,
        "in_cluster": status.in_cluster,
        "schedulable": status.schedulable if status.in_cluster else None,
        "ready": status.ready if status.in_cluster else None,
        "tier": status.tier or None,
        "agent": status.agent,
        "agent_version": status.agent_version or None,
        "hardware_model": status.hardware_model or None,
        "address": status.address or None,
        "report_age_s": _optional(status, "report_age_s"),
        "metrics": {metric.name: _measurement(metric) for metric in status.metrics},
        "lost_messages": status.lost_messages,
        "pods": status.pods,
        "allocatable": _resources(status, "allocatable"),
        "requested": _resources(status, "requested"),
        "notes": list(status.notes),
    }


def node_details(response: pb.GetNodeResponse) -> Document:
    """One node with its links and the pods that were placed on it."""
    return {
        **node(response.node),
        "links": [link(each) for each in response.links],
        "placed_pods": list(response.placed_pods),
    }


def matrix(response: pb.GetMatrixResponse, kinds: tuple[str, ...]) -> Document:
    """{"nodes": [...], "links": [...]}. kinds: "rtt", "bandwidth" or both, the links' fields."""
    return {
        "nodes": list(response.nodes),
        "links": [link(each, kinds) for each in response.links],
    }


def link(status: pb.LinkStatus, kinds: tuple[str, ...] = ("rtt", "bandwidth")) -> Document:
    """One pair of nodes."""
    document: Document = {"a": status.a, "b": status.b}
    if "rtt" in kinds:
        document["rtt_ms"] = _optional(status, "rtt_ms")
        document["rtt_age_s"] = _optional(status, "rtt_age_s")
        document["rtt_method"] = status.rtt_method or None
        document["rtt_source"] = status.rtt_source or None
        document["rtt_error_ms"] = _optional(status, "rtt_error_ms")
    if "bandwidth" in kinds:
        document["bandwidth_mbps"] = _optional(status, "bandwidth_mbps")
        document["bandwidth_age_s"] = _optional(status, "bandwidth_age_s")
        document["bandwidth_is_lower_bound"] = status.bandwidth_is_lower_bound
    return document


def placements(response: pb.ListPlacementsResponse) -> Document:
    """{"placements": [...]}, oldest first; with "truncated" if older ones are left out."""
    document: Document = {"placements": [placement(each) for each in response.placements]}
    return {**document, "truncated": True} if response.truncated else document


def placement(status: pb.Placement) -> Document:
    """One decision. The node is null if the pod fits on none, the time if the clock was not set."""
    return {
        "pod": status.pod,
        "node": status.node or None,
        "why": status.why,
        "strategy": status.strategy,
        "outcome": status.outcome,
        "age_s": status.age_s,
        "time": _time(status),
        "times": max(1, status.times),
        "first_age_s": status.first_age_s,
    }


def explanation(response: pb.ExplainPodResponse) -> Document:
    """One decision with its scores, its rejected nodes and the decisions before it."""
    return {
        **placement(response.placement),
        "better": response.better,
        "options": {name: value_of_text(value) for name, value in sorted(response.options.items())},
        "rejected": {each.node: list(each.reasons) for each in response.rejected},
        "scores": {each.node: score(each) for each in response.scores},
        "scored_nodes": response.scored_nodes,
        "rejected_nodes": response.rejected_nodes,
        "rejected_by_filter": dict(sorted(response.rejected_by_filter.items())),
        "earlier": [placement(each) for each in response.earlier],
    }


def score(status: pb.NodeScore) -> Document:
    """One node's score, with "ages_s" if the strategy used measured values."""
    total, parts = _optional(status, "total"), dict(sorted(status.parts.items()))
    document: Document = {"total": total, "parts": parts}
    ages_s = {kind: _optional(status, f"{kind}_age_s") for kind in AGES}
    known = {kind: age_s for kind, age_s in ages_s.items() if age_s is not None}
    return {**document, "ages_s": known} if known else document


def event(message: pb.WatchEvent) -> Document:
    """{"node": {...}}, {"placement": {...}} or {"node_gone": name}."""
    match message.WhichOneof("what"):
        case "node":
            return {"node": node(message.node)}
        case "placement":
            return {"placement": placement(message.placement)}
        case "node_gone":
            return {"node_gone": message.node_gone}
    return {}


def _time(status: pb.Placement) -> str | None:
    if not status.HasField("unix_s"):
        return None
    return datetime.fromtimestamp(status.unix_s, UTC).isoformat(timespec="seconds")


def _measurement(metric: pb.Measurement) -> Document:
    document: Document = {"value": metric.value, "age_s": metric.age_s}
    if metric.lower_bound:
        document["lower_bound"] = True
    return document


def _resources(status: pb.NodeStatus, name: str) -> Document | None:
    if not status.in_cluster:
        return None
    resources: pb.Resources = getattr(status, name)
    return {
        "cpu_milli": resources.cpu_milli,
        "memory_bytes": resources.memory_bytes,
        "pods": resources.pods,
    }


def _optional(message: Any, name: str) -> float | None:
    return getattr(message, name) if message.HasField(name) else None
