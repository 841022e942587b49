"""ClusterSnapshot files: every field is checked and reaches the view."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import CPU, MEMORY, PODS, HostPort, Taint
from leadline_controller.parsing.fields import FieldError
from leadline_controller.snapshot.snapshot import Snapshot, load_snapshot, read_snapshot

from tests.controller.builders import GIB

WHOLE: dict[str, Any] = {
    "apiVersion": "leadline.dev/v1",
    "kind": "ClusterSnapshot",
    "nodes": [
        {
            "name": "n1",
            "tier": "edge",
            "schedulable": True,
            "ready": True,
            "labels": {"zone": "a"},
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": 20},
            "requested": {"cpu": "500m", "memory": "1Gi", "pods": 3},
            "bandwidth_mbps": 100,
            "bandwidth_requested_mbps": 10,
            "metrics": {
                "cpu_percent": 12.5,
                "memory_percent": 40.0,
                "packets_sent_per_s": 120,
                "packets_received_per_s": 80,
                "disk_bytes_per_s": 5000,
                "bandwidth_mbps": 93.1,
            },
            "metric_errors": {"cpu_percent": 0.5, "bandwidth_mbps": 18},
            "image_layers": ["sha256:a"],
            "pulling_mb": 0,
            "registry_mbps": 50,
        },
        {"name": "n2", "schedulable": False},
    ],
    "links": [{"a": "n1", "b": "n2", "rtt_ms": 50, "bandwidth_mbps": 90}],
    "images": [{"name": "web:1", "layers": [{"digest": "sha256:a", "size_mb": 30}]}],
    "pods": [{"metadata": {"name": "web-1"}, "spec": {"containers": [{"name": "c"}]}}],
}


def whole() -> dict[str, Any]:
    return copy.deepcopy(WHOLE)


def test_reads_the_file_of_the_interfaces() -> None:
    snapshot = read_snapshot(whole())
    n1, n2 = snapshot.view.nodes
    assert (n1.name, n1.tier, n1.unschedulable, n1.ready) == ("n1", "edge", False, True)
    assert n1.labels == {"zone": "a", "kubernetes.io/hostname": "n1"}
    assert n1.taints == (Taint("k", "v", "NoSchedule"),)
    assert n1.allocatable == {CPU: 2000, MEMORY: 4 * GIB, PODS: 20}
    assert n1.bandwidth_mbps == 100
    assert n1.image_layers == {"sha256:a"}
    view = snapshot.view
    assert view.free(CPU).tolist() == [1500, 0]
    assert view.free(MEMORY)[0] == 3 * GIB
    assert view.free(PODS).tolist() == [17, 110]
    assert view.bandwidth_free_mbps()[0] == 90.0
    assert view.metrics.cpu_percent[0] == 12.5
    assert view.metrics.bandwidth_mbps[0] == 93.1
    assert view.links.rtt_ms_from(0)[1] == 50.0
    assert view.placed_in_run.tolist() == [0, 0]
    assert [pod.key for pod in snapshot.pods] == ["default/web-1"]
    assert (n2.unschedulable, n2.ready, n2.tier, n2.bandwidth_mbps) == (True, True, "", None)


def test_nodes_are_in_the_order_of_their_names_with_what_the_file_says_of_each() -> None:
    document = whole()
    document["nodes"].reverse()
    snapshot, given = read_snapshot(document), read_snapshot(whole())
    assert snapshot.view.table.names == given.view.table.names == ("n1", "n2")
    for name in ("requested", "metrics"):
        assert repr(getattr(snapshot.view, name)) == repr(getattr(given.view, name))


def test_errors_are_none_unless_one_is_stated() -> None:
    document = whole()
    assert read_snapshot(document).view.metrics.errors.tolist() == [[0.5, 0, 0, 0, 0, 18], [0] * 6]
    del document["nodes"][0]["metric_errors"]
    assert read_snapshot(document).view.metrics.errors.shape == (0, 0)


def test_a_missing_value_is_unknown_and_not_zero() -> None:
    view = read_snapshot(whole()).view
    for column in (
        view.metrics.cpu_percent,
        view.metrics.bandwidth_mbps,
        view.bandwidth_free_mbps(),
    ):
        assert math.isnan(column[1])
    assert np.isnan(view.links.rtt_ms_from(0)[0])


def assigned_pod(name: str, node: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {"leadline.dev/bandwidth-mbps": "5"}},
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}},
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                }
            ],
        },
        "status": status,
    }


def test_assigned_pods_count_on_their_nodes_and_are_not_scheduled() -> None:
    document = whole()
    document["pods"] += [assigned_pod("r1", "n1"), assigned_pod("r2", "n1", phase="Succeeded")]
    snapshot = read_snapshot(document)
    view = snapshot.view
    assert [pod.key for pod in snapshot.pods] == ["default/web-1"]
    assert view.requested_of(CPU).tolist() == [1500, 0]
    assert view.requested_of(PODS).tolist() == [4, 0]
    assert view.requested_of("example.com/gpu").tolist() == [1, 0]
    assert view.bandwidth_requested_mbps.tolist() == [15.0, 0.0]
    assert view.host_ports == {0: (HostPort("0.0.0.0", "TCP", 80),)}
    assert view.placed_in_run.tolist() == [0, 0], "zeta counts only this run's pods"


def test_finished_and_terminating_pods_are_left_out() -> None:
    document = whole()
    document["pods"] = [
        {"metadata": {"name": "done"}, "status": {"phase": "Failed"}},
        {"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"name": "waiting"}},
    ]
    assert [pod.name for pod in read_snapshot(document).pods] == ["waiting"]


def test_any_number_of_huge_assigned_pods_does_not_overflow() -> None:
    document = whole()
    document["pods"] = [assigned_pod(f"r{i}", "n1") for i in range(3000)]
    for pod in document["pods"]:
        pod["spec"]["containers"][0]["resources"]["requests"] = {"memory": "1e30"}
    assert read_snapshot(document).view.free(MEMORY)[0] < 0


Change = Callable[[dict[str, Any]], Any]


def put(path: str, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        *steps, last = (int(s) if s.isdigit() else s for s in path.split("/"))
        target: Any = document
        for step in steps:
            target = target[step]
        if isinstance(last, int) and last == len(target):
            target.append(value)
        else:
            target[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("apiVersion", "v2"), "apiVersion: expected leadline.dev/v1, got text 'v2'"),
        (put("kind", None), "kind: expected ClusterSnapshot, got nothing"),
        (put("nodes", None), "nodes: expected a list, got nothing"),
        (put("node", []), "node: unknown field; known: apiVersion, kind, nodes, links"),
        (put("nodes", {}), "nodes: expected a list, got an object"),
        (put("nodes/0", "n1"), "nodes[0]: expected an object, got text 'n1'"),
        (put("nodes/0/nmae", "n1"), "nodes[0].nmae: unknown field; known: name, tier"),
        (put("nodes/0/name", None), "nodes[0].name: expected text, got nothing"),
        (put("nodes/0/name", 7), "nodes[0].name: expected text, got 7"),
        (put("nodes/0/name", "\x1b[2J"), "nodes[0].name: expected letters, digits"),
        (put("nodes/0/name", "a" * 300), "nodes[0].name: expected letters, digits"),
        (put("nodes/1/name", "n1"), "nodes[1].name: 'n1' is taken by nodes[0]"),
        (put("nodes/0/tier", "fog"), "nodes[0].tier: expected edge or cloud, got text 'fog'"),
        (put("nodes/0/schedulable", "yes"), "nodes[0].schedulable: expected true or false"),
        (put("nodes/0/ready", 1), "nodes[0].ready: expected true or false, got 1"),
        (put("nodes/0/labels", {"a": 1}), "nodes[0].labels.a: expected text, got 1"),
        (put("nodes/0/taints/0/effect", "Never"), "nodes[0].taints[0].effect: expected one of"),
        (put("nodes/0/taints/0/kee", "x"), "nodes[0].taints[0].kee: unknown field"),
        (put("nodes/0/allocatable/cpu", "two"), "nodes[0].allocatable.cpu: 'two' is no quantity"),
        (put("nodes/0/allocatable/cpu", -1), "nodes[0].allocatable.cpu: expected a quantity of 0"),
        (put("nodes/0/requested/memory", []), "nodes[0].requested.memory: expected a quantity"),
        (put("nodes/0/bandwidth_mbps", -1), "nodes[0].bandwidth_mbps: expected a finite number"),
        (put("nodes/0/bandwidth_requested_mbps", "5"), "nodes[0].bandwidth_requested_mbps: exp"),
        (put("nodes/0/metrics/cpu_percent", 101), "nodes[0].metrics.cpu_percent: expected a fin"),
        (put("nodes/0/metrics/cpu_percent", math.nan), "nodes[0].metrics.cpu_percent: expected"),
        (put("nodes/0/metrics/cpu", 5), "nodes[0].metrics.cpu: unknown field; known: cpu_percent"),
        (put("nodes/0/image_layers", [1]), "nodes[0].image_layers[0]: expected text, got 1"),
        (put("nodes/0/registry_mbps", "x"), "nodes[0].registry_mbps: expected a number"),
        (put("links/0/a", "n9"), "links[0].a: expected the name of a node in this file, got text"),
        (put("links/0/b", None), "links[0].b: expected text, got nothing"),
        (put("links/0/b", "n1"), "links[0].b: expected another node than n1, got text 'n1'"),
        (
            put("links/1", {"a": "n2", "b": "n1"}),
            "links[1]: the link between n2 and n1 comes twice",
        ),
        (put("links/0/rtt_ms", math.inf), "links[0].rtt_ms: expected a finite number"),
        (put("links/0/rtt_ms", 1e300), "links[0].rtt_ms: expected a finite number of 0 to 1e+15"),
        (put("links/0/rtt", 5), "links[0].rtt: unknown field; known: a, b, rtt_ms, bandwidth_mbps"),
        (put("images/0/name", None), "images[0].name: expected text, got nothing"),
        (put("images/1", {"name": "web:1"}), "images[1].name: 'web:1' is taken by images[0]"),
        (put("images/0/layers/0/size_mb", None), "images[0].layers[0].size_mb: expected a number"),
        (put("images/0/layers/0/size_mb", -1), "images[0].layers[0].size_mb: expected a finite"),
        (
            put("images/0/layers/1", {"digest": "sha256:a", "size_mb": 30}),
            "images[0].layers[1].digest: layer 'sha256:a' comes twice in one image",
        ),
        (
            put("images/1", {"name": "db:1", "layers": [{"digest": "sha256:a", "size_mb": 3}]}),
            "images[1].layers[0].size_mb: layer 'sha256:a' has 3 MB here and 30 MB in "
            "images[0].layers[0]",
        ),
        (
            put("images/1", {"name": "docker.io/library/web:1"}),
            "images[1].name: 'docker.io/library/web:1' is taken by images[0]",
        ),
        (put("nodes/0/pulling_mb", -1), "nodes[0].pulling_mb: expected a finite number"),
        (put("images/0/layers/0/digest", 1), "images[0].layers[0].digest: expected text, got 1"),
        (put("images/0/size", 1), "images[0].size: unknown field; known: name, layers"),
        (put("pods/0/kind", "Deployment"), "pods[0].kind: expected Pod, got text 'Deployment'"),
        (
            put("pods/0/apiVersion", "apps/v1"),
            "pods[0].apiVersion: expected v1, got text 'apps/v1'",
        ),
        (put("pods/0/metadata/name", None), "pods[0].metadata.name: expected text, got nothing"),
        (put("pods/0/metadata/name", "a b"), "pods[0].metadata.name: expected letters, digits"),
        (put("pods/0/metadata/namespace", ""), "pods[0].metadata.namespace: expected letters"),
        (put("pods/1", {"metadata": {"name": "web-1"}}), "pods[1].metadata.name: 'default/web-1'"),
        (put("pods/0/spec/nodeName", "n9"), "pods[0].spec.nodeName: expected the name of a node"),
        (put("pods/0/spec/containers", [5]), "pods[0].spec.containers[0]: expected an object"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(change: Change, message: str) -> None:
    document = whole()
    change(document)
    with pytest.raises(FieldError) as caught:
        read_snapshot(document)
    assert str(caught.value).startswith(message)


def test_the_error_of_a_file_begins_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump({**whole(), "kind": "Cluster"}))
    with pytest.raises(FieldError) as caught:
        load_snapshot(file)
    assert str(caught.value) == f"{file}: kind: expected ClusterSnapshot, got text 'Cluster'"


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def places(value: Any, path: str = "") -> list[str]:
    """The path of each value in the document."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    here = [path] if path else []
    return here + [p for name, each in inner for p in places(each, f"{path}/{name}".strip("/"))]


