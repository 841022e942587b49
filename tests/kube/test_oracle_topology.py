"""The oracle on affinity, anti-affinity and topology spread."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.objects import Object, node, pod
from tests.kube.oracle import Oracle
from tests.kube.oracle_cases import WEB, ZONE, ExpectedPods, check, in_zones, resident

pytestmark = pytest.mark.cluster

HOST = "kubernetes.io/hostname"


def requiring(*terms: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def spread(**rest: Any) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
        **rest,
    }


def affine(kind: str, key: str, **rest: Any) -> Object:
    return {kind: requiring({"topologyKey": key, "labelSelector": WEB, **rest})}


def test_pod_affinity_and_anti_affinity(oracle: Oracle) -> None:
    nodes = in_zones("a", "a", "b")
    there = [resident("r", "n1", labels={"app": "web"})]
    follows: ExpectedPods = {"n1": set(), "n2": set(), "n3": {"InterPodAffinity"}}
    check(
        oracle, follows, nodes=nodes, pods=there, pod=pod("p", affinity=affine("podAffinity", ZONE))
    )
    flees: ExpectedPods = {"n1": {"InterPodAffinity"}, "n2": {"InterPodAffinity"}, "n3": set()}
    fleeing = pod("p", affinity=affine("podAntiAffinity", ZONE))
    check(oracle, flees, nodes=nodes, pods=there, pod=fleeing)


def test_the_first_pod_of_a_group_may_match_its_own_affinity(oracle: Oracle) -> None:
    first = pod("p", labels={"app": "web"}, affinity=affine("podAffinity", ZONE))
    check(oracle, {"n1": set(), "n2": set()}, nodes=in_zones("a", "b"), pod=first)


def test_the_anti_affinity_of_an_assigned_pod_rejects_the_whole_zone(oracle: Oracle) -> None:
    guard = resident("r", "n1", affinity=affine("podAntiAffinity", ZONE))
    case: dict[str, Any] = {"nodes": in_zones("a", "a", "b"), "pods": [guard]}
    refused: ExpectedPods = {"n1": {"InterPodAffinity"}, "n2": {"InterPodAffinity"}, "n3": set()}
    check(oracle, refused, **case, pod=pod("p", labels={"app": "web"}))
    check(oracle, {"n1": set(), "n2": set(), "n3": set()}, **case, pod=pod("p"))


def test_affinity_matches_only_its_namespaces(oracle: Oracle) -> None:
    elsewhere = resident("r", "n1", labels={"app": "web"})
    elsewhere["metadata"]["namespace"] = "blue"
    blue = {"metadata": {"name": "blue", "labels": {"team": "blue"}}}
    case: dict[str, Any] = {"nodes": [node("n1")], "pods": [elsewhere], "namespaces": [blue]}
    own = affine("podAntiAffinity", HOST)
    named = affine("podAntiAffinity", HOST, namespaceSelector={"matchLabels": {"team": "blue"}})
    check(oracle, {"n1": set()}, **case, pod=pod("p", affinity=own))
    check(oracle, {"n1": {"InterPodAffinity"}}, **case, pod=pod("p", affinity=named))


def test_topology_spread(oracle: Oracle) -> None:
    nodes = [*in_zones("a", "b"), node("n3")]
    there = [resident("r", "n1", labels={"app": "web"})]
    skewed: ExpectedPods = {
        "n1": {"PodTopologySpread"},
        "n2": set(),
        "n3": {"PodTopologySpread"},
    }
    asking = pod("p", labels={"app": "web"}, topologySpreadConstraints=[spread()])
    check(oracle, skewed, nodes=nodes, pods=there, pod=asking)


def test_topology_spread_with_min_domains(oracle: Oracle) -> None:
    """With fewer domains than minDomains, the global minimum is 0."""
    there = [resident(f"r{i}", f"n{i}", labels={"app": "web"}) for i in (1, 2)]
    for domains, refused in ((2, False), (3, True)):
        plugins = {"PodTopologySpread"} if refused else set()
        asking = pod(
            "p", labels={"app": "web"}, topologySpreadConstraints=[spread(minDomains=domains)]
        )
        check(
            oracle, {"n1": plugins, "n2": plugins}, nodes=in_zones("a", "b"), pods=there, pod=asking
        )


def test_topology_spread_counts_only_the_same_revision(oracle: Oracle) -> None:
    old = resident("r", "n1", labels={"app": "web", "revision": "1"})
    for revision, refused in (("2", False), ("1", True)):
        asking = pod(
            "p",
            labels={"app": "web", "revision": revision},
            topologySpreadConstraints=[spread(matchLabelKeys=["revision"])],
        )
        expected = {"n1": {"PodTopologySpread"} if refused else set(), "n2": set()}
        check(oracle, expected, nodes=in_zones("a", "b"), pods=[old], pod=asking)


def test_topology_spread_honours_taints_only_on_request(oracle: Oracle) -> None:
    """An empty zone with a taint counts as a domain, unless taints are honoured."""
    taint = {"key": "dedicated", "effect": "NoSchedule"}
    nodes = [*in_zones("a"), node("n2", labels={ZONE: "b"}, taints=[taint])]
    there = [resident("r", "n1", labels={"app": "web"})]
    for policy, refused in (("Ignore", True), ("Honor", False)):
        asking = pod(
            "p",
            labels={"app": "web"},
            topologySpreadConstraints=[spread(nodeTaintsPolicy=policy)],
        )
        expected = {
            "n1": {"PodTopologySpread"} if refused else set(),
            "n2": {"TaintToleration"},
        }
        check(oracle, expected, nodes=nodes, pods=there, pod=asking)


def test_objects_get_the_api_servers_defaults(oracle: Oracle) -> None:
    asking = pod(
        "p",
        labels={"app": "web", "revision": "1"},
        affinity=affine("podAffinity", ZONE, matchLabelKeys=["revision"]),
    )
    stored = oracle.judge({"pod": asking, "pods": [resident("r", "n1", cpu="1")]}).stored
    (term,) = stored["pod"]["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    merged = {"key": "revision", "operator": "In", "values": ["1"]}
    assert term["labelSelector"]["matchExpressions"] == [merged]
    assert stored["pods"][0]["metadata"]["namespace"] == "default"
    assert [each["metadata"]["name"] for each in stored["namespaces"]] == ["default"]
