"""FILTERS: who may run a pod at all. One file per family of Kubernetes predicates, one
line each below; the names are Kubernetes' own where it has the predicate."""

from collections.abc import Mapping

from leadline_controller.filters.inter_pod_affinity import inter_pod_affinity
from leadline_controller.filters.node_affinity import node_affinity
from leadline_controller.filters.node_bandwidth import node_bandwidth
from leadline_controller.filters.node_declared_features import node_declared_features
from leadline_controller.filters.node_ports import node_ports
from leadline_controller.filters.node_ready import node_ready
from leadline_controller.filters.node_resources_fit import node_resources_fit
from leadline_controller.filters.node_unschedulable import node_unschedulable
from leadline_controller.filters.node_volume_limits import node_volume_limits
from leadline_controller.filters.pod_topology_spread import pod_topology_spread
from leadline_controller.filters.taint_toleration import taint_toleration
from leadline_controller.filters.volume_binding import volume_binding
from leadline_controller.filters.volume_restrictions import volume_restrictions
from leadline_controller.filters.volume_zone import volume_zone
from leadline_controller.framework.cycle import Filter

FILTERS: Mapping[str, Filter] = {
    "NodeReady": node_ready,
    "NodeUnschedulable": node_unschedulable,
    "TaintToleration": taint_toleration,
    "NodeAffinity": node_affinity,
    "NodePorts": node_ports,
    "NodeResourcesFit": node_resources_fit,
    "NodeDeclaredFeatures": node_declared_features,
    "VolumeRestrictions": volume_restrictions,
    "NodeVolumeLimits": node_volume_limits,
    "VolumeBinding": volume_binding,
    "VolumeZone": volume_zone,
    "PodTopologySpread": pod_topology_spread,
    "InterPodAffinity": inter_pod_affinity,
    "NodeBandwidthFit": node_bandwidth,
}

# What kube-scheduler does not know; beside it, in extender mode, the others need not run.
OWN = ("NodeBandwidthFit",)

# What must hold when kube-scheduler has a pod bound: whatever it filters by, too. It has no filter
# for nodes that are not ready, but their taints, which the pods of a DaemonSet tolerate.
AT_BINDING = tuple(name for name in FILTERS if name != "NodeReady")
