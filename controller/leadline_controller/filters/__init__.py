"""FILTERS: which nodes are feasible for a pod. One file and one line each; the names are those of
kube-scheduler's plugins where there is one."""

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
from leadline_controller.filters.peer_round_trip import peer_round_trip
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
    "PeerRoundTrip": peer_round_trip,
}

# The filters that kube-scheduler does not have: all that need to run as its extender.
EXTENDER_FILTERS = ("NodeBandwidthFit", "PeerRoundTrip")

# The filters that run when kube-scheduler asks its extender to bind a pod: its own and Leadline's.
# It filters nodes that are not ready by their taints, which DaemonSet pods tolerate.
BIND_FILTERS = tuple(name for name in FILTERS if name != "NodeReady")
