"""The delay of pods that share a node, by the DACS paper, for the strategy and for simulations.

Lai, Wang, Wei, "Delay-Aware Container Scheduling in Kubernetes", Section 6.1.
"""

import numpy as np

from leadline_controller.framework.node_table import Floats, Ints

_MAX_EXPONENT = 1000


def contention_s(others: Ints, beta_cs: float, beta_rc: float) -> Floats:
    """Gamma = beta_CS + 2^(zeta - 1) * beta_RC in seconds where zeta > 0, else 0 (Eq. 18 with
    Algorithm 2, lines 8-9).

    others: zeta, the other pods on each node, shape (n,). beta_cs, beta_rc: seconds of a context
    switch and of competition for resources.
    """
    gamma = beta_cs + np.exp2(np.minimum(others - 1.0, _MAX_EXPONENT)) * beta_rc
    return np.where(others > 0, gamma, 0.0)
