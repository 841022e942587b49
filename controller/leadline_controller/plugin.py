"""The types that a strategy in another package needs; docs/writing-a-strategy.md shows one.

Only these names stay as they are from one release to the next. A strategy is a frozen dataclass
with the attributes and methods of `Strategy`. It sees one `ClusterView`, and gives `Scores`. A
test reads its cluster with `leadline_controller.snapshot.snapshot.read_snapshot`.
"""

from leadline_controller.framework.batch import Allowed, BatchPlan, BatchStrategy, Move, Running
from leadline_controller.framework.cycle import (
    Better,
    Filter,
    FilteringStrategy,
    FilterResult,
    Scores,
    Strategy,
    best,
)
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.options import build, choice, option
from leadline_controller.framework.queueing_hints import ANY_EVENT, NO_EVENT, ClusterEvent
from leadline_controller.framework.view import (
    METRICS,
    Bools,
    ClusterView,
    Floats,
    Ints,
    LinkTable,
    NodeMetrics,
    NodeTable,
)

__all__ = [
    "ANY_EVENT",
    "CPU",
    "MEMORY",
    "METRICS",
    "NO_EVENT",
    "PODS",
    "Allowed",
    "BatchPlan",
    "BatchStrategy",
    "Better",
    "Bools",
    "ClusterEvent",
    "ClusterView",
    "Filter",
    "FilterResult",
    "FilteringStrategy",
    "Floats",
    "Ints",
    "LinkTable",
    "Move",
    "Node",
    "NodeMetrics",
    "NodeTable",
    "Pod",
    "PodAnnotations",
    "Running",
    "Scores",
    "Strategy",
    "best",
    "build",
    "choice",
    "option",
]
