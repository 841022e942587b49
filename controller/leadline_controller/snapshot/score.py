"""Schedules a snapshot's pods offline, and makes the documents of `leadline score`.

A decision over thousands of nodes takes megabytes, so decisions are made one at a time and are not
kept here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from leadline_controller.framework.batch import BatchStrategy, plan_batch
from leadline_controller.framework.cycle import Decision, Filter, Prefer, Strategy, decide_in_turn
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import values_of
from leadline_controller.snapshot.snapshot import Snapshot

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """The parts of `leadline score`. head: strategy, options and better. decisions: made lazily.
    tail: the migrations of a batch strategy, else empty."""

    head: Document
    decisions: Iterator[Decision]
    tail: Document


def start_scoring(
    snapshot: Snapshot,
    strategy: Strategy,
    filters: Mapping[str, Filter],
    seed: int,
    pods: Iterable[Pod] | None = None,
    prefer: Prefer | None = None,
) -> Scoring:
    """Decide on the snapshot's pods one after the other, or plan all of them at once with a batch
    strategy. pods: the same pods, if the caller wants to count them on the way. The same seed
    breaks ties in the same way. prefer: None leaves preferences aside."""
    head = {
        "strategy": strategy.name,
        "options": values_of(strategy),
        "better": strategy.better,
    }
    wanted = snapshot.pods if pods is None else pods
    random = Random(seed)  # noqa: S311  # ties, no secrets
    if not isinstance(strategy, BatchStrategy):
        placed = decide_in_turn(snapshot.view, wanted, filters, strategy, random, prefer)
        return Scoring(head, (decision for decision, _ in placed), {})
    plan, _, batch = plan_batch(
        snapshot.view, wanted, snapshot.running, filters, strategy, random, prefer
    )
    names = snapshot.view.table.names
    migrations = [
        {"pod": m.pod.key, "from": names[m.source], "to": names[m.target], "why": m.why}
        for m in plan.moves
    ]
    return Scoring(head, (decision for decision, _ in batch), {"migrations": migrations})


def to_document(decision: Decision) -> Document:
    """A decision in `leadline score -o json`: pod, node, why, rejected and scores. Unknown values
    are null or missing, never NaN."""
    return {
        "pod": decision.pod.key,
        "node": decision.node,
        "why": decision.why,
        "rejected": decision.rejected(),
        "scores": {
            node: {"total": total, "parts": parts}
            for node, (total, parts) in decision.scores().items()
        },
    }
