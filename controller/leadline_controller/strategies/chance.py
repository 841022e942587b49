"""random: chance alone, the floor that any rule has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from leadline_controller.framework.cycle import Better, Scores, Strategy
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints


@dataclass(frozen=True, slots=True)
class Chance(Strategy):
    """Every node that fits ties, so chance decides. Nothing needs to be measured, and what is
    unknown plays no part."""

    name: ClassVar[str] = "random"
    better: ClassVar[Better] = "higher"
    paper: ClassVar[str] = "none: the floor that any rule has to beat"
    needs: ClassVar[tuple[str, ...]] = ()

    def score(self, _: ClusterView, __: Pod, candidates: Ints) -> Scores:
        """0 for every candidate."""
        everyone = np.arange(candidates.size)
        return Scores(candidates, np.zeros(candidates.size), everyone, lambda _: "it fits")
