"""The oracle on volumes: their topology, their provisioning and their limits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.objects import node, pod
from tests.kube.oracle import Oracle, refusals
from tests.kube.oracle_cases import ZONE, ExpectedPods, check, in_zones
from tests.kube.volumes import HOST, NO_PROVISIONER, bound, claim, mounting, storage_class, volume

pytestmark = pytest.mark.cluster


def test_a_bound_volumes_node_affinity(oracle: Oracle) -> None:
    c1, v1 = bound("c1", node_name="n2")
    expected: ExpectedPods = {"n1": {"VolumeBinding"}, "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pvcs=[c1], pvs=[v1], pod=mounting("c1"))


def test_an_unbound_claim_needs_a_volume_on_the_node(oracle: Oracle) -> None:
    case: dict[str, Any] = {
        "nodes": [node("n1"), node("n2")],
        "storageClasses": [storage_class("local", NO_PROVISIONER)],
        "pvs": [volume("v1", "local", node_name="n2")],
        "pod": mounting("c1"),
    }
    check(oracle, {"n1": {"VolumeBinding"}, "n2": set()}, **case, pvcs=[claim("c1", "local")])


def test_an_unbound_claim_can_be_provisioned_in_its_classs_topology(oracle: Oracle) -> None:
    topology = [{"matchLabelExpressions": [{"key": HOST, "values": ["n2"]}]}]
    case: dict[str, Any] = {"nodes": [node("n1"), node("n2")], "pod": mounting("c1")}
    anywhere = storage_class("path", "rancher.io/local-path")
    somewhere = storage_class("path", "rancher.io/local-path", allowedTopologies=topology)
    waiting = [claim("c1", "path")]
    check(oracle, {"n1": set(), "n2": set()}, **case, pvcs=waiting, storageClasses=[anywhere])
    expected: ExpectedPods = {"n1": {"VolumeBinding"}, "n2": set()}
    check(oracle, expected, **case, pvcs=waiting, storageClasses=[somewhere])


def test_a_claim_with_a_selected_node_rejects_all_other_nodes(oracle: Oracle) -> None:
    check(
        oracle,
        {"n1": {"VolumeBinding"}, "n2": set()},
        nodes=[node("n1"), node("n2")],
        storageClasses=[storage_class("path", "rancher.io/local-path")],
        pvcs=[claim("c1", "path", selected_node="n2")],
        pod=mounting("c1"),
    )


def test_an_immediate_claim_without_a_volume_and_a_missing_claim(oracle: Oracle) -> None:
    case: dict[str, Any] = {
        "nodes": [node("n1")],
        "storageClasses": [storage_class("fast", "example.com/disk", waits=False)],
        "pvcs": [claim("c1", "fast")],
    }
    for name in ("c1", "c2"):
        assert "VolumeBinding" in refusals(oracle.verdicts({**case, "pod": mounting(name)}))["n1"]


def test_a_volume_in_a_zone(oracle: Oracle) -> None:
    c1, v1 = bound("c1")
    v1["metadata"]["labels"] = {ZONE: "a"}
    expected: ExpectedPods = {"n1": set(), "n2": {"VolumeZone"}}
    nodes = in_zones("a", "b")
    check(oracle, expected, nodes=nodes, pvcs=[c1], pvs=[v1], pod=mounting("c1"))


def test_a_claim_with_read_write_once_pod(oracle: Oracle) -> None:
    """Also on the node of the other pod."""
    c1, v1 = bound("c1")
    for each in (c1, v1):
        each["spec"]["accessModes"] = ["ReadWriteOncePod"]
    check(
        oracle,
        {"n1": {"VolumeRestrictions"}, "n2": {"VolumeRestrictions"}},
        nodes=[node("n1"), node("n2")],
        pvcs=[c1],
        pvs=[v1],
        pods=[mounting("c1", "r", nodeName="n1")],
        pod=mounting("c1"),
    )


def test_a_node_has_a_volume_limit(oracle: Oracle) -> None:
    pairs = [bound(f"c{i}", csi={"driver": "example.com", "volumeHandle": f"h{i}"}) for i in (1, 2)]
    limits = [
        {
            "metadata": {"name": name},
            "spec": {
                "drivers": [
                    {"name": "example.com", "nodeID": name, "allocatable": {"count": count}}
                ]
            },
        }
        for name, count in (("n1", 1), ("n2", 2))
    ]
    check(
        oracle,
        {"n1": {"NodeVolumeLimits"}, "n2": set()},
        nodes=[node("n1"), node("n2")],
        pvcs=[pair[0] for pair in pairs],
        pvs=[pair[1] for pair in pairs],
        csiNodes=limits,
        pods=[mounting("c1", "r", nodeName="n1")],
        pod=mounting("c2"),
    )


def test_a_case_does_not_affect_the_next_one(oracle: Oracle) -> None:
    c1, v1 = bound("c1", node_name="n2")
    nodes = [node("n1"), node("n2")]
    before = oracle.verdicts({"nodes": nodes, "pvcs": [c1], "pvs": [v1], "pod": mounting("c1")})
    check(oracle, {"n9": set()}, nodes=[node("n9")], pod=pod("p"))
    after = oracle.verdicts({"nodes": nodes, "pod": mounting("c1")})
    assert refusals(before)["n2"] == set()
    assert "VolumeBinding" in refusals(after)["n2"]
