"""A strategy's totals as the whole numbers that kube-scheduler's extender protocol asks for.

Rounding loses most of what a total says, so what must survive it, the strategy's choice, is
kept apart from it.
"""

import numpy as np

from leadline_controller.framework.view import Floats, Ints

# k8s.io/kube-scheduler/extender/v1: MinExtenderPriority, MaxExtenderPriority.
LOWEST, HIGHEST = 0, 10


def priorities(total: Floats, finalists: Ints, *, lower_is_better: bool) -> Ints:
    """0 to 10 for each candidate, shape (n,): the finalists get 10, the worst total 0.

    total: shape (n,), finite or NaN. finalists: positions between which the strategy sees no
    difference. All others are in proportion to their total, rounded down and 9 at most, so
    that the strategy's choice stays alone at the top; DACS' finalists are the roomiest of the
    near-best and need not have the best total. An unknown total gets 0: nothing speaks for it.
    One total far from the rest moves all of these close together.
    """
    ranks = np.full(total.size, LOWEST, dtype=np.int64)
    known = ~np.isnan(total)
    if known.any():
        goodness = -total[known] if lower_is_better else total[known]
        # Halved, because the difference of two large finite numbers may be none.
        from_worst = goodness / 2 - goodness.min() / 2
        spread = from_worst.max()
        share = from_worst / spread if spread > 0 else np.ones(goodness.size)
        ranks[known] = np.minimum(np.floor(share * HIGHEST), HIGHEST - 1)
    ranks[finalists] = HIGHEST
    return ranks
