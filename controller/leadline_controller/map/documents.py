"""The map's JSON: from the messages of the inspection service, so that both say the same.

Names are chosen by agents and users. They are JSON strings here and nothing else: `encode` escapes
what could end a script or an element, should somebody put an answer into a page.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from leadline_wire.v1 import control_pb2 as pb

_DIGITS = 4
_MAX_LISTED = 300
_MOST_PODS = 200
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
Json = dict[str, Any]


def encode(value: object) -> bytes:
    """ASCII in one line, without <, > and &. Raises ValueError for a number that is not finite."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES).encode("ascii")


def encode_long(head: Json, **lists: Iterable[object]) -> bytes:
    """An object with these long lists after its head. Each element is encoded by itself, because
    the encoder lets no other thread run."""
    parts = [encode(head)[:-1]]
    for name, elements in lists.items():
        parts += (b',"%b":[' % name.encode(), b",".join(map(encode, elements)), b"]")
    return b"".join(parts) + b"}"


def number(value: float | None) -> float | None:
    """A number with enough digits; None if it is unknown."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, _DIGITS)


def numbers(values: Iterable[float]) -> list[float | None]:
    """A list of them."""
    return [number(value) for value in values]


def node(
    status: pb.NodeStatus, position: tuple[float, float], pods: Sequence[Json], *, placed: bool
) -> Json:
    """A board as the overview has it. pods: those on it."""
    metrics = {metric.name: metric for metric in status.metrics}
    bandwidth = metrics.get("bandwidth_mbps")
    online = {"online": True, "offline": False, "silent": False}.get(status.agent)

    def value(name: str) -> float | None:
        return number(metrics[name].value) if name in metrics else None

    return {
        "name": status.name,
        "x": position[0],
        "y": position[1],
        "placed": placed,
        "agent": status.agent,
        "online": online,
        "in_cluster": status.in_cluster,
        "ready": status.ready if status.in_cluster else None,
        "schedulable": status.schedulable if status.in_cluster else None,
        "tier": status.tier,
        "notes": list(status.notes),
        "bandwidth_mbps": value("bandwidth_mbps"),
        "bandwidth_kind": kind(bandwidth),
        "bandwidth_source": bandwidth.source if bandwidth else "",
        "bandwidth_in_words": bandwidth.in_words if bandwidth else "",
        "bandwidth_age_s": number(bandwidth.age_s) if bandwidth else None,
        "cpu_percent": value("cpu_percent"),
        "memory_percent": value("memory_percent"),
        "temperature_c": value("cpu_celsius"),
        "age_s": number(status.report_age_s) if status.HasField("report_age_s") else None,
        **listed(pods),
    }


def listed(pods: Sequence[Json]) -> Json:
    """A board's pods as the overview has them: some, and how many there are if that is more."""
    if len(pods) <= _MOST_PODS:
        return {"pods": list(pods)}
    return {"pods": list(pods[:_MOST_PODS]), "pods_total": len(pods)}


def kind(bandwidth: pb.Measurement | None) -> str:
    """What a bandwidth's value says."""
    if bandwidth is None:
        return "unknown"
    if bandwidth.suspect:
        return "suspect"
    if bandwidth.host_limited:
        return "host-limited"
    return "at-least" if bandwidth.lower_bound else "exact"


def link(status: pb.LinkStatus) -> Json:
    """A link as the overview has it."""
    a, b = sorted((status.a, status.b))
    bandwidth_kind = "unknown"
    if status.HasField("bandwidth_mbps"):
        bandwidth_kind = "exact"
        if status.bandwidth_is_host_limited:
            bandwidth_kind = "host-limited"
        elif status.bandwidth_is_lower_bound:
            bandwidth_kind = "at-least"
    return {
        "a": a,
        "b": b,
        "rtt_ms": known(status, "rtt_ms"),
        "error_ms": known(status, "rtt_error_ms"),
        "source": "bounded" if status.rtt_method == "mqtt" else status.rtt_source,
        "age_s": known(status, "rtt_age_s"),
        "loss": known(status, "loss"),
        "jitter_ms": known(status, "jitter_ms"),
        "flapping": status.flapping,
        "bandwidth_mbps": known(status, "bandwidth_mbps"),
        "bandwidth_kind": bandwidth_kind,
        "bandwidth_age_s": known(status, "bandwidth_age_s"),
    }


