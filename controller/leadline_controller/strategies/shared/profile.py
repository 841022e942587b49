"""A pod's profile: processing times that were measured beforehand, by node or node class."""

from collections.abc import Mapping

import numpy as np

from leadline_controller.framework.node_table import Floats, NodeTable


def profiled_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """The time of each node, ms, shape (n,): by its name, else by its node class, else NaN."""
    found = table.classes.column(profile_ms)
    for name, ms in profile_ms.items():
        if (at := table.index.get(name)) is not None:
            found[at] = ms
    return found


def slowest_where_unknown_ms(table: NodeTable, profile_ms: Mapping[str, float]) -> Floats:
    """Like profiled_ms, but a node that is not in the profile counts as the slowest that is. The
    profile must not be empty."""
    found = profiled_ms(table, profile_ms)
    return np.where(np.isnan(found), max(profile_ms.values()), found)
