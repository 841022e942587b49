"""Places a snapshot's pods with no cluster at all, and says what the interfaces promise.

A decision over thousands of nodes is megabytes, so decisions are made one at a time and kept by
nobody here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from leadline_controller.framework.batch import BatchPlan, BatchStrategy, plan_batch
from leadline_controller.framework.cycle import Decision, Filter, Strategy, decide_in_turn
from leadline_controller.framework.model import Pod
from leadline_controller.framework.options import values_of
from leadline_controller.snapshot.snapshot import Snapshot

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """What `leadline score` prints. head: strategy, options in force, better. decisions: made
    while they are read. tail: the migrations of a batch strategy, else empty."""

    head: Document
    decisions: Iterator[Decision]
    tail: Document


def begin(
    snapshot: Snapshot,
    strategy: Strategy,
    filters: Mapping[str, Filter],
    seed: int,
    pods: Iterable[Pod] | None = None,
) -> Scoring:
    """Decide on the snapshot's pods one after the other, each seeing what the ones before took,
    or plan all of them at once with a batch strategy. `pods` stands for them where somebody
    counts along. A seed repeats every tie."""
    head = {
        "strategy": strategy.name,
        "options": values_of(strategy),
        "better": strategy.better,
    }
    wanted = snapshot.pods if pods is None else pods
    random = Random(seed)  # noqa: S311  # ties, no secrets
    if not isinstance(strategy, BatchStrategy):
        placed = decide_in_turn(snapshot.view, wanted, filters, strategy, random)
        return Scoring(head, (decision for decision, _ in placed), {})
    plan, _, batch = plan_batch(snapshot.view, wanted, snapshot.running, filters, strategy, random)
    return Scoring(head, (decision for decision, _ in batch), _migrations(snapshot, plan))


def score(
    snapshot: Snapshot,
    strategy: Strategy,
    filters: Mapping[str, Filter],
    seed: int,
    pods: Iterable[Pod] | None = None,
) -> Document:
    """All that `leadline score -o json` prints, at once; see `begin` and `told`."""
    scoring = begin(snapshot, strategy, filters, seed, pods)
    return {**scoring.head, "decisions": list(map(told, scoring.decisions)), **scoring.tail}


def told(decision: Decision) -> Document:
    """A decision as `leadline score -o json` prints it: pod, node, why, rejected and scores. What
    is unknown is null or missing, never NaN."""
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


def _migrations(snapshot: Snapshot, plan: BatchPlan) -> Document:
    names = snapshot.view.table.names
    return {
        "migrations": [
            {
                "pod": move.pod.key,
                "from": names[move.source],
                "to": names[move.target],
                "why": move.why,
            }
            for move in plan.moves
        ],
    }
