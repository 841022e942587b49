"""Decisions as messages of the inspection service."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from operator import attrgetter

from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import images_pb2 as pb_images

from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import value_text
from leadline_controller.framework.selectors import Selector, selects
from leadline_controller.framework.view import Floats
from leadline_controller.history.explanation import (
    BANDWIDTH,
    RATES_UNKNOWN,
    RECENTLY_PLACED,
    REPORT,
    RTT,
    Explanation,
)
from leadline_controller.history.log import BOUND, DELETED, GONE, PENDING
from leadline_controller.history.record import DecisionRecord, ages_s, bounded_text
from leadline_controller.history.store import Select
from leadline_controller.history.times import Moment
from leadline_controller.inspect.messages import message
from leadline_controller.inspect.order import in_order
from leadline_controller.inspect.parts import Observed

# The fields of NodeScore; a database file may name others.
_AGES = (REPORT, BANDWIDTH, RTT)
_RESULT = attrgetter("uid", "node", "why")


def placement(record: DecisionRecord, now: Moment, age_s: float | None = None) -> pb.Placement:
    """A decision and its outcome, without its explanation. age_s: if not as of the record."""
    return message(
        pb.Placement,
        record,
        node=record.node or "",
        age_s=record.last.age_s(now) if age_s is None else age_s,
        first_age_s=record.first.age_s(now),
        unix_s=record.last.unix_s(now),
    )


def selection(
    request: pb.ListPlacementsRequest, source: Observed, selector: Selector = ()
) -> Select:
    """What the request asks for, for any thread, with the outcomes that the cluster shows now: a
    pod may have been deleted while no controller ran. selector: of the pods' labels."""
    pods = list(source.state.pods()) if source.state.listed else None

    @cache
    def by_uid() -> Mapping[str, Pod]:
        """Made where it is asked for, as there may be many pods."""
        return {bounded_text(pod.uid): pod for pod, _ in pods or ()}

    def select(record: DecisionRecord) -> DecisionRecord | None:
        pod = by_uid().get(record.uid)
        if pods is not None and pod is None:
            record = _of_gone_pod(record)
        is_pending = record.outcome != BOUND and pod is not None and pod.node_name is None
        if (
            (selector and (pod is None or not selects(selector, pod.labels)))
            or (request.namespace and record.pod.partition("/")[0] != request.namespace)
            or (request.node and record.node != request.node)
            or (request.strategy and record.strategy != request.strategy)
            or (request.pending and not is_pending)
        ):
            return None
        return record

    return select


def _of_gone_pod(record: DecisionRecord) -> DecisionRecord:
    """The decision about a pod that does not exist any more."""
    outcomes = {BOUND: DELETED, PENDING: GONE}
    return record._replace(outcome=outcomes.get(record.outcome, record.outcome))


def listing(
    records: Sequence[DecisionRecord], now: Moment, *, truncated: bool
) -> pb.ListPlacementsResponse:
    """These decisions, oldest first. Safe in any thread."""
    ages = list(ages_s(reversed(records), now))
    return pb.ListPlacementsResponse(
        placements=map(placement, records, repeat(now), reversed(ages)), truncated=truncated
    )


async def decisions_about(source: Observed, pod: str) -> list[DecisionRecord]:
    """The decisions about the pod with this key, the newest first."""
    stored = await source.history.about(pod)
    live = source.decisions.get(pod)
    if live is None:
        if stored and source.state.listed and source.state.pod(stored[0].uid) is None:
            stored[0] = _of_gone_pod(stored[0])
        return stored
    if not stored or _RESULT(stored[0]) != _RESULT(live):
        return [live, *stored]
    # The log has the whole decision for a while, the database how often it was repeated.
    newest = stored[0]._replace(
        outcome=live.outcome, decision=live.decision, decided_s=live.decided_s
    )
    return [newest, *stored[1:]]


def explanation(newest_first: Sequence[DecisionRecord], now: Moment) -> pb.ExplainPodResponse:
    """The first of these decisions with its scores and refusals, and the earlier ones without."""
    newest, *earlier = newest_first
    explained = newest.explain()
    return pb.ExplainPodResponse(
        placement=placement(newest, now),
        better=newest.better,
        options={name: value_text(value) for name, value in newest.options.items()},
        scores=list(_scores(explained)),
        rejected=[
            pb.NodeRejection(node=node, reasons=explained.reasons[node])
            for node in sorted(explained.reasons, key=in_order)
        ],
        scored_nodes=explained.scored,
        rejected_nodes=explained.rejected,
        rejected_by_filter=explained.failing,
        earlier=[placement(each, now) for each in earlier],
    )


def _scores(explanation: Explanation) -> Iterator[pb.NodeScore]:
    for at in sorted(range(len(explanation.nodes)), key=lambda at: in_order(explanation.nodes[at])):
        score = pb.NodeScore(
            node=explanation.nodes[at],
            parts=dict(_known(explanation.parts, at)),
            measured=dict(_known(explanation.measured, at)),
            assumed=dict(_known(explanation.assumed, at)),
        )
        for name, count in _known(explanation.pods, at):
            if name in (RECENTLY_PLACED, RATES_UNKNOWN):
                setattr(score, name, max(0, int(count)))
        if math.isfinite(explanation.total[at]):
            score.total = explanation.total[at]
        ages_s = {kind: x for kind, x in explanation.ages_s.items() if kind in _AGES}
        for kind, age_s in _known(ages_s, at):
            setattr(score, f"{kind}_age_s", max(0.0, age_s))
        pull = dict(_known(explanation.pull, at))
        if pull:
            score.pull.CopyFrom(
                pb_images.PullEstimate(
                    missing_mb=pull.get("missing_mb"),
                    shared_mb=pull.get("shared_mb"),
                    queue_mb=pull.get("queue_mb"),
                    expected_s=pull.get("time_s"),
                )
            )
        yield score


def _known(columns: Mapping[str, Floats], at: int) -> Iterator[tuple[str, float]]:
    for name, column in columns.items():
        if math.isfinite(column[at]):
            yield name, float(column[at])


def why_unexplained(source: Observed, key: str) -> str:
    """Why there is no decision about the pod with this key, in one sentence."""
    shown = key[:200]
    pod = next((pod for pod, _ in source.state.pods() if pod.key == key), None)
    if pod is None:
        return f"no decision about pod {shown} is remembered, and the cluster has no such pod"
    if pod.scheduler_name != source.scheduler_name:
        return _why_unadvised(source, pod)
    if not source.scheduler is not None:
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


def _why_unadvised(source: Observed, pod: Pod) -> str:
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
