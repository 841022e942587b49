"""Readers of the manifests of namespaces and storage."""

from fractions import Fraction
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import (
    Attachment,
    Claim,
    CsiDriver,
    CsiNode,
    NamespaceLabels,
    StorageCapacity,
    StorageClass,
    Volume,
)
from leadline_controller.framework.selectors import Requirement
from leadline_controller.kubeobjects.cluster_objects import (
    READERS,
    read_attachment,
    read_claim,
    read_csi_driver,
    read_csi_node,
    read_namespace,
    read_storage_capacity,
    read_storage_class,
    read_volume,
)
from leadline_controller.parsing.fields import FieldError

NAME = {"metadata": {"name": "x"}}
MIB = 1024**2


def test_a_namespace_has_the_name_label_of_the_api_server() -> None:
    labels = {"kubernetes.io/metadata.name": "x", "team": "a"}
    assert read_namespace({"metadata": {"name": "x", "labels": {"team": "a"}}}) == (
        NamespaceLabels("x", labels)
    )


def test_a_claim() -> None:
    found = read_claim(
        {
            "metadata": {
                "name": "c",
                "namespace": "shop",
                "uid": "u",
                "annotations": {
                    "pv.kubernetes.io/bind-completed": "yes",
                    "volume.kubernetes.io/selected-node": "n1",
                },
                "ownerReferences": [
                    {"uid": "a", "controller": False},
                    {"uid": "b", "controller": True},
                ],
            },
            "spec": {
                "storageClassName": "fast",
                "volumeName": "v",
                "accessModes": ["ReadWriteOncePod"],
                "volumeMode": "Block",
                "volumeAttributesClassName": "gold",
                "resources": {"requests": {"storage": "0.5Mi"}},
                "selector": {"matchLabels": {"a": "b"}},
            },
            "status": {"phase": "Bound"},
        }
    )
    assert found == Claim(
        namespace="shop",
        name="c",
        uid="u",
        class_name="fast",
        volume="v",
        bound=True,
        selected_node="n1",
        size_bytes=Fraction(MIB, 2),
        access_modes=frozenset({"ReadWriteOncePod"}),
        mode="Block",
        selector=(Requirement("a", "In", ("b",)),),
        attributes_class="gold",
        owner_uid="b",
    )
    assert found.key == "shop/c"


def test_a_minimal_claim_is_unbound_and_has_no_class() -> None:
    assert read_claim(NAME) == Claim("default", "x")


def test_the_beta_annotation_overrides_the_storage_class() -> None:
    metadata = {"name": "x", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    made = {"metadata": metadata, "spec": {"storageClassName": "new"}}
    assert (read_claim(made).class_name, read_volume(made).class_name) == ("old", "old")


def test_a_volume() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    found = read_volume(
        {
            "metadata": {"name": "v", "labels": {"zone": "a"}},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "d", "volumeHandle": "h"},
                "claimRef": {"namespace": "shop", "name": "c", "uid": "u"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "persistentVolumeReclaimPolicy": "Delete",
            },
            "status": {"phase": "Bound"},
        }
    )
    assert found == Volume(
        name="v",
        size_bytes=Fraction(MIB),
        access_modes=frozenset({"ReadWriteOnce"}),
        labels={"zone": "a"},
        claim="shop/c",
        claim_uid="u",
        affinity=((Requirement("a", "In", ("b",)),),),
        driver="d",
        handle="h",
        kind="csi",
    )


def test_a_volume_has_its_kind_and_node_affinity() -> None:
    spec = {"awsElasticBlockStore": {"volumeID": "x"}, "nodeAffinity": {"required": {}}}
    found = read_volume({**NAME, "spec": spec, "status": {"phase": "Available"}})
    assert (found.kind, found.affinity, found.available) == ("awsElasticBlockStore", (), True)
    assert read_volume(NAME).affinity is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, StorageClass("x", "p")),
        ({"volumeBindingMode": "WaitForFirstConsumer"}, StorageClass("x", "p", waits=True)),
        (
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}]},
            StorageClass("x", "p", topologies=((Requirement("z", "In", ("a",)),),)),
        ),
    ],
)
def test_a_storage_class(fields: dict[str, Any], expected: StorageClass) -> None:
    assert read_storage_class({**NAME, "provisioner": "p", **fields}) == expected


def test_only_drivers_with_a_count_have_a_limit() -> None:
    drivers = [
        {"name": "a", "allocatable": {"count": 0}},
        {"name": "b", "allocatable": {}},
        {"name": "c"},
    ]
    assert read_csi_node({**NAME, "spec": {"drivers": drivers}}) == CsiNode("x", {"a": 0})


def test_small_objects() -> None:
    assert read_csi_driver({**NAME, "spec": {"storageCapacity": True}}) == CsiDriver("x", True)
    assert read_csi_driver(NAME) == CsiDriver("x")
    capacity = {**NAME, "storageClassName": "s", "nodeTopology": {}, "capacity": "1.5"}
    assert read_storage_capacity(capacity) == StorageCapacity("default/x", "s", (), 1)
    bare = {**NAME, "storageClassName": "s"}
    assert read_storage_capacity(bare) == StorageCapacity("default/x", "s", None, None)
    spec = {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    assert read_attachment({**NAME, "spec": spec}) == Attachment("x", "n", "d", "v")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (
            "Namespace",
            {"metadata": {}},
            "x.metadata.name: expected text in printable ASCII, got nothing",
        ),
        (
            "PersistentVolumeClaim",
            {"spec": {"resources": {"requests": {"storage": "big"}}}},
            "x.spec.resources.requests.storage: 'big' is no quantity",
        ),
        (
            "PersistentVolumeClaim",
            {"spec": {"resources": {"requests": {"storage": []}}}},
            "x.spec.resources.requests.storage: expected a quantity like 500m, 4Gi or 2, got a",
        ),
        ("PersistentVolume", {"spec": {"volumeMode": "Tape"}}, "x.spec.volumeMode: expected File"),
        ("PersistentVolume", {"spec": {"volumeMode": 0}}, "x.spec.volumeMode: expected File"),
        ("StorageClass", {}, "x.provisioner: expected text, got nothing"),
        (
            "CSINode",
            {"spec": {"drivers": [{"name": "d", "allocatable": {"count": -1}}]}},
            "x.spec.drivers[0].allocatable.count: expected a whole number from 0",
        ),
        ("CSIDriver", {"spec": {"storageCapacity": "yes"}}, "x.spec.storageCapacity: expected t"),
        ("CSIStorageCapacity", {}, "x.storageClassName: expected text, got nothing"),
        ("VolumeAttachment", {"spec": {}}, "x.spec.nodeName: expected text, got nothing"),
    ],
)
def test_an_invalid_object_names_the_field(kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as caught:
        READERS[kind]({**NAME, **fields}, "x")
    assert str(caught.value).startswith(message)
