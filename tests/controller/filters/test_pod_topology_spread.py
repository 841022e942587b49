"""PodTopologySpread, as Kubernetes documents it."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.framework.model import Pod, Taint

from tests.controller.builders import node, pod, view
from tests.controller.filters.filter_harness import ZONE, passing, reasons, zoned

WEB = {"matchLabels": {"app": "web"}}
RACK = "example.com/rack"


def constraint(**fields: Any) -> dict[str, Any]:
    basic = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {**basic, "labelSelector": WEB, **fields}


def pod_with(*constraints: dict[str, Any], app: str = "web", **fields: Any) -> Pod:
    labels = {"app": app, "rev": "2"}
    return pod(labels=labels, topologySpreadConstraints=list(constraints), **fields)


def on(*nodes: str, app: str = "web", **fields: Any) -> list[Pod]:
    return [pod(f"p{i}", labels={"app": app}, nodeName=n, **fields) for i, n in enumerate(nodes)]


# n0 and n1 are in zone a, n2 in b, n3 in c, n4 in none.
NODES = zoned("a", "a", "b", "c", None)


@pytest.mark.parametrize(
    ("fields", "assigned_pods", "expected"),
    [
        ({}, [], "n0 n1 n2 n3"),
        ({}, on("n0"), "n2 n3"),
        ({}, on("n0", "n2"), "n3"),
        ({}, on("n0", "n2", "n3"), "n0 n1 n2 n3"),
        ({"maxSkew": 2}, on("n0"), "n0 n1 n2 n3"),
        ({"maxSkew": 2}, on("n0", "n1"), "n2 n3"),
        # Pods of others, of another namespace, being deleted, or in no zone don't count.
        ({}, on("n0", app="db"), "n0 n1 n2 n3"),
        ({}, on("n0", namespace="blue"), "n0 n1 n2 n3"),
        ({}, [replace(on("n0")[0], terminating=True)], "n0 n1 n2 n3"),
        ({}, on("n4", "n4"), "n0 n1 n2 n3"),
        # No selector matches nothing; an empty one matches every pod, yet it counts
        # none.
        ({"labelSelector": None}, on("n0", "n0"), "n0 n1 n2 n3"),
        ({"labelSelector": {}}, on("n0", "n0"), "n0 n1 n2 n3"),
        # With fewer zones than minDomains the global minimum is 0.
        ({"minDomains": 3}, on("n0", "n2", "n3"), "n0 n1 n2 n3"),
        ({"minDomains": 4}, on("n0", "n2", "n3"), ""),
        ({"topologyKey": "absent"}, [], ""),
    ],
)
def test_zones(fields: dict[str, Any], assigned_pods: list[Pod], expected: str) -> None:
    cluster = view(NODES, assigned_pods=assigned_pods)
    assert passing("PodTopologySpread", cluster, pod_with(constraint(**fields))) == expected


def test_a_pod_that_does_not_match_its_own_constraint_adds_nothing() -> None:
    cluster = view(NODES, assigned_pods=on("n0"))
    wanted = pod_with(constraint(), app="db")
    assert passing("PodTopologySpread", cluster, wanted) == "n0 n1 n2 n3"


def test_only_pods_with_the_same_value_of_the_label_keys_count() -> None:
    old = pod("old", labels={"app": "web", "rev": "1"}, nodeName="n0")
    cluster = view(NODES, assigned_pods=[old])
    assert passing("PodTopologySpread", cluster, pod_with(constraint())) == "n2 n3"
    wanted = pod_with(constraint(matchLabelKeys=["rev", "absent"]))
    assert passing("PodTopologySpread", cluster, wanted) == "n0 n1 n2 n3"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # Zone c, which the pod can't use, stays out of the count, so a and b are even ...
        ({}, "n0 n1 n2 n3"),
        # ... unless the policy lets it count.
        ({"nodeAffinityPolicy": "Ignore"}, "n3"),
    ],
)
def test_node_affinity_policy(fields: dict[str, Any], expected: str) -> None:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["c"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    wanted = pod_with(constraint(**fields), affinity={"nodeAffinity": required})
    cluster = view(NODES, assigned_pods=on("n0", "n2"))
    assert passing("PodTopologySpread", cluster, wanted) == expected


@pytest.mark.parametrize(
    ("fields", "expected"), [({}, "n2"), ({"nodeTaintsPolicy": "Honor"}, "n0 n1 n2")]
)
def test_node_taints_policy(fields: dict[str, Any], expected: str) -> None:
    nodes = [*NODES[:2], replace(NODES[2], taints=(Taint("t", "", "NoExecute"),))]
    cluster = view(nodes, assigned_pods=on("n0"))
    assert passing("PodTopologySpread", cluster, pod_with(constraint(**fields))) == expected


def test_every_constraint_must_hold_and_only_nodes_with_all_labels_count() -> None:
    nodes = [
        node("n0", labels={ZONE: "a", RACK: "1"}),
        node("n1", labels={ZONE: "a", RACK: "2"}),
        node("n2", labels={ZONE: "b", RACK: "1"}),
        node("n3", labels={ZONE: "c"}),
    ]
    both = pod_with(constraint(), constraint(topologyKey=RACK))
    cluster = view(nodes, assigned_pods=[*on("n0"), *on("n3", "n3")])
    # In zone c no node has a rack, so its pods don't count; rack 1 has one pod, rack 2 none.
    assert reasons("PodTopologySpread", cluster, both) == {
        "n0": f"topology spread over {ZONE}: the skew would be 2, at most 1",
        "n1": f"topology spread over {ZONE}: the skew would be 2, at most 1",
        "n2": f"topology spread over {RACK}: the skew would be 2, at most 1",
        "n3": f"topology spread: the node has no label {RACK}",
    }


def test_schedule_anyway_rejects_no_node() -> None:
    soft = pod_with(constraint(whenUnsatisfiable="ScheduleAnyway", topologyKey="absent"))
    assert passing("PodTopologySpread", view(NODES, assigned_pods=on("n0", "n0")), soft) == (
        "n0 n1 n2 n3 n4"
    )
