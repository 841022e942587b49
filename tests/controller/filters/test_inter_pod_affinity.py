"""InterPodAffinity, as Kubernetes documents it and as kube-scheduler 1.36 does it."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import NamespaceLabels
from leadline_controller.framework.model import Pod

from tests.controller.builders import pod, view
from tests.controller.filters.filter_harness import ZONE, passing, reasons, zoned

NAMESPACES = (
    NamespaceLabels("default", {}),
    NamespaceLabels("blue", {"team": "blue"}),
    NamespaceLabels("red", {"team": "red"}),
)
WEB = {"matchLabels": {"app": "web"}}


def term(**fields: Any) -> dict[str, Any]:
    return {"topologyKey": ZONE, "labelSelector": WEB, **fields}


def requiring(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def pod_with(kind: str, *terms: dict[str, Any], **fields: Any) -> Pod:
    return pod(affinity=requiring(kind, *terms), **fields)


def on(node: str, app: str = "web", **fields: Any) -> Pod:
    return pod(f"{app}-{node}", labels={"app": app}, nodeName=node, **fields)


# n0 and n1 are in zone a, n2 in b, n3 in none.
NODES = zoned("a", "a", "b", None)


@pytest.mark.parametrize(
    ("assigned_pods", "near", "away"),
    [
        # The whole zone counts. A node without the label is in no zone.
        ([on("n0")], "n0 n1", "n2 n3"),
        ([on("n0"), on("n2")], "n0 n1 n2", "n3"),
        ([on("n0", "db")], "", "n0 n1 n2 n3"),
        ([on("n3")], "", "n0 n1 n2 n3"),
        ([on("n0", namespace="blue")], "", "n0 n1 n2 n3"),
        # A pod that is being deleted still counts.
        ([replace(on("n0"), terminating=True)], "n0 n1", "n2 n3"),
        ([], "", "n0 n1 n2 n3"),
    ],
)
def test_affinity_and_anti_affinity_apply_to_domains(
    assigned_pods: list[Pod], near: str, away: str
) -> None:
    cluster = view(NODES, assigned_pods=assigned_pods, objects=NAMESPACES)
    assert passing("InterPodAffinity", cluster, pod_with("podAffinity", term())) == near
    assert passing("InterPodAffinity", cluster, pod_with("podAntiAffinity", term())) == away


@pytest.mark.parametrize(
    ("assigned_pods", "labels", "expected"),
    [
        ([], {"app": "web"}, "n0 n1 n2"),
        ([], {"app": "db"}, ""),
        # No longer the first once there is one of them, wherever a zone can be told.
        ([on("n2")], {"app": "web"}, "n2"),
        ([on("n3")], {"app": "web"}, "n0 n1 n2"),
        ([on("n0", namespace="blue")], {"app": "web"}, "n0 n1 n2"),
    ],
)
def test_the_first_pod_of_a_group_with_affinity_to_itself_passes(
    assigned_pods: list[Pod], labels: dict[str, str], expected: str
) -> None:
    first = pod_with("podAffinity", term(), labels=labels)
    assert passing("InterPodAffinity", view(NODES, assigned_pods=assigned_pods), first) == expected


def test_one_assigned_pod_must_match_all_affinity_terms() -> None:
    front = {"matchLabels": {"tier": "front"}}
    wanted = pod_with("podAffinity", term(), term(labelSelector=front))
    apart = [on("n0"), pod("f", labels={"tier": "front"}, nodeName="n0")]
    both = pod("b", labels={"app": "web", "tier": "front"}, nodeName="n2")
    assert passing("InterPodAffinity", view(NODES, assigned_pods=apart), wanted) == ""
    assert passing("InterPodAffinity", view(NODES, assigned_pods=[*apart, both]), wanted) == "n2"


def test_any_term_of_an_anti_affinity_is_enough() -> None:
    db = {"matchLabels": {"app": "db"}}
    wanted = pod_with("podAntiAffinity", term(), term(labelSelector=db))
    cluster = view(NODES, assigned_pods=[on("n0", "db")])
    assert passing("InterPodAffinity", cluster, wanted) == "n2 n3"


@pytest.mark.parametrize(
    ("fields", "near"),
    [
        ({"namespaces": ["blue"]}, "n0 n1"),
        ({"namespaces": ["red"]}, ""),
        ({"namespaceSelector": {}}, "n0 n1"),
        ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, "n0 n1"),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, ""),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}, "namespaces": ["blue"]}, "n0 n1"),
        # kube-scheduler takes a selector that wants no label to mean every namespace.
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]
                }
            },
            "n0 n1",
        ),
        ({"labelSelector": None, "namespaceSelector": {}}, ""),
        ({"labelSelector": {}, "namespaceSelector": {}}, "n0 n1"),
    ],
)
def test_namespaces(fields: dict[str, Any], near: str) -> None:
    cluster = view(NODES, assigned_pods=[on("n0", namespace="blue")], objects=NAMESPACES)
    wanted = pod_with("podAffinity", term(**fields))
    assert passing("InterPodAffinity", cluster, wanted) == near


def test_a_pod_in_an_unknown_namespace_matches_anti_affinity_only() -> None:
    blue = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    cluster = view(NODES, assigned_pods=[on("n0", namespace="blue")])
    away = pod_with("podAntiAffinity", term(**blue))
    assert passing("InterPodAffinity", cluster, away) == "n2 n3"
    assert passing("InterPodAffinity", cluster, pod_with("podAffinity", term(**blue))) == ""
    guard = on("n0", "guard", affinity=requiring("podAntiAffinity", term(**blue)))
    guarded = view(NODES, assigned_pods=[guard])
    assert passing("InterPodAffinity", guarded, pod(labels={"app": "web"})) == "n2 n3"


@pytest.mark.parametrize(
    ("fields", "labels", "namespace", "expected"),
    [
        ({}, {"app": "web"}, "default", "n2 n3"),
        ({}, {"app": "db"}, "default", "n0 n1 n2 n3"),
        ({}, {"app": "web"}, "blue", "n0 n1 n2 n3"),
        ({"namespaces": ["blue"]}, {"app": "web"}, "blue", "n2 n3"),
        ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {"app": "web"}, "blue", "n2 n3"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
            {"app": "web"},
            "default",
            "n0 n1 n2 n3",
        ),
        ({"topologyKey": "absent"}, {"app": "web"}, "default", "n0 n1 n2 n3"),
    ],
)
def test_an_assigned_pods_anti_affinity_holds_for_its_whole_domain(
    fields: dict[str, Any], labels: dict[str, str], namespace: str, expected: str
) -> None:
    guard = on("n1", "guard", affinity=requiring("podAntiAffinity", term(**fields)))
    cluster = view(NODES, assigned_pods=[guard], objects=NAMESPACES)
    wanted = pod(labels=labels, namespace=namespace)
    assert passing("InterPodAffinity", cluster, wanted) == expected


def test_preferred_affinity_rejects_no_node() -> None:
    preferred = {"weight": 100, "podAffinityTerm": term()}
    soft = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    cluster = view(NODES, assigned_pods=[on("n0"), on("n2", affinity=soft)])
    assert passing("InterPodAffinity", cluster, pod(affinity=soft)) == "n0 n1 n2 n3"


def test_the_reason_tells_whose_rule_failed() -> None:
    guard = on("n2", "guard", affinity=requiring("podAntiAffinity", term()))
    cluster = view(NODES, assigned_pods=[on("n0"), guard])
    affinity = {
        **requiring("podAffinity", term(labelSelector={})),
        **requiring("podAntiAffinity", term()),
    }
    assert reasons("InterPodAffinity", cluster, pod(labels={"app": "web"}, affinity=affinity)) == {
        "n0": "the pod's anti-affinity rules are not met",
        "n1": "the pod's anti-affinity rules are not met",
        "n2": "the anti-affinity rules of pods there are not met",
        "n3": "the pod's affinity rules are not met",
    }
