"""PREFERENCES: how much a pod prefers each feasible node. One file and one line each: those of
kube-scheduler's Score plugins that go by what pods and nodes state, by the plugin's name, with its
weight in kube-scheduler's default profile. OWN_PREFERENCES: those that kube-scheduler does not
have."""

from collections.abc import Mapping

from leadline_controller.framework.preferences import Preference, PreferenceRule
from leadline_controller.preferences.inter_pod_affinity import inter_pod_affinity
from leadline_controller.preferences.node_affinity import node_affinity
from leadline_controller.preferences.peers import peers
from leadline_controller.preferences.pod_topology_spread import pod_topology_spread
from leadline_controller.preferences.taint_toleration import taint_toleration

PREFERENCES: Mapping[str, tuple[Preference, int]] = {
    "TaintToleration": (taint_toleration, 3),
    "NodeAffinity": (node_affinity, 2),
    "PodTopologySpread": (pod_topology_spread, 2),
    "InterPodAffinity": (inter_pod_affinity, 2),
}
# As InterPodAffinity, which also places pods near each other.
OWN_PREFERENCES: Mapping[str, tuple[Preference, int]] = {"Peers": (peers, 2)}


def rule(setting: str | float) -> PreferenceRule | None:
    """By the setting `strategy.preferences`: "off"; "on", with the strategy's own tolerance; or a
    tolerance in the unit of its total."""
    if setting == "off":
        return None
    plugins = {**PREFERENCES, **OWN_PREFERENCES}
    return PreferenceRule(plugins, None if setting == "on" else float(setting))
