"""Which pairs of boards to show where all would be too many."""

from collections.abc import Collection, Sequence, Set

import numpy as np

from leadline_controller.framework.view import Bools, Floats, Ints

# A pair that is shown stays until another one is less than half as far, because on one switch all
# are alike, and a choice that changes all the time would leave a graph of nothing but gaps.
_LOYALTY = 0.5
_SHIFT = 32  # a pair's code: the board's number, then the peer's


def nearest(
    names: Sequence[str],
    ends: Ints,
    near_ms: Floats,
    most: int,
    anchors: Collection[str] = (),
    shown: Set[tuple[str, str]] = frozenset(),
) -> tuple[Ints, Ints, Ints]:
    """To each board's `most` nearest peers, and to the anchors. Returns boards, peers and pairs as
    indexes of names and ends, three columns in the order of the boards.

    ends: m pairs as indexes of names, shape (m, 2). near_ms: how far apart they are, NaN if
    unknown, shape (m,). shown: boards and peers by name, such as those of the
    last call, that stay while others are hardly nearer.
    """
    numbers = {name: number for number, name in enumerate(names)}
    codes = [(numbers[a] << _SHIFT) + numbers[b] for a, b in shown if a in numbers and b in numbers]
    boards, peers = np.concatenate((ends, ends[:, ::-1])).reshape(-1, 2).T
    stays = np.isin((boards << _SHIFT) + peers, np.array(codes, dtype=np.int64))
    is_anchor: Bools = np.isin(peers, [numbers[name] for name in anchors if name in numbers])
    far = np.tile(np.where(np.isnan(near_ms), np.inf, near_ms), 2) * np.where(stays, _LOYALTY, 1.0)
    order = np.lexsort((peers, far, is_anchor, boards))
    rank = np.arange(len(order)) - np.searchsorted(boards[order], boards[order])
    order = order[(rank < most) | is_anchor[order]]
    return boards[order], peers[order], order % max(len(ends), 1)
