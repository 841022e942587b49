"""random: a random node, the baseline of all other strategies."""

from dataclasses import dataclass

import numpy as np

from leadline_controller.framework.cycle import Scores, Strategy
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints


@dataclass(frozen=True, slots=True)
class Chance(Strategy):
    """Any node that fits, by chance.

    All candidates tie, so the choice is random. Needs nothing measured; unknown values do not
    matter."""

    name = "random"
    better = "higher"
    paper = "none: the floor that any rule has to beat"
    needs = ()

    def score(self, _: ClusterView, __: Pod, candidates: Ints) -> Scores:
        """0 for every candidate."""
        finalists = np.arange(candidates.size)
        return Scores(candidates, np.zeros(candidates.size), finalists, lambda _: "it fits")
