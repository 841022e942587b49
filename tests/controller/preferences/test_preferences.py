"""The scores of each preference, worked out by hand from kube-scheduler's rules."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import Node, Owner, Pod, Taint
from leadline_controller.framework.preferences import PreferenceScores
from leadline_controller.framework.selectors import Requirement
from leadline_controller.preferences import PREFERENCES

from tests.controller.builders import node, pod, view

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}
SOFT = Taint("slow", "", "PreferNoSchedule")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def boards(*zones: str | None) -> list[Node]:
    return [
        node(f"n{i}", labels={HOST: f"n{i}", **({ZONE: zone} if zone else {})})
        for i, zone in enumerate(zones)
    ]


def scored(
    plugin: str,
    nodes: Sequence[Node],
    wanted: Pod,
    assigned_pods: Sequence[Pod] = (),
    objects: Sequence[PodSelector] = (),
) -> PreferenceScores | None:
    cluster = view(nodes, assigned_pods=assigned_pods, objects=objects)
    return PREFERENCES[plugin][0](cluster, wanted, np.arange(len(nodes)))


def both(found: PreferenceScores | None) -> tuple[list[int], list[int]]:
    assert found is not None
    return found.raw.tolist(), found.normalized.tolist()


def on(name: str, **fields: Any) -> Pod:
    return pod(f"r-{name}", nodeName=name, **{"labels": {"app": "web"}, **fields})


def affine(kind: str, weight: int, key: str = ZONE) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": WEB}
    return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


@pytest.mark.parametrize("plugin", PREFERENCES)
def test_a_plain_pod_on_plain_boards_prefers_none(plugin: str) -> None:
    assert scored(plugin, boards("a", "b"), pod(labels={"app": "web"}), [on("n0")]) is None


def test_node_affinity_adds_the_weights_of_the_terms_that_match() -> None:
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    fast = {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}
    terms = [{"weight": 30, "preference": ssd}, {"weight": 15, "preference": fast}]
    terms.append({"weight": 100, "preference": {}})  # matches no node
    wanted = pod(affinity={"nodeAffinity": {PREFERRED: terms}})
    labels: tuple[dict[str, str], ...] = (
        {},
        {"disk": "ssd"},
        {"cores": "8"},
        {"disk": "ssd", "cores": "8"},
    )
    nodes = [node(f"n{i}", labels=each) for i, each in enumerate(labels)]
    assert both(scored("NodeAffinity", nodes, wanted)) == ([0, 30, 15, 45], [0, 66, 33, 100])


def test_taint_toleration_counts_soft_taints_that_are_not_tolerated() -> None:
    hard, other = Taint("gpu", "", "NoSchedule"), Taint("old", "yes", "PreferNoSchedule")
    nodes = [node("n0"), node("n1", taints=(SOFT, hard)), node("n2", taints=(SOFT, other))]
    assert both(scored("TaintToleration", nodes, pod())) == ([0, 1, 2], [100, 50, 0])
    tolerating = pod(tolerations=[{"key": "slow", "operator": "Exists"}])
    assert both(scored("TaintToleration", nodes, tolerating)) == ([0, 0, 1], [100, 100, 0])
    for_hard = pod(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}])
    assert both(scored("TaintToleration", nodes, for_hard)) == ([0, 1, 2], [100, 50, 0])
    assert scored("TaintToleration", nodes, pod(tolerations=[{"operator": "Exists"}])) is None


def test_pod_affinity_attracts_and_anti_affinity_repels() -> None:
    nodes, there = boards("a", "a", "b", None), [on("n0"), on("n2"), on("n2")]
    near = pod(affinity=affine("podAffinity", 10))
    assert both(scored("InterPodAffinity", nodes, near, there)) == (
        [10, 10, 20, 0],
        [50, 50, 100, 0],
    )
    away = pod(affinity=affine("podAntiAffinity", 10))
    found = scored("InterPodAffinity", nodes, away, there)
    assert both(found) == ([-10, -10, -20, 0], [50, 50, 0, 100])


def test_assigned_pods_attract_and_repel_too() -> None:
    nodes, wanted = boards("a", "b", "c"), pod(labels={"app": "web"})
    friend = on("n0", labels={}, affinity=affine("podAffinity", 4))
    foe = on("n1", labels={}, affinity=affine("podAntiAffinity", 2))
    term = {"topologyKey": ZONE, "labelSelector": WEB}
    bound = on("n2", labels={}, affinity={"podAffinity": {REQUIRED: [term]}})
    found = scored("InterPodAffinity", nodes, wanted, [friend, foe, bound])
    assert both(found) == ([4, -2, 1], [100, 0, 50])
    assert scored("InterPodAffinity", nodes, pod(labels={"app": "db"}), [friend, foe]) is None
    twice = on("n0", labels={}, affinity={"podAffinity": {REQUIRED: [term, term]}})
    assert both(scored("InterPodAffinity", nodes, wanted, [twice]))[0] == [2, 0, 0]


def soft_spread(key: str, **fields: Any) -> dict[str, Any]:
    made = {"maxSkew": 1, "topologyKey": key, "labelSelector": WEB}
    return {**made, "whenUnsatisfiable": "ScheduleAnyway", **fields}


def test_spreading_counts_the_pods_of_the_domain() -> None:
    """The weight is ln(domains + 2), here ln 4 = 1.386, so 2 pods are 2.77, and 3 in raw points."""
    nodes, there = boards("a", "a", "b", None), [on("n0"), on("n1"), on("n0", namespace="blue")]
    wanted = pod(labels={"app": "web"}, topologySpreadConstraints=[soft_spread(ZONE)])
    found = scored("PodTopologySpread", nodes, wanted, there)
    assert both(found) == ([3, 3, 0, 0], [0, 0, 100, 0])  # n3 has no zone
    going = [replace(each, terminating=True) for each in there]
    assert both(scored("PodTopologySpread", nodes, wanted, going)) == ([0] * 4, [100] * 3 + [0])


def test_max_skew_waters_differences_down() -> None:
    nodes, there = boards("a", "b"), [on("n0")]
    for max_skew, raw, normalized in ((1, [1, 0], [0, 100]), (5, [5, 4], [80, 100])):
        soft = soft_spread(ZONE, maxSkew=max_skew)
        wanted = pod(labels={"app": "web"}, topologySpreadConstraints=[soft])
        assert both(scored("PodTopologySpread", nodes, wanted, there)) == (raw, normalized)


def of_set(name: str, api_version: str = "apps/v1", **fields: Any) -> Pod:
    owner = Owner("ReplicaSet", name, "uid", api_version)
    return replace(pod(labels={"app": "web", "hash": "1"}, **fields), owner=owner)


WEB_SET = PodSelector("ReplicaSet", "default", "web", (Requirement("app", "In", ("web",)),))
WEB_SERVICE = replace(WEB_SET, kind="Service")


def test_a_deployments_pods_are_spread_by_default() -> None:
    """maxSkew 3 over hosts, 5 over zones: 2 + 4 points for each node, and the pods there."""
    nodes, there = boards("a", "b", None), [on("n0"), on("n0")]
    found = scored("PodTopologySpread", nodes, of_set("web"), there, [WEB_SET])
    # 2 * ln 5 on the host, 2 * ln 5 in the zone: three zones, as no zone is one.
    assert both(found) == ([12, 6, 2], [16, 66, 100])
    assert scored("PodTopologySpread", nodes, of_set("gone"), there, [WEB_SET]) is None
    foreign = of_set("web", "example.com/v1")
    assert scored("PodTopologySpread", nodes, foreign, there, [WEB_SET]) is None


def test_constraints_of_its_own_replace_the_default_ones() -> None:
    nodes, there = boards("a", "b"), [on("n0")]
    hard = soft_spread(ZONE, whenUnsatisfiable="DoNotSchedule")
    wanted = of_set("web", topologySpreadConstraints=[hard])
    assert scored("PodTopologySpread", nodes, wanted, there, [WEB_SET]) is None


def test_services_select_peers_as_well() -> None:
    nodes, there = boards(None, None), [on("n0")]
    wanted = pod(labels={"app": "web"})
    assert both(scored("PodTopologySpread", nodes, wanted, there, [WEB_SERVICE]))[1] == [66, 100]
    elsewhere = replace(WEB_SERVICE, namespace="blue")
    assert scored("PodTopologySpread", nodes, wanted, there, [elsewhere]) is None
    unrelated = replace(WEB_SERVICE, selector=(Requirement("app", "In", ("db",)),))
    assert scored("PodTopologySpread", nodes, wanted, there, [unrelated]) is None
