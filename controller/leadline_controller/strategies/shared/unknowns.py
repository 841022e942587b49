"""What stands for an unknown value where a paper is silent: what is known of boards like it.

A board is like another one of its class (label `leadline.dev/class`), of its switch (label
`topology.kubernetes.io/zone`) or of its tier.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.options import choice
from leadline_controller.framework.view import Bools, ClusterView, Floats, Ints
from leadline_controller.strategies.shared.capacity import is_cloud

ZONE_LABEL = "topology.kubernetes.io/zone"
LIKE_BOARDS, WORST = "like-boards", "worst"
_ENOUGH = 2  # boards: the fewest that show how much they differ


def unknown_option() -> Any:
    """Declare the field for `unknown` of `fill`."""
    return choice(LIKE_BOARDS, WORST, help="what an unknown value counts as")


def left_unknown(_: Floats) -> float:
    """A `worst` of `fill` for a strategy that has a rule of its own for what stays unknown."""
    return float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A column in which something stands for each unknown value, shape (m,)."""

    values: Floats
    # By how much the boards that a value is taken from differ from it on average, in `unit`; NaN
    # for a known value, and where one board or none tells. None if all values are known.
    error: Floats | None = None
    # From how many boards a value is taken, -1 for a known one. None if all values are known.
    boards: Ints | None = None
    what: str = ""
    unit: str = ""

    @property
    def is_known(self) -> Bools:
        """Which values are known, and not stood for, shape (m,)."""
        return np.ones(self.values.size, bool) if self.boards is None else self.boards < 0

    def note(self, at: int) -> str:
        """What stands for the value at this position, as the end of a sentence, such as
        "; bandwidth unknown, taken as 93 Mbit/s ± 5 from 6 boards like it"; "" if it is known, or
        if nothing stands for it."""
        if self.boards is None or self.error is None or self.boards[at] < 0:
            return ""
        if np.isnan(self.values[at]):
            return ""
        text = f"; {self.what} unknown, taken as {self.values[at]:.4g} {self.unit}"
        if not np.isnan(self.error[at]):
            text += f" ± {self.error[at]:.2g}"
        count = self.boards[at]
        return f"{text} from {count} board{'s' if count > 1 else ''} like it" if count else text


def fill(
    view: ClusterView,
    column: Floats,
    nodes: Ints,
    unknown: str,
    worst: Callable[[Floats], float],
    what: str,
    unit: str,
    first: str = CLASS_LABEL,
) -> Filled:
    """The values of these nodes, shape (len(nodes),), of a column of shape (n,), NaN if unknown.

    An unknown value counts as the median of the boards like it whose values are known, candidates
    or not: those of its class and switch, else of its class, of its switch, of its tier, else all.
    Each time two at least, but of all one is enough. first: the label that counts for more, for
    what depends on the place and not on the board the switch's.

    Where nothing is known, and if `unknown` is "worst", it counts as `worst` of the nodes' known
    values. Nothing ever comes from outside the range of the known ones but that.
    """
    values = column[nodes]
    unknown_at = np.isnan(values)
    if not unknown_at.any():
        return Filled(values)
    left = np.flatnonzero(unknown_at)
    values[left] = worst(values[~unknown_at])
    error = np.full(nodes.size, np.nan)
    boards = np.where(unknown_at, 0, -1)
    known = np.flatnonzero(~np.isnan(column))
    if unknown == LIKE_BOARDS and known.size:
        known_values = column[known]
        for codes, enough in _groups(view, first):
            known_codes, left_codes = codes[known], codes[nodes[left]]
            for code in set(left_codes.tolist()) - {0}:
                like = known_values[known_codes == code]
                if like.size >= enough:
                    at = left[left_codes == code]
                    values[at], error[at] = _median_and_error(like)
                    boards[at] = like.size
            left = left[boards[left] == 0]
            if not left.size:
                break
    return Filled(values, error, boards, what, unit)


def _median_and_error(values: Floats) -> tuple[float, float]:
    """The median, and the mean of the differences from it; NaN for that of a single value."""
    ordered = np.sort(values)  # many times as quick as numpy's median
    median = float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
    error = float(np.abs(ordered - median).sum()) / ordered.size
    return median, error if ordered.size > 1 else float("nan")


def _groups(view: ClusterView, first: str) -> Iterator[tuple[Ints, int]]:
    """From narrow to wide: the number of each node's group, shape (n,), 0 for none, and how many
    known values it must have."""
    table = view.table
    lead, other = (
        table.topology(label)
        for label in (first, ZONE_LABEL if first == CLASS_LABEL else CLASS_LABEL)
    )
    both = lead.labelled & other.labelled
    yield np.where(both, lead.codes * (len(other) + 1) + other.codes, 0), _ENOUGH
    yield lead.codes, _ENOUGH
    yield other.codes, _ENOUGH
    yield is_cloud(view) + 1, _ENOUGH
    yield np.ones(len(table), dtype=np.int64), 1
