"""VolumeZone, VolumeRestrictions and NodeVolumeLimits."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import ClusterObject
from leadline_controller.framework.model import Pod
from leadline_controller.kubeobjects.cluster_objects import read_attachment, read_csi_node

from tests.controller.builders import node, pod, view
from tests.controller.filters.filter_harness import ZONE, passing, reasons
from tests.controller.storing import CSI, claim, storage_class, using, volume

REGION, OLD_ZONE = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, "a b old both none"),
        # A node without any such label is in a cluster of one zone.
        ({ZONE: "a"}, "a none"),
        ({ZONE: "a__b"}, "a b both none"),
        ({ZONE: "a____b"}, "a b old both none"),
        # The old label is used first, then the one that replaces it.
        ({OLD_ZONE: "a"}, "a old none"),
        ({OLD_ZONE: "b"}, "b none"),
        ({OLD_ZONE: "z"}, "both none"),
        ({REGION: "north"}, "none"),
    ],
)
def test_volume_zone(labels: dict[str, str], expected: str) -> None:
    nodes = [
        node("a", labels={ZONE: "a"}),
        node("b", labels={ZONE: "b"}),
        node("old", labels={OLD_ZONE: "a"}),
        node("both", labels={OLD_ZONE: "z", ZONE: "b"}),
        node("none", labels={"zone": "a"}),
    ]
    there: list[ClusterObject] = [
        claim(volume="v"),
        volume(labels=labels, phase="Bound"),
        storage_class(),
    ]
    assert passing("VolumeZone", view(nodes, objects=there), using("c")) == expected


def test_volume_zone_names_the_volume() -> None:
    there: list[ClusterObject] = [claim(volume="v"), volume(labels={REGION: "north"})]
    cluster = view([node("n", labels={REGION: "south"})], objects=there)
    assert reasons("VolumeZone", cluster, using("c")) == {"n": "volume v is in another region"}


def disk(kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "d", kind: fields}]


GCE, EBS = "gcePersistentDisk", "awsElasticBlockStore"
RBD = {"image": "i", "monitors": ["m1", "m2"]}


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (disk(GCE, pdName="x"), disk(GCE, pdName="x"), False),
        (disk(GCE, pdName="x"), disk(GCE, pdName="y"), True),
        (disk(GCE, pdName="x", readOnly=True), disk(GCE, pdName="x", readOnly=True), True),
        (disk(GCE, pdName="x", readOnly=True), disk(GCE, pdName="x"), False),
        (disk(EBS, volumeID="x", readOnly=True), disk(EBS, volumeID="x", readOnly=True), False),
        (disk("iscsi", iqn="x"), disk("iscsi", iqn="x"), False),
        (disk("iscsi", iqn="x", readOnly=True), disk("iscsi", iqn="x", readOnly=True), True),
        (disk("rbd", **RBD), disk("rbd", image="i", monitors=["m2"]), False),
        (disk("rbd", **RBD), disk("rbd", image="i", monitors=["m3"]), True),
        (disk("rbd", **RBD), disk("rbd", **RBD, pool="other"), True),
        (disk("azureDisk", diskURI="x"), disk("azureDisk", diskURI="x"), True),
        (disk(GCE, pdName="x"), disk("iscsi", iqn="x"), True),
    ],
)
def test_disks_that_only_one_node_can_use_conflict(
    held: list[dict[str, Any]], wanted: list[dict[str, Any]], free: bool
) -> None:
    assigned_pod = pod("r", volumes=held, nodeName="n")
    cluster = view([node("n"), node("m")], assigned_pods=[assigned_pod])
    reason = None if free else "a pod there has a disk that the pod needs for itself"
    assert reasons("VolumeRestrictions", cluster, pod(volumes=wanted)) == {"n": reason, "m": None}


@pytest.mark.parametrize(
    ("mode", "namespace", "expected"),
    [
        ("ReadWriteOnce", "default", "n m"),
        ("ReadWriteOncePod", "default", ""),
        ("ReadWriteOncePod", "blue", "n m"),
    ],
)
def test_a_read_write_once_pod_claim_is_for_one_pod(
    mode: str, namespace: str, expected: str
) -> None:
    assigned_pod = using("c", name="r", nodeName="n", namespace=namespace)
    alone = claim(volume="v", accessModes=[mode])
    cluster = view([node("n"), node("m")], assigned_pods=[assigned_pod], objects=[alone, volume()])
    assert passing("VolumeRestrictions", cluster, using("c")) == expected


def limit(name: str, count: int | None, driver: str = CSI) -> ClusterObject:
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    drivers = [{"name": driver, "nodeID": name, **allocatable}]
    return read_csi_node({"metadata": {"name": name}, "spec": {"drivers": drivers}})


def handled(name: str, driver: str = CSI) -> list[ClusterObject]:
    """A claim bound to a volume of a driver."""
    csi = {"driver": driver, "volumeHandle": f"handle-{name}"}
    return [claim(name, volume=f"v-{name}"), volume(f"v-{name}", csi=csi, phase="Bound")]


def on(node_name: str, *claims: str) -> Pod:
    return using(*claims, name=f"on-{node_name}-{'-'.join(claims)}", nodeName=node_name)


THREE = [*handled("a"), *handled("b"), *handled("c"), storage_class()]


@pytest.mark.parametrize(
    ("count", "assigned_pods", "wanted", "fits"),
    [
        (None, [on("n", "a", "b")], using("c"), True),
        (3, [on("n", "a", "b")], using("c"), True),
        (2, [on("n", "a", "b")], using("c"), False),
        (2, [on("n", "a"), on("n", "b")], using("c"), False),
        # A volume counts once for each node, however many pods mount it.
        (2, [on("n", "a"), on("n", "a")], using("c"), True),
        (2, [on("n", "a", "b")], using("a"), True),
        # A node that has too many already takes a pod that adds none.
        (1, [on("n", "a", "b")], using("b"), True),
        (0, [], using("c"), False),
        (1, [], using("c", "b"), False),
        (0, [], pod(), True),
        (0, [], using("unbound"), False),
        (0, [], using("missing"), True),  # VolumeBinding's matter
    ],
)
def test_volumes_do_not_exceed_the_limit_of_their_driver(
    count: int | None, assigned_pods: list[Pod], wanted: Pod, fits: bool
) -> None:
    there = [*THREE, claim("unbound"), limit("n", count)]
    cluster = view([node("n"), node("free")], assigned_pods=assigned_pods, objects=there)
    full = f"the node holds no more volumes of {CSI}, {count} at most"
    expected = {"n": None if fits else full, "free": None}
    assert reasons("NodeVolumeLimits", cluster, wanted) == expected


def attached(name: str, volume_name: str, driver: str = CSI) -> ClusterObject:
    spec = {"attacher": driver, "nodeName": "n", "source": {"persistentVolumeName": volume_name}}
    return read_attachment({"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("attachments", "fits"),
    [
        ([], True),
        ([attached("x", "v-b")], False),
        ([attached("x", "v-a")], True),  # the one that a pod mounts
        ([attached("x", "gone")], True),
        ([attached("x", "v-b", "other.example.com")], True),
    ],
)
def test_attached_volumes_count(attachments: list[ClusterObject], fits: bool) -> None:
    there = [*THREE, limit("n", 2), *attachments]
    cluster = view([node("n")], assigned_pods=[on("n", "a")], objects=there)
    assert (passing("NodeVolumeLimits", cluster, using("c")) == "n") is fits


def test_only_the_drivers_of_the_pod_count() -> None:
    there = [*handled("a", "other.example.com"), *handled("c"), limit("n", 1)]
    cluster = view([node("n")], assigned_pods=[on("n", "a")], objects=there)
    assert passing("NodeVolumeLimits", cluster, using("c")) == "n"


def test_disks_of_a_cloud_count_with_its_driver() -> None:
    ebs = "ebs.csi.aws.com"
    assigned_pod = pod("r", volumes=disk(EBS, volumeID="x"), nodeName="n")
    cluster = view([node("n")], assigned_pods=[assigned_pod], objects=[limit("n", 1, ebs)])
    assert passing("NodeVolumeLimits", cluster, pod(volumes=disk(EBS, volumeID="y"))) == ""
    assert passing("NodeVolumeLimits", cluster, pod(volumes=disk(EBS, volumeID="x"))) == "n"


@pytest.mark.parametrize("driver", [CSI, "other.example.com"])
def test_a_node_with_a_pod_that_has_another_pods_claim_does_not_pass(driver: str) -> None:
    ephemeral = replace(
        pod("r", volumes=[{"name": "v", "ephemeral": {}}], nodeName="n"), uid="uid-r"
    )
    there = [*THREE, limit("n", 9, driver), claim("r-v")]
    cluster = view([node("n")], assigned_pods=[ephemeral], objects=there)
    assert reasons("NodeVolumeLimits", cluster, using("c")) == {
        "n": "a pod there mounts another pod's claim"
    }
