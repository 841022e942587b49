"""Schedules a snapshot's pods offline, and makes the documents of `leadline score`.

A decision over thousands of nodes takes megabytes, so decisions are made one at a time and are not
kept here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from leadline_controller.cluster.reservations import Reservations
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import decides_together, plan_batch
from leadline_controller.framework.cycle import Decision, Rule, Strategy
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import values_of
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.explanation import assumed, load_document, measured
from leadline_controller.preferences import rule as preference_rule
from leadline_controller.scheduling.kept_room import decide_in_room
from leadline_controller.snapshot.snapshot import Snapshot
from leadline_controller.snapshot.stated import StatedRule

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """The parts of `leadline score`."""

    head: Document  # strategy, options and better
    decisions: Iterator[Decision]  # made lazily
    tail: Document  # the migrations of a batch strategy, else empty


def rule_of(stated: StatedRule, strategy: Strategy) -> Rule:
    """The stated rule, with its seed at the beginning, or 0 where none is stated. strategy: the one
    that it names. Raises OptionError."""
    preferences = "off" if stated.preferences is None else stated.preferences
    return Rule(
        strategy,
        FILTERS,
        Random(stated.seed or 0),  # noqa: S311  # breaks ties, no secret
        preference_rule(preferences),
        letter=stated.letter,
        seed=stated.seed,
    )


def start_scoring(
    snapshot: Snapshot,
    rule: Rule,
    pods: Iterable[Pod] | None = None,
    *,
    assumes_load: bool = True,
) -> Scoring:
    """Decide on the snapshot's pods one after the other, or plan all of them at once with a batch
    strategy that also moves pods. pods: the same pods, if the caller wants to count them on the
    way. assumes_load: whether a pod that is placed adds what it is expected to use to what was
    measured."""
    strategy = rule.strategy
    view = snapshot.view
    if not assumes_load:
        view = replace(view, metrics=view.measured, assumed=None)
    elif view.assumed is None:
        view = view.assuming_load()
    head = {
        "strategy": strategy.name,
        "options": values_of(strategy),
        "better": strategy.better,
    }
    wanted = snapshot.pods if pods is None else pods
    kept = Reservations()
    for each in snapshot.reservations:
        kept.put(each)
    if not decides_together(strategy):  # a controller decides on single pods, if not told otherwise
        return Scoring(head, _in_turn(view, wanted, rule, kept), {})
    crowded = kept.apply(view, None)
    staying = [(pod, at) for pod, at in snapshot.running if not pod.terminating]
    plan, _, batch = plan_batch(crowded, wanted, staying, rule)
    names = view.table.names
    migrations = [
        {"pod": m.pod.key, "from": names[m.source], "to": names[m.target], "why": m.why}
        for m in plan.moves
    ]
    return Scoring(head, (decision for decision, _ in batch), {"migrations": migrations})


def _in_turn(
    view: ClusterView, pods: Iterable[Pod], rule: Rule, kept: Reservations
) -> Iterator[Decision]:
    """Decide on one pod after the other as a scheduler does: each sees what the pods before it
    took, and the room that is kept for others."""
    for pod in pods:
        nominated = next((at for each, at in view.nominated if each.uid == pod.uid), None)
        node = None if nominated is None else view.table.names[nominated]
        seen = kept.apply(view, pod)
        if rule.seed is not None and pod.uid:  # as a controller does
            rule.draw_for(pod, rule.seed)
        decision = decide_in_room(seen, pod, rule, kept.of(pod), node)
        yield decision
        if decision.node is None:
            kept.remove_own(pod.uid)
            continue
        at = view.table.index[decision.node]
        charge = rule.strategy.charge(seen, pod, at)
        others = tuple(each for each in view.nominated if each[0].uid != pod.uid)
        view = view.with_placement(pod, at, charge, decision.volumes())
        view = replace(view, nominated=others)
        kept.placed(pod)
        kept.remove_own(pod.uid)


def to_document(decision: Decision) -> Document:
    """A decision in `leadline score -o json`: pod, node, why, rejected and scores. Unknown values
    are null or missing, never NaN."""
    loads = _loads(decision)
    return {
        "pod": decision.pod.key,
        "node": decision.node,
        "why": decision.why,
        "rejected": decision.rejected(),
        "scores": {
            node: {"total": total, "parts": parts, **loads.get(node, {})}
            for node, (total, parts) in decision.scores().items()
        },
    }


def _loads(decision: Decision) -> dict[str, Document]:
    """By node, of each metric that the strategy reads, what was measured, what was assumed of the
    pods placed since, and the sum; a part that is unknown is missing."""
    view, _, scores = decision.basis()
    if view is None or scores is None:
        return {}
    nodes = scores.candidates
    groups = (
        measured(*(view, decision.pod, decision.needs, nodes), peer_is_user=decision.peer_is_user),
        assumed(view, decision.needs, nodes),
    )
    found = {}
    for at, node in enumerate(nodes.tolist()):
        known, more = (
            {name: float(column[at]) for name, column in each.items() if not np.isnan(column[at])}
            for each in groups
        )
        if known:
            found[view.table.names[node]] = load_document(known, more)
    return found
