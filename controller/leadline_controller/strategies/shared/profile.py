"""What a pod's profile says of a node: processing times that were measured beforehand, by node
or by class of node."""

from collections.abc import Mapping

import numpy as np

from leadline_controller.framework.node_table import Floats, NodeTable


def profiled_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """The time of every node, ms, shape (n,): by its name, else by its label CLASS_LABEL, else
    NaN, as the profile does not know it."""
    found = table.classes.column(profile_ms)
    for name, ms in profile_ms.items():
        if (at := table.index.get(name)) is not None:
            found[at] = ms
    return found


def slowest_where_unknown_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """The same, but a node that the profile does not know counts as the slowest that it does:
    not to be known is worth no more than to be known. The profile names one node at least."""
    found = profiled_ms(table, profile_ms)
    return np.where(np.isnan(found), max(profile_ms.values()), found)
