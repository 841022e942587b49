"""Clusters and pods made up from a seed, so that every predicate has something to say.

A case is what tests/kube/oracle.py judges. Each has one predicate that it is mainly about, whose
objects are drawn so that it accepts some nodes and refuses others, and now and then a second one.
Everything is valid for an API server; names and sizes are few, so that things meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.kube import draw_pods, draw_preemption, draw_preferences, draw_volumes
from tests.kube.draft import Draft, draw_nodes
from tests.kube.draft import draw_pods as draw_residents
from tests.kube.objects import Object

_VOLUMES: Mapping[str, Callable[[Draft], None]] = {
    "VolumeBinding": draw_volumes.draw_claims,
    "VolumeZone": draw_volumes.draw_zones,
    "VolumeRestrictions": draw_volumes.draw_exclusive,
    "NodeVolumeLimits": draw_volumes.draw_limits,
}
_SOCIAL = ("PodTopologySpread", "InterPodAffinity")
# By the predicate that a case is mainly about; the names are kube-scheduler's.
THEMES: Mapping[str, Callable[[Draft], None]] = {
    "SchedulingGates": draw_pods.draw_gates,
    "NodeUnschedulable": draw_pods.draw_cordons,
    "TaintToleration": draw_pods.draw_taints,
    "NodeAffinity": draw_pods.draw_node_affinity,
    "NodePorts": draw_pods.draw_ports,
    "NodeResourcesFit": draw_pods.draw_resources,
    "NodeDeclaredFeatures": draw_pods.draw_features,
    "PodTopologySpread": draw_pods.draw_spread,
    "InterPodAffinity": draw_pods.draw_affinity,
    **_VOLUMES,
}

# By the Score plugin that a case is mainly about.
PREFERENCES: Mapping[str, Callable[[Draft], None]] = {
    "TaintToleration": draw_preferences.draw_taints,
    "NodeAffinity": draw_preferences.draw_node_affinity,
    "PodTopologySpread": draw_preferences.draw_spread,
    "InterPodAffinity": draw_preferences.draw_affinity,
}


def made_preempting(seed: int, theme: str) -> Object:
    """Return the case of this seed, in which the predicate `theme` is mainly what keeps the pod
    from nodes, and pods of lower priority are in the way."""
    draft = Draft(Random(f"preempting {theme}/{seed}"))
    draw_nodes(draft)
    # The fewer there are, the more often a pod fits none of them.
    del draft.nodes[draft.random.choice((1, 2, 3, 5)) :]
    draw_residents(draft, crowded=True)
    PREEMPTION[theme](draft)
    if draft.chance(0.25):
        other = draft.random.choice([name for name in PREEMPTION if name != theme])
        if not (other in _VOLUMES and theme in _VOLUMES):
            PREEMPTION[other](draft)
    draw_preemption.draw_priorities(draft)
    return draft.case()


def made_preferring(seed: int, theme: str) -> Object:
    """Return the case of this seed, which is mainly about the Score plugin `theme`."""
    draft = Draft(Random(f"preferring {theme}/{seed}"))
    draw_nodes(draft)
    draw_residents(draft, crowded=theme in _SOCIAL)
    for name, draw in PREFERENCES.items():
        if name == theme or draft.chance(0.15):
            draw(draft)
    return draft.case()


# By the predicate that is in the way, of those that preemption can help.
PREEMPTION: Mapping[str, Callable[[Draft], None]] = {
    "NodeResourcesFit": draw_preemption.draw_full_nodes,
    "NodePorts": draw_pods.draw_ports,
    "PodTopologySpread": draw_preemption.draw_spread,
    "InterPodAffinity": draw_pods.draw_affinity,
    "VolumeRestrictions": draw_volumes.draw_exclusive,
    "NodeVolumeLimits": draw_volumes.draw_limits,
}


def made(seed: int, theme: str) -> Object:
    """Return the case of this seed, which is mainly about the predicate `theme`."""
    draft = Draft(Random(f"{theme}/{seed}"))
    draw_nodes(draft)
    draw_residents(draft, crowded=theme in _SOCIAL)
    THEMES[theme](draft)
    if draft.chance(0.25):
        other = draft.random.choice([name for name in THEMES if name != theme])
        if not (other in _VOLUMES and theme in _VOLUMES):
            THEMES[other](draft)
    return draft.case()
