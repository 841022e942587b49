"""Compares Leadline's preference scores for generated cases with kube-scheduler's, node by node.

python -m tests.kube.compare_scores 3000    # that many cases for each plugin, and the table
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from leadline_controller.cluster.state import ClusterState
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.preferences import PREFERENCES

from tests.kube.compare import view_of
from tests.kube.generator import made_preferring
from tests.kube.objects import Object
from tests.kube.oracle import Judged, Oracle, Scored


@dataclass
class Comparison:
    """Scores on nodes, by plugin."""

    # Those with two nodes or more to choose between.
    cases: Counter[str] = field(default_factory=Counter)
    # Of those, the cases in which the plugin gives them different scores.
    told: Counter[str] = field(default_factory=Counter)
    scores: Counter[str] = field(default_factory=Counter)
    # One line for each plugin and case in which anything is not as kube-scheduler has it.
    differing: list[str] = field(default_factory=list)

    def count(self, label: str, case: Object, judged: Judged) -> None:
        """Score the case's nodes and compare."""
        view, pod = view_of(case, ClusterState()), read_pod(case["pod"])
        for plugin, theirs in judged.scores.items():
            score, weight = PREFERENCES[plugin]
            names = sorted(
                name for name, reasons in judged.verdicts.items() if not any(reasons.values())
            )
            nodes = np.array([view.table.index[name] for name in names])
            ours = score(view, pod, nodes)
            none = dict.fromkeys(names, 0)
            raw = none if ours is None else dict(zip(names, ours.raw.tolist(), strict=True))
            normalized = (
                none if ours is None else dict(zip(names, ours.normalized.tolist(), strict=True))
            )
            if not _same(theirs, raw, normalized, alike=ours is None) or theirs.weight != weight:
                self.differing.append(f"{label} {plugin}: {theirs} but {raw} {normalized}")
            self.scores[plugin] += len(names)
            self.cases[plugin] += len(names) > 1
            self.told[plugin] += len(set(normalized.values())) > 1

    def rows(self) -> Iterator[str]:
        """The table, one line a plugin."""
        yield f"{'preference':20}{'cases':>10}{'of those telling':>20}{'scores':>10}"
        for plugin in sorted(self.cases):
            counts = self.cases[plugin], self.told[plugin], self.scores[plugin]
            yield f"{plugin:20}{counts[0]:>10}{counts[1]:>20}{counts[2]:>10}"
        yield f"differences: {len(self.differing)}"


def _same(theirs: Scored, raw: dict[str, int], normalized: dict[str, int], *, alike: bool) -> bool:
    """Whether both are the same. alike: Leadline has no scores, because all nodes are alike: then
    kube-scheduler skips the pod, or finds nothing and gives all nodes the same score."""
    if alike or not theirs.raw:
        mine = len(set(normalized.values())) <= 1 and not any(raw.values())
        return mine and not any(theirs.raw.values()) and len({*theirs.normalized.values()}) <= 1
    return (theirs.raw, theirs.normalized) == (raw, normalized)


def compared(oracle: Oracle, count: int, start: int = 0) -> Comparison:
    """Compare `count` cases of each plugin, as the API server stores their objects and as they
    were written."""
    found = Comparison()
    for theme in PREFERENCES:
        for seed in range(start, start + count):
            case = made_preferring(seed, theme)
            judged = oracle.judge(case)
            found.count(f"{theme}/{seed} stored", judged.stored, judged)
            found.count(f"{theme}/{seed} written", case, judged)
    return found


def main(count: int) -> None:
    """Print the table of a run over cases that the tests don't have."""
    with Oracle() as oracle:
        found = compared(oracle, count, start=1_000_000)
    print(*found.rows(), *found.differing[:20], sep="\n")
    sys.exit(bool(found.differing))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
