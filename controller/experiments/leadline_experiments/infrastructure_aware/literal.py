"""The literal variant of Algorithm 1, which the paper's own program may have implemented.

Lines 9 and 13 store a layer's size under the name of the application and of the image, and line 14
subtracts these from sizes that line 3 stores under the layer's digest. Names and digests never
match, so nothing is subtracted: a node's cache and queue have no effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from typing import ClassVar

import numpy as np
from leadline_controller.framework.cycle import Better, Scores, Strategy, best
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies.infrastructure_aware import (
    InfrastructureAware,
    rescaled,
    time_to_instantiate_s,
)


@dataclass(frozen=True, slots=True)
class LiteralInfrastructureAware:
    """total = the total of `added_to` + the pull time of the whole image, rescaled to 0..w."""

    added_to: Strategy

    name: ClassVar[str] = InfrastructureAware.name
    better: ClassVar[Better] = InfrastructureAware.better
    paper: ClassVar[str] = InfrastructureAware.paper
    needs: ClassVar[tuple[str, ...]] = InfrastructureAware.needs

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        """Lines 15-24, with the size of the whole image."""
        size_mb = fsum(layer.size_mb for layer in view.images.layers_of(view.table, pod))
        mbps = view.registry_mbps()[candidates]
        time_s = time_to_instantiate_s(np.full(candidates.size, size_mb), mbps)
        other = self.added_to.score(view, pod, candidates).total
        total = other + rescaled(time_s, InfrastructureAware().w)
        return Scores(candidates, total, best(total, self.better), lambda at: f"{time_s[at]:.3g} s")

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Mapping[str, int]:
        """The charge of `added_to`."""
        return self.added_to.charge(view, pod, node)
