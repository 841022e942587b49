"""Compares whom Leadline would preempt in generated cases with kube-scheduler's DefaultPreemption.

python -m tests.kube.compare_preemption 3000    # that many cases for each predicate, and the table
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, feasible_nodes, filtered, pre_filter_failure
from leadline_controller.framework.preemption import best_candidates, find_candidates
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.strategies.kube_default import KubeDefault

from tests.kube.compare import view_of
from tests.kube.generator import PREEMPTION, made_preempting
from tests.kube.objects import Object
from tests.kube.oracle import Choice, Oracle, OracleError

_GIVES_UP = "(pod is not owner)"


def ours_of(case: Object, state: ClusterState) -> tuple[Choice, set[str]]:
    """Leadline's choice, and the nodes that tie with it. refused: names a volume that Leadline does
    not model."""
    view, pod = view_of(case, state), read_pod(case["pod"])
    names = view.table.names
    if pre_filter_failure(pod) is not None:
        return Choice(set(), "", {}, ""), set()
    results = filtered(view, pod, FILTERS)
    if (unmodelled := results["VolumeBinding"]).passes.size and not unmodelled.passes.all():
        why = unmodelled.reason(int(np.flatnonzero(~unmodelled.passes)[0]))
        if "does not model" in why:
            return Choice(set(), why, {}, ""), set()
    if fits := {names[i] for i in feasible_nodes(view, results)}:
        return Choice(fits, "", {}, ""), set()
    placed = [
        (each, view.table.index[node])
        for each, node in state.pods()
        if node is not None and node in view.table.index and not each.finished
    ]
    budgets = state.objects.budgets() or []
    found = find_candidates(
        view, pod, Rule(KubeDefault(), FILTERS, Random(1)), results, placed, budgets
    )
    candidates = {
        names[each.node]: (tuple(victim.key for victim in each.victims), each.violations)
        for each in found
    }
    best = [names[each.node] for each in best_candidates(found)]
    return Choice(set(), "", candidates, best[0] if best else ""), set(best)


@dataclass
class PreemptionTally:
    """Counts by theme. differences: one line for each."""

    cases: Counter[str] = field(default_factory=Counter)
    fitting: Counter[str] = field(default_factory=Counter)
    helped: Counter[str] = field(default_factory=Counter)
    candidates: Counter[str] = field(default_factory=Counter)
    victims: Counter[str] = field(default_factory=Counter)
    violating: Counter[str] = field(default_factory=Counter)
    ties: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def count(self, theme: str, label: str, case: Object, theirs: Choice) -> None:
        """Compare both answers to one case."""
        ours, tied = ours_of(case, ClusterState())
        if ours.refused:
            self.given_up[theme] += 1
            return
        self.cases[theme] += 1
        self.fitting[theme] += bool(theirs.fits)
        self.helped[theme] += bool(theirs.candidates)
        self.candidates[theme] += len(theirs.candidates)
        self.victims[theme] += sum(len(pods) for pods, _ in theirs.candidates.values())
        self.violating[theme] += sum(count for _, count in theirs.candidates.values())
        self.ties[theme] += len(tied) > 1
        if ours.fits != theirs.fits:
            self.differences.append(f"{label}: fits {ours.fits}, not {theirs.fits}")
        elif ours.candidates != theirs.candidates:
            self.differences.append(f"{label}: {ours.candidates}, not {theirs.candidates}")
        elif theirs.chosen not in (tied or {""}):
            self.differences.append(f"{label}: chosen {tied}, not {theirs.chosen}")

    def rows(self) -> Iterator[str]:
        """The table, one line a theme."""
        titles = ("in the way", "compared", "fit at once", "preempt", "candidates", "victims")
        yield _row(*titles, "against a budget", "ties")
        for theme in PREEMPTION:
            counts = (self.cases, self.fitting, self.helped, self.candidates, self.victims)
            yield _row(theme, *(each[theme] for each in (*counts, self.violating, self.ties)))
        yield f"differences: {len(self.differences)}"


def _row(name: str, *cells: object) -> str:
    return f"{name:20}" + "".join(f"{cell!s:>18}" for cell in cells)


def compared(oracle: Oracle, count: int, start: int = 0) -> PreemptionTally:
    """Judge `count` cases of each theme, as the API server stores their objects."""
    tally = PreemptionTally()
    for theme in PREEMPTION:
        for seed in range(start, start + count):
            try:
                judged = oracle.judge(made_preempting(seed, theme))
            except OracleError as error:
                if _GIVES_UP not in str(error):
                    raise
                # A claim of another pod: kube-scheduler preempts nobody.
                tally.given_up[theme] += 1
                continue
            assert judged.preemption is not None
            tally.count(theme, f"{theme}/{seed}", judged.stored, judged.preemption)
    return tally


def main(count: int) -> None:
    """Print the table of a run over cases that the tests don't have."""
    with Oracle(preemption=True) as oracle:
        tally = compared(oracle, count, start=1_000_000)
    print(*tally.rows(), *tally.differences, sep="\n")
    sys.exit(bool(tally.differences))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