def node_details(status: pb.NodeStatus, links: Sequence[pb.LinkStatus]) -> Json:
    """What a board's page has beside the overview's fields."""
    nearest = sorted(links, key=lambda each: each.rtt_ms if each.HasField("rtt_ms") else math.inf)
    bandwidth = "bandwidth_mbps"
    return {
        "address": status.address,
        "hardware_model": status.hardware_model,
        "agent_version": status.agent_version,
        "lost_messages": status.lost_messages,
        "allocatable": _resources(status.allocatable) if status.in_cluster else None,
        "requested": _resources(status.requested) if status.in_cluster else None,
        "metrics": [
            {
                "name": metric.name,
                "value": number(metric.value),
                "age_s": number(metric.age_s),
                "confidence": number(metric.confidence),
                "kind": kind(metric) if metric.name == bandwidth else "",
                "source": metric.source,
            }
            for metric in status.metrics
        ],
        "links": [link(each) for each in nearest[:_MAX_LISTED]],
        "links_total": len(links),
    }


def decision(placement: pb.Placement) -> Json:
    """A decision as lists have it."""
    namespace, _, name = placement.pod.partition("/")
    return {
        "id": placement.pod,
        "namespace": namespace,
        "name": name,
        "node": placement.node or None,
        "strategy": placement.strategy,
        "why": placement.why,
        "outcome": placement.outcome,
        "times": max(1, placement.times),
        # Not rounded: it is where the next page of the list begins.
        "unix_s": placement.unix_s if placement.HasField("unix_s") else None,
        "age_s": number(placement.age_s),
    }


def explained(answer: pb.ExplainPodResponse) -> Json:
    """A decision with its scores, the best first, and its rejections."""
    sign = -1.0 if answer.better == "higher" else 1.0

    def rank(score: pb.NodeScore) -> float:
        return sign * score.total if score.HasField("total") else math.inf

    return {
        **decision(answer.placement),
        "better": answer.better,
        "options": dict(answer.options),
        "scored_nodes": answer.scored_nodes,
        "rejected_nodes": answer.rejected_nodes,
        "scores": [
            {
                "node": score.node,
                "total": known(score, "total"),
                "parts": {name: number(value) for name, value in score.parts.items()},
                "report_age_s": known(score, "report_age_s"),
                "bandwidth_age_s": known(score, "bandwidth_age_s"),
                "rtt_age_s": known(score, "rtt_age_s"),
            }
            for score in sorted(answer.scores, key=rank)
        ],
        "rejected": [
            {"node": each.node, "reasons": list(each.reasons)} for each in answer.rejected
        ],
        "rejected_by_filter": dict(answer.rejected_by_filter),
        "earlier": [decision(each) for each in answer.earlier],
    }


def history(node: str, answer: pb.GetHistoryResponse, steps: int) -> Json:
    """The series of a board in so many steps."""
    return {
        "node": node,
        "from_unix_s": answer.from_unix_s,
        "step_s": answer.step_s,
        "steps": steps,
        "series": [
            {
                "name": each.name,
                "peer": each.peer,
                "mean": numbers(each.mean),
                "min": numbers(each.min),
                "max": numbers(each.max),
            }
            for each in answer.series
        ],
    }


def known(message: Any, name: str) -> float | None:
    """A number of a message; None if it is not set."""
    return number(getattr(message, name)) if message.HasField(name) else None


def _resources(amounts: pb.Resources) -> Json:
    return {
        "cpu_milli": amounts.cpu_milli,
        "memory_bytes": amounts.memory_bytes,
        "pods": amounts.pods,
    }