PLACES = [p for p in places(WHOLE) if "cpu/" not in p and "sha256" not in p]


@given(st.sampled_from(PLACES), junk)
def test_junk_anywhere_is_taken_or_refused_with_its_place(place: str, value: Any) -> None:
    document = whole()
    put(place, value)(document)
    try:
        snapshot: Snapshot | None = read_snapshot(document)
        refusal = ""
    except FieldError as error:
        snapshot, refusal = None, str(error)
    top = place.split("/")[0]
    # Links to unknown nodes are ignored.
    assert snapshot is not None or top in refusal or (top == "nodes" and "links" in refusal)
    assert "\n" not in refusal


def with_storage() -> dict[str, Any]:
    document = whole()
    document["namespaces"] = [{"metadata": {"name": "blue", "labels": {"team": "a"}}}]
    document["storage_classes"] = [
        {
            "kind": "StorageClass",
            "metadata": {"name": "local-path"},
            "provisioner": "rancher.io/local-path",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    ]
    document["claims"] = [
        {"metadata": {"name": "data"}, "spec": {"storageClassName": "local-path"}}
    ]
    document["pods"] = [
        {
            "metadata": {"name": "db", "namespace": "default", "labels": {"app": "db"}},
            "spec": {
                "nodeName": "n1",
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }
    ]
    return document


def test_filters_see_assigned_pods_namespaces_and_storage() -> None:
    view = read_snapshot(with_storage()).view
    (kind,) = view.assigned_pods.kinds.values
    assert (view.assigned_pods.node.tolist(), kind.labels) == ([0], {"app": "db"})
    assert [pod.key for pod in view.mounts[0]] == ["default/db"]
    assert dict(view.namespaces.labels) == {
        "default": {"kubernetes.io/metadata.name": "default"},
        "blue": {"kubernetes.io/metadata.name": "blue", "team": "a"},
    }
    assert set(view.storage.claims) == {"default/data"}
    assert view.storage.classes["local-path"].waits


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        (
            "claims",
            {"metadata": {}},
            "claims[0].metadata.name: expected text in printable ASCII, got nothing",
        ),
        (
            "volumes",
            {"kind": "Pod", "metadata": {"name": "x"}},
            "volumes[0].kind: expected PersistentVolume, got text 'Pod'",
        ),
        ("csi_nodes", 5, "csi_nodes[0]: expected an object, got 5"),
    ],
)
def test_resources_are_checked_like_the_rest(name: str, entry: object, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        read_snapshot({**whole(), name: [entry]})
    assert str(caught.value) == message


def test_two_resources_of_one_name_are_refused() -> None:
    document = with_storage()
    document["claims"] *= 2
    with pytest.raises(FieldError, match=r"claims\[1\]: default/data is taken by claims\[0\]"):
        read_snapshot(document)


def test_images_and_queues_are_in_the_view() -> None:
    document = whole()
    document["images"].append(
        {
            "name": "db:1",
            "layers": [
                {"digest": "sha256:a", "size_mb": 30},
                {"digest": "sha256:b", "size_mb": 50},
            ],
        }
    )
    document["nodes"][0]["pulling_mb"] = 9
    container = {"name": "c", "image": "db:1"}
    document["pods"] = [
        {"metadata": {"name": "waits"}, "spec": {"containers": [container]}},
        {"metadata": {"name": "runs"}, "spec": {"containers": [container], "nodeName": "n2"}},
    ]
    snapshot = read_snapshot(document)
    view, pod = snapshot.view, snapshot.pods[0]
    assert view.images.missing_mb(view.table, pod).tolist() == [50.0, 0.0]
    assert view.images.waiting_mb(view.table).tolist() == [9.0, 80.0]
    np.testing.assert_array_equal(view.registry_mbps(), [50.0, math.nan])
