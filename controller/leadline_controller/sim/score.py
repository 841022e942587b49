"""Places a snapshot's pods with no cluster at all, and says what the interfaces promise."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

from leadline_controller.core.batch import BatchPlan, BatchStrategy, decide_batch
from leadline_controller.core.cycle import Decision, Filter, Strategy, decide_in_turn
from leadline_controller.core.model import Pod
from leadline_controller.core.options import values_of
from leadline_controller.sim.snapshot import Snapshot


def place(
    snapshot: Snapshot,
    strategy: Strategy,
    filters: Mapping[str, Filter],
    seed: int,
    pods: Iterable[Pod] | None = None,
) -> Iterator[Decision]:
    """Decide on the snapshot's pods one after the other, each seeing what the ones before
    took; `pods` stands for them where somebody counts along. A seed repeats every tie."""
    wanted = snapshot.pods if pods is None else pods
    for decision, _ in decide_in_turn(snapshot.view, wanted, filters, strategy, Random(seed)):  # noqa: S311  # ties, no secrets
        yield decision


def score(
    snapshot: Snapshot,
    strategy: Strategy,
    filters: Mapping[str, Filter],
    seed: int,
    pods: Iterable[Pod] | None = None,
) -> dict[str, Any]:
    """Every decision as `leadline score -o json` prints it: strategy, options in force,
    better, and for each pod node, why, rejected and scores. What is unknown is null or
    missing, never NaN. A batch strategy plans all pods at once, and what it moves is told
    as migrations."""
    told: dict[str, Any] = {
        "strategy": strategy.name,
        "options": values_of(strategy),
        "better": strategy.better,
    }
    if not isinstance(strategy, BatchStrategy):
        decisions = place(snapshot, strategy, filters, seed, pods)
        return {**told, "decisions": [_told(decision) for decision in decisions]}
    batch, plan = place_batch(snapshot, strategy, filters, seed, pods)
    names = snapshot.view.table.names
    return {
        **told,
        "decisions": [_told(decision) for decision in batch],
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


def place_batch(
    snapshot: Snapshot,
    strategy: BatchStrategy,
    filters: Mapping[str, Filter],
    seed: int,
    pods: Iterable[Pod] | None = None,
) -> tuple[list[Decision], BatchPlan]:
    """Decide on all of the snapshot's pods at once; see `place` and core/batch.py."""
    wanted = snapshot.pods if pods is None else pods
    decisions, plan, _ = decide_batch(
        snapshot.view,
        wanted,
        snapshot.running,
        filters,
        strategy,
        Random(seed),  # noqa: S311  # ties, no secrets
    )
    return decisions, plan


def _told(decision: Decision) -> dict[str, Any]:
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
