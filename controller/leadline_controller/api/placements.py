"""Decisions as the wire tells of them: where each pod went, and everything behind it."""

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.api.nodes import in_order
from leadline_controller.api.source import InspectionSource
from leadline_controller.decisions.explanation import BANDWIDTH, REPORT, RTT, Explanation
from leadline_controller.decisions.log import DecisionView
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import value_text
from leadline_controller.framework.view import Floats

# Fields of NodeScore; a file may name others.
_AGES = (REPORT, BANDWIDTH, RTT)


def pod_key(text: str) -> str:
    """namespace/name from what a person typed; a name alone is of the namespace default."""
    return text if "/" in text else f"default/{text}"


def placement(told: DecisionView) -> pb.Placement:
    """One decision and what came of it."""
    return pb.Placement(
        pod=told.pod,
        node=told.node or "",
        strategy=told.strategy,
        why=told.why,
        age_s=told.age_s,
        outcome=told.outcome,
        times=told.times,
        first_age_s=told.first_age_s,
        unix_s=told.unix_s,
    )


def listing(told: Sequence[DecisionView], *, truncated: bool) -> pb.ListPlacementsResponse:
    """These decisions in brief. Frozen data only, so any thread may."""
    return pb.ListPlacementsResponse(placements=map(placement, told), truncated=truncated)


async def decisions_about(source: InspectionSource, pod: str) -> list[DecisionView]:
    """The decisions about the pod with this key, the newest first, and the newest in full as
    long as the log has it so."""
    kept = await source.history.about(pod)
    record = source.decisions.get(pod)
    if record is None:
        return kept
    newest = await asyncio.to_thread(DecisionView.of, record, source.now_s())
    if not kept or not _is_same(kept[0], newest):
        return [newest, *kept]
    explanation = newest.explanation if record.decision.has_basis else kept[0].explanation
    return [replace(kept[0], outcome=newest.outcome, explanation=explanation), *kept[1:]]


def _is_same(one: DecisionView, other: DecisionView) -> bool:
    return (one.uid, one.node, one.why) == (other.uid, other.node, other.why)


def explanation(told: Sequence[DecisionView]) -> pb.ExplainPodResponse:
    """The first of these decisions with its scores and refusals, the others in brief."""
    last, explanation = told[0], told[0].explanation
    return pb.ExplainPodResponse(
        placement=placement(last),
        better=last.better,
        options={name: value_text(value) for name, value in last.options.items()},
        scores=list(_scores(explanation)),
        rejected=[
            pb.NodeRejection(node=node, reasons=explanation.reasons[node])
            for node in sorted(explanation.reasons, key=in_order)
        ],
        scored_nodes=explanation.scored,
        rejected_nodes=explanation.rejected,
        rejected_by_filter=explanation.failing,
        earlier=[placement(each) for each in told[1:]],
    )


def _scores(explanation: Explanation) -> Iterator[pb.NodeScore]:
    for at in sorted(range(len(explanation.nodes)), key=lambda at: in_order(explanation.nodes[at])):
        score = pb.NodeScore(node=explanation.nodes[at], parts=dict(_known(explanation.parts, at)))
        if math.isfinite(explanation.total[at]):
            score.total = explanation.total[at]
        ages_s = {kind: x for kind, x in explanation.ages_s.items() if kind in _AGES}
        for kind, age_s in _known(ages_s, at):
            setattr(score, f"{kind}_age_s", max(0.0, age_s))
        yield score


def _known(columns: Mapping[str, Floats], at: int) -> Iterator[tuple[str, float]]:
    for name, column in columns.items():
        if math.isfinite(column[at]):
            yield name, float(column[at])


def why_unexplained(source: InspectionSource, key: str) -> str:
    """One sentence on a pod of which no decision is remembered."""
    shown = key[:200]
    pod = next((pod for pod, _ in source.cluster.pods() if pod.key == key), None)
    if pod is None:
        return f"no decision about pod {shown} is remembered, and the cluster has no such pod"
    if pod.scheduler_name != source.scheduler_name:
        return _why_unadvised(source, pod)
    if not source.places:
        return (
            f"pod {shown} has schedulerName {pod.scheduler_name}, but this controller places no "
            "pods itself: kubernetes.standalone is false"
        )
    if not source.leadership.leads():
        holder = source.leadership.holder() or "another controller"
        return f"this controller stands by; ask the one that decides: {holder}"
    if pod.node_name is None:
        return f"pod {shown} is pending and nothing is decided about it yet"
    return (
        f"pod {shown} is on {pod.node_name}, but the decision is not remembered any more: it is "
        "older than decisions.max_age_days, did not fit decisions.max_mb, or was another "
        "controller's"
    )


def _why_unadvised(source: InspectionSource, pod: Pod) -> str:
    shown = pod.key[:200]
    if not source.advises:
        return (
            f"pod {shown} is not ours to place: its schedulerName is {pod.scheduler_name}, "
            f"not {source.scheduler_name}"
        )
    theirs = f"kube-scheduler places it (schedulerName {pod.scheduler_name})"
    if pod.node_name is None:
        return f"pod {shown} is pending: {theirs}, and has not asked Leadline about it lately"
    return (
        f"pod {shown} is on {pod.node_name}: {theirs}, and no answer of Leadline about it is "
        "remembered: it was bound before kube-scheduler asked Leadline, while Leadline was away, "
        "or too long ago"
    )
