"""How a pod's preferences join a strategy's decision. Pure.

Among the nodes whose total is within a tolerance of the strategy's choices, those with the largest
weighted sum of preference scores are left, and of these the strategy chooses again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints

MOST = 100  # kube-scheduler's MaxNodeScore
PART = "preference"


@dataclass(frozen=True, slots=True, eq=False)
class PreferenceScores:
    """One plugin's scores of the candidates, shape (len(candidates),)."""

    raw: Ints  # in the plugin's own measure
    normalized: Ints  # 0 to 100, the more the better
    # What a reason says about the candidate at this position, a part of a sentence; None: nothing.
    note: Callable[[int], str] | None = None


# The candidates' scores, or None if all are equal.
Preference = Callable[[ClusterView, Pod, Ints], PreferenceScores | None]


@dataclass(frozen=True, slots=True)
class PreferenceRule:
    """The plugins with their weights, by name."""

    plugins: Mapping[str, tuple[Preference, int]]
    # In the unit of the strategy's total; None for the strategy's own (Leeway.tolerance).
    tolerance: float | None = None

    def __call__(self, view: ClusterView, pod: Pod, scores: Scores, better: Better) -> Scores:
        """The scores with the finalists that preferences leave, and with the normalized scores and
        their weighted sum among the parts. The same scores if the pod has no preferences."""
        found: dict[str, Ints] = {}
        notes = []
        total = np.zeros(scores.total.size, dtype=np.int64)
        for name, (score, weight) in self.plugins.items():
            if (scored := score(view, pod, scores.candidates)) is not None:
                found[name] = scored.normalized
                total += weight * scored.normalized
                if scored.note is not None:
                    notes.append(scored.note)
        if not found:
            return scores
        shown = {PART: total, **found}
        parts = {name: column.astype(np.float64) for name, column in shown.items()}
        why_of = scores.why

        def noted(at: int) -> str:
            return "; ".join((why_of(at), *(note(at) for note in notes)))

        scores = replace(scores, parts={**scores.parts, **parts}, why=noted if notes else why_of)
        leeway = scores.leeway
        near = nearly_best(scores, leeway.tolerance if self.tolerance is None else self.tolerance)
        left = near[total[near] == total[near].max()]
        if left.size == near.size:
            return scores
        if leeway.among is None:
            finalists = left[best(scores.total[left], better)]
        else:
            finalists = leeway.among(left)
        own_why = scores.why

        def why(at: int) -> str:
            points = ", ".join(f"{name} {column[at]}" for name, column in found.items())
            return f"{own_why(at)}; preferred among {near.size} nodes nearly as good ({points})"

        return replace(scores, finalists=finalists, why=why)


def nearly_best(scores: Scores, tolerance: float) -> Ints:
    """The positions of the rivals whose total differs from the base, or from that of the nearest
    finalist, by at most the tolerance, and the finalists themselves, in order. Without known
    totals, the finalists."""
    total, base, rivals = scores.total, scores.leeway.base, scores.leeway.rivals
    anchors = np.unique(total[scores.finalists] if base is None else base)
    above = np.searchsorted(anchors, total).clip(max=anchors.size - 1)
    below = np.maximum(above - 1, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(total - anchors[above]) <= tolerance
        near |= np.abs(total - anchors[below]) <= tolerance
    if rivals is not None:
        near &= rivals
    near[scores.finalists] = True
    return np.flatnonzero(near)
