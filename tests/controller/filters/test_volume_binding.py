"""VolumeBinding: feasible nodes for a pod's claims, and the volume plans."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import Claim, ClusterObject, Volume, VolumePlan
from leadline_controller.framework.model import Node
from leadline_controller.framework.volume_binding import VolumeBinder
from leadline_controller.kubeobjects.cluster_objects import read_csi_driver, read_storage_capacity

from tests.controller.builders import node, pod, view
from tests.controller.filters.filter_harness import ZONE, passing, reasons
from tests.controller.storing import CSI, HOST, claim, storage_class, using, volume


def nodes(count: int = 3) -> list[Node]:
    zones = "abc"
    return [node(f"n{i}", labels={HOST: f"n{i}", ZONE: zones[i]}) for i in range(count)]


WAIT, STATIC = storage_class(), storage_class("static", "kubernetes.io/no-provisioner")


def why(*objects: ClusterObject, wanted: Any = None) -> dict[str, str | None]:
    return reasons("VolumeBinding", view(nodes(), objects=objects), wanted or using("c"))


def fits(*objects: ClusterObject, wanted: Any = None) -> str:
    return passing("VolumeBinding", view(nodes(), objects=objects), wanted or using("c"))


def plan(at: int, *objects: ClusterObject, wanted: Any = None) -> VolumePlan | None:
    return VolumeBinder(view(nodes(), objects=objects), wanted or using("c")).plan(at)


def test_a_bound_claim_goes_where_its_volume_is_reached() -> None:
    there = (claim(volume="v"), volume(nodes=("n0", "n2"), phase="Bound"), WAIT)
    conflict = "volume node affinity conflict: volume v is not reached"
    assert why(*there) == {"n0": None, "n1": conflict, "n2": None}
    assert plan(0, *there) == VolumePlan("n0")
    assert not plan(0, *there)


def test_a_volume_without_node_affinity_is_reached_from_everywhere() -> None:
    assert fits(claim(volume="v"), volume(phase="Bound"), WAIT) == "n0 n1 n2"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (None, 'persistentvolumeclaim "c" not found'),
        (claim(phase="Lost", volume="v"), 'persistentvolumeclaim "c" has lost its volume "v"'),
        (
            claim(metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}),
            'persistentvolumeclaim "c" is being deleted',
        ),
        (
            claim(volume="gone"),
            'persistentvolumeclaim "c" is bound to volume "gone", which does not exist',
        ),
        # Bound by one side only, of a class that binds at once, of no class, of none that is there.
        *(
            (
                unbound,
                'persistentvolumeclaim "c" is not bound, and is not to wait for its first pod',
            )
            for unbound in (
                claim(volume="v", annotations={}),
                claim(class_name="now"),
                claim(class_name=None),
                claim(class_name="absent"),
            )
        ),
        (
            claim(volume="ebs"),
            'persistentvolume "ebs" is of kind awsElasticBlockStore, which Leadline does not model',
        ),
    ],
)
def test_some_claims_make_every_node_infeasible(broken: Claim | None, reason: str) -> None:
    now = storage_class("now", volumeBindingMode="Immediate")
    ebs = replace(volume("ebs"), kind="awsElasticBlockStore")
    there: list[ClusterObject] = [WAIT, now, volume(), ebs, *([broken] if broken else [])]
    assert why(*there) == dict.fromkeys(("n0", "n1", "n2"), reason)


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ([OWNER], None),
        ([{**OWNER, "uid": "another"}], 'persistentvolumeclaim "p-v" was not made for this pod'),
        ([{**OWNER, "controller": False}], 'persistentvolumeclaim "p-v" was not made for this pod'),
        (None, 'persistentvolumeclaim "p-v" of an ephemeral volume is not there yet'),
    ],
)
def test_an_ephemeral_volume_needs_its_own_claim(
    owner: list[dict[str, Any]] | None, reason: str | None
) -> None:
    wanted = replace(pod(volumes=[{"name": "v", "ephemeral": {}}]), uid="uid-p")
    made = [] if owner is None else [claim("p-v", metadata={"ownerReferences": owner})]
    assert why(WAIT, *made, wanted=wanted)["n0"] == reason


def test_the_volume_of_a_delayed_claim_is_provisioned_for_the_pods_node() -> None:
    assert fits(claim(), WAIT) == "n0 n1 n2"
    assert plan(1, claim(), WAIT) == VolumePlan("n1", selects=("default/c",))


def test_a_claim_whose_node_was_selected_keeps_its_pod_there() -> None:
    selected = claim(annotations={"volume.kubernetes.io/selected-node": "n1"})
    elsewhere = "the volume of claim c is to be on n1"
    assert why(selected, WAIT) == {"n0": elsewhere, "n1": None, "n2": elsewhere}
    assert plan(1, selected, WAIT) == VolumePlan("n1", selects=("default/c",))


def test_a_class_without_provisioner_provisions_no_volume() -> None:
    none = "no available persistent volume to bind, and none can be made for this node"
    assert why(claim(class_name="static"), STATIC) == dict.fromkeys(("n0", "n1", "n2"), none)


@pytest.mark.parametrize(
    ("topologies", "expected"),
    [
        ([], "n0 n1 n2"),
        ([{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "c"]}]}], "n0 n2"),
        (
            [
                {"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]},
                {"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]},
            ],
            "n0 n1",
        ),
        ([{"matchLabelExpressions": []}], ""),
    ],
)
def test_a_class_provisions_volumes_only_in_its_topologies(
    topologies: list[dict[str, Any]], expected: str
) -> None:
    assert fits(claim(), storage_class(allowedTopologies=topologies)) == expected


def capacity(zone: str | None, **fields: Any) -> ClusterObject:
    topology = {} if zone is None else {"nodeTopology": {"matchLabels": {ZONE: zone}}}
    manifest = {"metadata": {"name": f"cap-{zone}"}, "storageClassName": "wait"}
    return read_storage_capacity({**manifest, **topology, **fields})


@pytest.mark.parametrize(
    ("tracks", "capacities", "expected"),
    [
        (False, [], "n0 n1 n2"),
        (True, [], ""),
        (True, [capacity("a", capacity="2Gi"), capacity("b", capacity="1Gi")], "n0"),
        (True, [capacity("a", capacity="9Gi", maximumVolumeSize="1Gi")], ""),
        (True, [capacity("a", capacity="1Gi", maximumVolumeSize="2Gi")], "n0"),
        (True, [capacity("a"), capacity(None, capacity="9Gi")], ""),
        (True, [capacity("a", capacity="9Gi", storageClassName="other")], ""),
    ],
)
def test_a_driver_that_tracks_capacity_needs_enough_of_it(
    tracks: bool, capacities: list[ClusterObject], expected: str
) -> None:
    driver = read_csi_driver({"metadata": {"name": CSI}, "spec": {"storageCapacity": tracks}})
    assert fits(claim(size="2Gi"), WAIT, driver, *capacities) == expected


LOCAL = claim(class_name="static", size="2Gi")


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ([], ""),
        ([volume(class_name="static", size="2Gi", nodes=("n1",))], "n1"),
        ([volume(class_name="static", size="2Gi")], "n0 n1 n2"),
        ([volume(class_name="static", size="1Gi")], ""),
        ([volume(class_name="other", size="2Gi")], ""),
        ([volume(class_name="static", size="2Gi", phase="Released")], ""),
        ([volume(class_name="static", size="2Gi", accessModes=["ReadWriteMany"])], ""),
        ([volume(class_name="static", size="2Gi", volumeMode="Block")], ""),
        ([volume(class_name="static", size="2Gi", volumeAttributesClassName="gold")], ""),
        (
            [
                volume(
                    class_name="static",
                    size="2Gi",
                    metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"},
                )
            ],
            "",
        ),
        (
            [
                volume(
                    class_name="static",
                    size="2Gi",
                    claimRef={"namespace": "default", "name": "other"},
                )
            ],
            "",
        ),
    ],
)
def test_an_available_volume_that_matches_is_taken(offered: list[Volume], expected: str) -> None:
    assert fits(LOCAL, STATIC, *offered) == expected


def test_a_selector_chooses_among_volumes() -> None:
    picky = claim(class_name="static", selector={"matchLabels": {"disk": "ssd"}})
    fast = volume("fast", "static", labels={"disk": "ssd"}, nodes=("n2",))
    assert fits(picky, STATIC, volume("slow", "static"), fast) == "n2"


def test_the_smallest_volume_that_fits_is_taken() -> None:
    offered = [volume(f"v{size}", "static", size=f"{size}Gi") for size in (9, 3, 1)]
    assert plan(0, LOCAL, STATIC, *offered) == VolumePlan("n0", binds=(("v3", "default/c"),))


def test_without_an_available_volume_one_is_provisioned() -> None:
    here = volume(nodes=("n0",))
    assert fits(claim(), WAIT, here) == "n0 n1 n2"
    assert plan(0, claim(), WAIT, here) == VolumePlan("n0", binds=(("v", "default/c"),))
    assert plan(1, claim(), WAIT, here) == VolumePlan("n1", selects=("default/c",))


@pytest.mark.parametrize(("uid", "expected"), [("", "n1"), ("uid-c", "n1"), ("old", "n2")])
def test_a_volume_that_was_reserved_for_a_claim_is_the_only_one_for_it(
    uid: str, expected: str
) -> None:
    owner = {"namespace": "default", "name": "c", "uid": uid}
    reserved = volume("kept", "static", size="9Gi", nodes=("n1",), claimRef=owner)
    free = volume("free", "static", size="2Gi", nodes=("n2",))
    assert fits(LOCAL, STATIC, reserved, free) == expected


def test_two_claims_need_two_volumes() -> None:
    both = [claim("c1", "static", size="1Gi"), claim("c2", "static", size="3Gi")]
    offered = [
        volume("small", "static", size="1Gi", nodes=("n0", "n1")),
        volume("large", "static", size="3Gi", nodes=("n1", "n2")),
        volume("huge", "static", size="9Gi", nodes=("n2",)),
    ]
    wanted = using("c2", "c1")
    assert fits(*both, STATIC, *offered, wanted=wanted) == "n1 n2"
    # The smaller claim chooses first, so that it leaves the larger volume to the larger claim.
    assert plan(1, *both, STATIC, *offered, wanted=wanted) == VolumePlan(
        "n1", binds=(("small", "default/c1"), ("large", "default/c2"))
    )


def test_a_claim_that_is_mounted_twice_is_bound_once() -> None:
    wanted = using("c", "c")
    assert plan(0, claim(), WAIT, wanted=wanted) == VolumePlan("n0", selects=("default/c",))


def test_sizes_are_compared_exactly() -> None:
    almost = volume("v", "static", size="1999m", nodes=("n0",))
    exactly = volume("w", "static", size="2", nodes=("n1",))
    assert fits(claim(class_name="static", size="2"), STATIC, almost, exactly) == "n1"
    huge = claim(class_name="static", size="8192Ti")
    assert fits(huge, STATIC, volume("v", "static", size="8191Ti")) == ""


def test_after_a_plan_its_volumes_are_taken() -> None:
    only = volume("v", "static", size="2Gi", nodes=("n0",))
    one, two = LOCAL, claim("d", "static", size="2Gi")
    before = view(nodes(), objects=[STATIC, only, one, two])
    todo = VolumeBinder(before, using("c")).plan(0)
    assert todo is not None
    after = before.with_placement(using("c"), 0, volumes=todo)
    assert passing("VolumeBinding", before, using("d")) == "n0"
    assert passing("VolumeBinding", after, using("d")) == ""
    assert passing("VolumeBinding", after, using("c", name="q")) == "n0"
    assert [p.name for p in after.mounts[0]] == ["p"]


def test_a_claim_with_an_assumed_node_keeps_the_next_pod_there() -> None:
    before = view(nodes(), objects=[WAIT, claim()])
    todo = VolumeBinder(before, using("c")).plan(2)
    after = before.with_placement(using("c"), 2, volumes=todo)
    assert passing("VolumeBinding", after, using("c", name="q")) == "n2"


def test_pods_without_claims_pass_everywhere() -> None:
    assert fits(wanted=pod()) == "n0 n1 n2"
