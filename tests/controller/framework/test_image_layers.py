"""Layers that a node has, has queued and misses, with numbers worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.framework.image_layers import ImageTable, full_name, listed_images
from leadline_controller.framework.model import Image, Layer, Pod
from leadline_controller.framework.node_table import NodeTable

from tests.controller.builders import node, view

BASE, WEB, DB = Layer("base", 30.0), Layer("web", 12.0), Layer("db", 50.0)
IMAGES = ImageTable.of([Image("web:1", (BASE, WEB)), Image("db:1", (BASE, DB))])
NODES = NodeTable(
    [
        node("empty"),
        node("base", image_layers=frozenset({"base"}), pulling_mb=7.0),
        node("web", image_layers=frozenset({"base", "web", "other"})),
    ]
)


def pod(*images: str) -> Pod:
    return Pod("default", "p", images=images)


def test_only_layers_that_the_node_does_not_have_are_missing() -> None:
    assert IMAGES.missing_mb(NODES, pod("web:1")).tolist() == [42.0, 12.0, 0.0]
    assert IMAGES.cached_mb(NODES, pod("web:1")).tolist() == [0.0, 30.0, 42.0]


def test_a_layer_that_two_images_share_counts_once() -> None:
    both = pod("web:1", "db:1", "web:1")
    assert IMAGES.missing_mb(NODES, both).tolist() == [92.0, 62.0, 50.0]


def test_the_size_of_an_unknown_image_is_unknown() -> None:
    for strange in (pod("strange:1"), pod()):
        assert np.isnan(IMAGES.missing_mb(NODES, strange)).all()
        assert np.isnan(IMAGES.cached_mb(NODES, strange)).all()
    assert IMAGES.missing_mb(NODES, pod("strange:1", "web:1")).tolist() == [42.0, 12.0, 0.0]


def test_a_queued_layer_is_not_missing() -> None:
    after = IMAGES.with_pull(NODES, pod("web:1"), 0)
    assert after.missing_mb(NODES, pod("web:1")).tolist() == [0.0, 12.0, 0.0]
    assert after.missing_mb(NODES, pod("db:1")).tolist() == [50.0, 50.0, 50.0]
    assert after.waiting_mb(NODES).tolist() == [42.0, 7.0, 0.0]
    assert IMAGES.waiting_mb(NODES).tolist() == [0.0, 7.0, 0.0], "the table before stays"
    again = after.with_pull(NODES, pod("db:1"), 0)
    assert again.waiting_mb(NODES).tolist() == [92.0, 7.0, 0.0], "the shared layer waits already"


def test_a_pod_without_missing_layers_does_not_change_the_table() -> None:
    assert IMAGES.with_pull(NODES, pod("web:1"), 2) is IMAGES
    assert IMAGES.with_pull(NODES, pod("strange:1"), 0) is IMAGES


def test_a_stated_queue_includes_the_running_pods() -> None:
    table = IMAGES.with_running(NODES, [(pod("web:1"), 0), (pod("web:1"), 1)])
    assert table.waiting_mb(NODES).tolist() == [42.0, 7.0, 0.0]
    assert table.missing_mb(NODES, pod("web:1")).tolist() == [0.0, 0.0, 0.0]


def test_placing_a_pod_adds_to_the_queue_of_its_node() -> None:
    cluster = view([node("a"), node("b")])
    assert cluster.images.waiting_mb(cluster.table).tolist() == [0.0, 0.0]
    known = ImageTable.of([Image("web:1", (BASE, WEB))])
    after = IMAGES.with_pull(cluster.table, pod("web:1"), 1)
    assert after.queue_mb == known.with_pull(cluster.table, pod("web:1"), 1).queue_mb == {1: 42.0}


def test_images_of_the_nodes_status_supplement_the_catalogue() -> None:
    listed = Image("docker.io/library/web:1", (Layer("docker.io/library/web@sha256:1", 42.0),))
    there = frozenset({"docker.io/library/web@sha256:1"})
    table = NodeTable([node("a"), node("b", images=(listed,), image_layers=there)])
    assert ImageTable().missing_mb(table, pod("web:1")).tolist() == [42.0, 0.0]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("web", "docker.io/library/web:latest"),
        ("web:1", "docker.io/library/web:1"),
        ("web@sha256:ab", "docker.io/library/web@sha256:ab"),
        ("me/web", "docker.io/me/web:latest"),
        ("docker.io/web:1", "docker.io/library/web:1"),
        ("localhost/web:1", "localhost/web:1"),
        ("host:5000/web", "host:5000/web:latest"),
        ("example.org/a/web:1", "example.org/a/web:1"),
    ],
)
def test_image_names_get_the_defaults_of_the_runtime(name: str, full: str) -> None:
    assert full_name(name) == full
    assert full_name(full) == full


def test_an_image_of_a_nodes_status_is_one_layer() -> None:
    names = "docker.io/library/web:1", "docker.io/library/web@sha256:1"
    found = list(listed_images([(names, 42_000_000)]))
    layer = Layer("docker.io/library/web@sha256:1", 42.0)
    assert found == [Image(names[0], (layer,)), Image(names[1], (layer,))]


def test_names_longer_than_any_reference_are_skipped() -> None:
    names = "x" * 513, *(f"app-{i}" for i in range(40))
    found = list(listed_images([(names, 1)]))
    assert [image.name for image in found] == [full_name(f"app-{i}") for i in range(16)]


def test_each_architecture_needs_its_variant() -> None:
    nodes = NodeTable(
        [
            node("a", labels={"kubernetes.io/arch": "amd64"}),
            node("b", labels={"kubernetes.io/arch": "arm64"}),
            node("c"),
        ]
    )
    amd, arm = (Layer("amd", 10.0), BASE), (Layer("arm", 20.0), BASE)
    table = ImageTable(
        by_architecture={"docker.io/library/web:1": {"amd64": amd, "arm64": arm}},
        held={"arm": frozenset({"b"}), "amd": frozenset({"b"})},
    )
    wanted = pod("web:1")
    assert table.missing_mb(nodes, wanted).tolist() == [40.0, 30.0, 40.0]
    assert table.cached_mb(nodes, wanted).tolist() == [0.0, 20.0, 0.0]
    after = table.with_pull(nodes, wanted, 0)
    assert after.waiting_mb(nodes).tolist() == [40.0, 0.0, 0.0]


def test_a_pull_takes_what_is_missing_behind_the_queue_at_the_nodes_speed() -> None:
    nodes = NodeTable([node("a"), node("b", pulling_mb=10.0), node("c"), node("d")])
    held = {"base": frozenset({"b", "c"}), "web": frozenset({"c"})}
    known = ImageTable.of([Image("web:1", (BASE, WEB))])
    table = replace(known, held=held, overhead_s=np.array([0.5, np.nan]))
    pull = table.pull(nodes, pod("web:1"), np.array([80.0, 8.0, 1.0, np.nan]))
    assert pull.missing_mb.tolist() == [42.0, 12.0, 0.0, 42.0]
    assert pull.shared_mb.tolist() == [0.0, 30.0, 42.0, 0.0]
    assert pull.queue_mb.tolist() == [0.0, 10.0, 0.0, 0.0]
    assert pull.time_s[:3].tolist() == [pytest.approx(4.7), pytest.approx(22.0), 0.0]
    assert np.isnan(pull.time_s[3])


def test_a_link_that_is_down_takes_long_and_is_not_unknown() -> None:
    nodes = NodeTable([node("down"), node("down-and-queued", pulling_mb=10.0), node("has-it")])
    known = ImageTable.of([Image("web:1", (BASE, WEB))])
    table = replace(known, held={layer.digest: frozenset({"has-it"}) for layer in (BASE, WEB)})
    time_s = table.pull(nodes, pod("web:1"), np.zeros(3)).time_s
    assert np.isfinite(time_s).all()
    assert time_s[1] > time_s[0] > 100_000
    assert time_s[2] == 0
