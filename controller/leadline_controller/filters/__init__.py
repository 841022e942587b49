"""FILTERS: which nodes are feasible for a pod. One function and one line each; the names are those
of kube-scheduler's plugins where there is one."""

from collections.abc import Mapping

from leadline_controller.filters import node_properties, node_resources, other_pods, volumes
from leadline_controller.framework.cycle import Filter

FILTERS: Mapping[str, Filter] = {
    "NodeReady": node_properties.node_ready,
    "NodeUnschedulable": node_properties.node_unschedulable,
    "TaintToleration": node_properties.taint_toleration,
    "NodeAffinity": node_properties.node_affinity,
    "NodePorts": node_resources.node_ports,
    "NodeResourcesFit": node_resources.node_resources_fit,
    "NodeDeclaredFeatures": node_properties.node_declared_features,
    "VolumeRestrictions": volumes.volume_restrictions,
    "NodeVolumeLimits": volumes.node_volume_limits,
    "VolumeBinding": volumes.volume_binding,
    "VolumeZone": volumes.volume_zone,
    "PodTopologySpread": other_pods.pod_topology_spread,
    "InterPodAffinity": other_pods.inter_pod_affinity,
    "NodeBandwidthFit": node_resources.node_bandwidth,
}

# The filters that kube-scheduler does not have: all that need to run as its extender.
EXTENDER_FILTERS = ("NodeBandwidthFit",)

# The filters that run when kube-scheduler asks its extender to bind a pod: its own and Leadline's.
# It filters nodes that are not ready by their taints, which DaemonSet pods tolerate.
BIND_FILTERS = tuple(name for name in FILTERS if name != "NodeReady")
