"""Places a snapshot's pods with no cluster at all, and says what the interfaces promise."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

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
    missing, never NaN."""
    return {
        "strategy": strategy.name,
        "options": values_of(strategy),
        "better": strategy.better,
        "decisions": [_told(d) for d in place(snapshot, strategy, filters, seed, pods)],
    }


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
