"""What a pod's profile says of a node: processing times that were measured beforehand, by node
or by class of node."""

from collections.abc import Iterable, Mapping

import numpy as np

from leadline_controller.core.model import Node
from leadline_controller.core.nodes import Floats

CLASS_LABEL = "leadline.dev/class"


def profiled_ms(nodes: Iterable[Node], profile_ms: Mapping[str, float]) -> Floats:
    """The time of each node, ms, shape (n,): by its name, else by its label CLASS_LABEL, else
    NaN, as the profile does not know it."""
    return np.array(
        [
            profile_ms.get(node.name, profile_ms.get(node.labels.get(CLASS_LABEL, ""), np.nan))
            for node in nodes
        ],
        dtype=np.float64,
    )


def slowest_where_unknown_ms(nodes: Iterable[Node], profile_ms: Mapping[str, float]) -> Floats:
    """The same, but a node that the profile does not know counts as the slowest that it does:
    not to be known is worth no more than to be known. The profile names one node at least."""
    found = profiled_ms(nodes, profile_ms)
    return np.where(np.isnan(found), max(profile_ms.values()), found)
