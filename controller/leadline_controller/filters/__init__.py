"""FILTERS: who may run a pod at all. One file per family of Kubernetes predicates, one
line each below; the names are Kubernetes' own where it has the predicate."""

from collections.abc import Mapping

from leadline_controller.core.cycle import Filter
from leadline_controller.filters.node_affinity import node_affinity
from leadline_controller.filters.node_bandwidth import node_bandwidth
from leadline_controller.filters.node_ports import node_ports
from leadline_controller.filters.node_ready import node_ready
from leadline_controller.filters.node_resources_fit import node_resources_fit
from leadline_controller.filters.node_unschedulable import node_unschedulable
from leadline_controller.filters.taint_toleration import taint_toleration

FILTERS: Mapping[str, Filter] = {
    "NodeReady": node_ready,
    "NodeUnschedulable": node_unschedulable,
    "TaintToleration": taint_toleration,
    "NodeAffinity": node_affinity,
    "NodePorts": node_ports,
    "NodeResourcesFit": node_resources_fit,
    "NodeBandwidthFit": node_bandwidth,
}

# What kube-scheduler does not know; beside it, in extender mode, the others need not run.
OWN = ("NodeBandwidthFit",)
