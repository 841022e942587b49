"""The types that a strategy in another package needs; docs/writing-a-strategy.md shows one.

Only these names stay as they are from one release to the next. A strategy is a frozen dataclass
with the attributes and methods of `Strategy`. It sees one `ClusterView`, and gives `Scores`. A
test reads its cluster with `leadline_controller.snapshot.snapshot.read_snapshot`.
"""

from leadline_controller.framework.batch import Allowed as Allowed
from leadline_controller.framework.batch import BatchPlan as BatchPlan
from leadline_controller.framework.batch import BatchStrategy as BatchStrategy
from leadline_controller.framework.batch import Move as Move
from leadline_controller.framework.batch import Running as Running
from leadline_controller.framework.cycle import Better as Better
from leadline_controller.framework.cycle import Filter as Filter
from leadline_controller.framework.cycle import FilteringStrategy as FilteringStrategy
from leadline_controller.framework.cycle import FilterResult as FilterResult
from leadline_controller.framework.cycle import Leeway as Leeway
from leadline_controller.framework.cycle import Scores as Scores
from leadline_controller.framework.cycle import Strategy as Strategy
from leadline_controller.framework.cycle import best as best
from leadline_controller.framework.link_table import LinkTable as LinkTable
from leadline_controller.framework.model import CPU as CPU
from leadline_controller.framework.model import MEMORY as MEMORY
from leadline_controller.framework.model import PODS as PODS
from leadline_controller.framework.model import Node as Node
from leadline_controller.framework.model import Pod as Pod
from leadline_controller.framework.model import PodAnnotations as PodAnnotations
from leadline_controller.framework.node_metrics import METRICS as METRICS
from leadline_controller.framework.node_metrics import NodeMetrics as NodeMetrics
from leadline_controller.framework.options import build as build
from leadline_controller.framework.options import choice as choice
from leadline_controller.framework.options import option as option
from leadline_controller.framework.queueing_hints import ANY_EVENT as ANY_EVENT
from leadline_controller.framework.queueing_hints import NO_EVENT as NO_EVENT
from leadline_controller.framework.queueing_hints import ClusterEvent as ClusterEvent
from leadline_controller.framework.view import Bools as Bools
from leadline_controller.framework.view import ClusterView as ClusterView
from leadline_controller.framework.view import Floats as Floats
from leadline_controller.framework.view import Ints as Ints
from leadline_controller.framework.view import NodeTable as NodeTable
