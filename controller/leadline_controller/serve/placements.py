"""Decisions as the wire tells of them: where each pod went, and everything behind it."""

import math
from collections.abc import Mapping
from typing import TypeVar

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.serve.nodes import in_order
from leadline_controller.serve.source import InspectionSource
from leadline_controller.state.decisions import Record

Told = TypeVar("Told")


def pod_key(text: str) -> str:
    """namespace/name from what a person typed; a name alone is of the namespace default."""
    return text if "/" in text else f"default/{text}"


def placement(record: Record, now_s: float) -> pb.Placement:
    """One decision and what came of it."""
    decision = record.decision
    return pb.Placement(
        pod=decision.pod.key,
        node=decision.node or "",
        strategy=decision.strategy,
        why=decision.why,
        age_s=max(0.0, now_s - record.at_s),
        outcome=record.outcome,
    )


def placements(source: InspectionSource, since_s: float = 0.0) -> list[pb.Placement]:
    """The decisions younger than `since_s` (0: all that are remembered), oldest first."""
    now_s = source.now_s()
    told = (placement(record, now_s) for record in source.decisions.all())
    return [each for each in told if not since_s or each.age_s <= since_s]


def explanation(record: Record, now_s: float) -> pb.ExplainPodResponse:
    """A decision with every score and every refusal. Frozen data only, so any thread may."""
    decision = record.decision
    return pb.ExplainPodResponse(
        placement=placement(record, now_s),
        better=decision.better,
        options={name: f"{value:g}" for name, value in record.options.items()},
        scores=[
            pb.NodeScore(
                node=node,
                total=total if total is not None and math.isfinite(total) else None,
                parts={name: part for name, part in parts.items() if math.isfinite(part)},
            )
            for node, (total, parts) in _sorted(decision.scores())
        ],
        rejected=[
            pb.NodeRejection(node=node, reasons=reasons)
            for node, reasons in _sorted(decision.rejected())
        ],
    )


def _sorted(by_node: Mapping[str, Told]) -> list[tuple[str, Told]]:
    return sorted(by_node.items(), key=lambda item: in_order(item[0]))


def why_unexplained(source: InspectionSource, key: str) -> str:
    """One sentence on a pod of which no decision is remembered."""
    shown = key[:200]
    pod = next((pod for pod, _ in source.cluster.pods() if pod.key == key), None)
    if pod is None:
        return f"no decision about pod {shown} is remembered, and the cluster has no such pod"
    if pod.scheduler_name != source.scheduler_name:
        return (
            f"pod {shown} is not ours to place: its schedulerName is {pod.scheduler_name}, "
            f"not {source.scheduler_name}"
        )
    if not source.leadership.leads():
        holder = source.leadership.holder() or "another controller"
        return f"this controller stands by; ask the one that decides: {holder}"
    if pod.node_name is None:
        return f"pod {shown} is pending and nothing is decided about it yet"
    return (
        f"pod {shown} is on {pod.node_name}, but the decision is not remembered any more: "
        "it was made before this controller started, or too many came after it"
    )
