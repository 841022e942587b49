"""Scores normalized to the integers of kube-scheduler's extender protocol.

Rounding loses most of the differences, so the strategy's choice gets a score of its own.
"""

import numpy as np

from leadline_controller.framework.view import Floats, Ints

# k8s.io/kube-scheduler/extender/v1: MinExtenderPriority, MaxExtenderPriority.
LOWEST, HIGHEST = 0, 10


def priorities(total: Floats, finalists: Ints, *, lower_is_better: bool) -> Ints:
    """0 to 10 for each candidate, shape (n,): 10 for the finalists, 0 for the worst total.

    total: shape (n,), finite or NaN. finalists: positions that tie for the first place. The
    others get a share in proportion to their total, rounded down, and 9 at most, so that only
    finalists have 10; DACS' finalists need not have the best total. An unknown total gets 0.
    """
    ranks = np.full(total.size, LOWEST, dtype=np.int64)
    known = ~np.isnan(total)
    if known.any():
        goodness = -total[known] if lower_is_better else total[known]
        # Halved, because the difference of two large finite numbers may overflow.
        from_worst = goodness / 2 - goodness.min() / 2
        spread = from_worst.max()
        share = from_worst / spread if spread > 0 else np.ones(goodness.size)
        ranks[known] = np.minimum(np.floor(share * HIGHEST), HIGHEST - 1)
    ranks[finalists] = HIGHEST
    return ranks
