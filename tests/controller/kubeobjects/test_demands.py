from typing import Any

import pytest
from leadline_controller.framework.model import (
    AffinityTerm,
    ClaimUse,
    Disk,
    Requirement,
    SpreadConstraint,
)
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.parsing.fields import FieldError

from tests.controller.builders import manifest
from tests.controller.kubeobjects.constraints import affinity

WEB = Requirement("app", "In", ("web",))


OWN = Requirement("rev", "In", ("7",))


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({}, AffinityTerm("z", None, frozenset({"shop"}))),
        ({"labelSelector": {}}, AffinityTerm("z", (), frozenset({"shop"}))),
        ({"namespaces": ["a", "b"]}, AffinityTerm("z", None, frozenset({"a", "b"}))),
        # A namespace selector, also an empty one, replaces the pod's own namespace.
        ({"namespaceSelector": {}}, AffinityTerm("z", None, frozenset(), ())),
        (
            {"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev", "none"]},
            AffinityTerm("z", (WEB, OWN), frozenset({"shop"})),
        ),
        (
            {"labelSelector": {}, "mismatchLabelKeys": ["rev"]},
            AffinityTerm("z", (Requirement("rev", "NotIn", ("7",)),), frozenset({"shop"})),
        ),
        # The API server stored the value when the pod was created; labels may change later.
        (
            {"labelSelector": {"matchLabels": {"rev": "6"}}, "matchLabelKeys": ["rev"]},
            AffinityTerm("z", (Requirement("rev", "In", ("6",)),), frozenset({"shop"})),
        ),
        ({"matchLabelKeys": ["rev"]}, AffinityTerm("z", None, frozenset({"shop"}))),
    ],
)
def test_terms_of_pod_affinity(term: dict[str, Any], expected: AffinityTerm) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", **term}]
        }
        made = manifest(namespace="shop", labels={"rev": "7"}, affinity={kind: required})
        found = read_pod(made)
        terms = found.affinity if kind == "podAffinity" else found.anti_affinity
        assert terms == (expected,)


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ({}, (SpreadConstraint("z", 1, None),)),
        ({"whenUnsatisfiable": "ScheduleAnyway"}, ()),
        ({"maxSkew": 3, "minDomains": 2}, (SpreadConstraint("z", 3, None, min_domains=2),)),
        (
            {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
            (SpreadConstraint("z", 1, None, honor_affinity=False, honor_taints=True),),
        ),
        (
            {"labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev"]},
            (SpreadConstraint("z", 1, (WEB, OWN)),),
        ),
        # Unlike in affinity terms, the label's current value counts as well.
        (
            {"labelSelector": {"matchLabels": {"rev": "6"}}, "matchLabelKeys": ["rev"]},
            (SpreadConstraint("z", 1, (Requirement("rev", "In", ("6",)), OWN)),),
        ),
    ],
)
def test_spread_constraints(
    constraint: dict[str, Any], expected: tuple[SpreadConstraint, ...]
) -> None:
    whole = {"topologyKey": "z", "maxSkew": 1, **constraint}
    made = manifest(labels={"rev": "7"}, topologySpreadConstraints=[whole])
    assert read_pod(made).spread == expected


@pytest.mark.parametrize(
    ("source", "claims", "disks"),
    [
        ({"emptyDir": {}}, (), ()),
        ({"persistentVolumeClaim": {"claimName": "c"}}, (ClaimUse("c"),), ()),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, (ClaimUse("v", ephemeral=True),), ()),
        (
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            (),
            (Disk("gcePersistentDisk", "d", read_only=True),),
        ),
        (
            {"rbd": {"image": "i", "monitors": ["m"]}},
            (),
            (Disk("rbd", "rbd/i", frozenset({"m"})),),
        ),
    ],
)
def test_volumes(
    source: dict[str, Any], claims: tuple[ClaimUse, ...], disks: tuple[Disk, ...]
) -> None:
    found = read_pod(manifest(volumes=[{"name": "v", **source}]))
    assert (found.claims, found.disks, found.problem) == (claims, disks, None)


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({}, ()),
        (
            {"initContainers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            ("RestartAllContainersOnContainerExits",),
        ),
        ({"initContainers": [{"restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        ({"hostNetwork": True, "hostUsers": False}, ("UserNamespacesHostNetworkSupport",)),
        ({"hostNetwork": True}, ()),
        ({"hostUsers": False}, ()),
    ],
)
def test_features_that_the_kubelet_must_declare(
    spec: dict[str, Any], features: tuple[str, ...]
) -> None:
    assert read_pod(manifest(**spec)).features == features


def test_required_node_affinity_is_a_list_of_terms() -> None:
    terms = affinity(
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    )
    assert read_pod(manifest(affinity=terms)).required_affinity == (
        (Requirement("zone", "In", ("a", "b")),),
        (Requirement("metadata.name", "In", ("n1",), on_name=True),),
        (),
    )


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_what_a_pod_prefers_is_no_requirement() -> None:
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    soft = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    found = read_pod(
        manifest(
            affinity={
                "nodeAffinity": {PREFERRED: [{"weight": 7, "preference": ssd}]},
                "podAffinity": {PREFERRED: [{"weight": 5, "podAffinityTerm": near}]},
                "podAntiAffinity": {PREFERRED: [{"weight": 3, "podAffinityTerm": near}]},
            },
            topologySpreadConstraints=[soft],
        )
    )
    required = found.required_affinity, found.affinity, found.anti_affinity, found.spread
    assert (required, found.problem) == ((None, (), (), ()), None)
    assert found.preferences.nodes == ((7, (Requirement("disk", "In", ("ssd",)),)),)
    assert [each.weight for each in found.preferences.pods] == [5, -3]
    assert {each.topology_key for each in found.preferences.pods} == {"zone"}
    assert found.preferences.spread == (SpreadConstraint("zone", 2, None),)


@pytest.mark.parametrize("weight", [None, 0, 101, "much", True])
def test_a_weight_is_a_whole_number_from_1_to_100(weight: object) -> None:
    term = {"preference": {}, **({} if weight is None else {"weight": weight})}
    with pytest.raises(FieldError, match="weight: expected a whole number from 1 to 100"):
        read_pod(manifest(affinity={"nodeAffinity": {PREFERRED: [term]}}))
