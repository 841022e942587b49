"""Which layers a node has, what it pulls, and how fast: joined from status, pods and events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from leadline_controller.cluster import known_layers
from leadline_controller.cluster.node_images import ImageState
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.image_layers import listed_images
from leadline_controller.framework.model import Layer, Node, Pod
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.ports import (
    ImagePull,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
)
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_wire.codec import MOST_MBPS

WEB, DB = "reg.example/web:1", "reg.example/db:1"
WEB_DIGEST, DB_DIGEST = "reg.example/web@sha256:" + "a" * 64, "reg.example/db@sha256:" + "b" * 64
BASE, OWN, OTHER = Layer("base", 30.0), Layer("own", 10.0), Layer("other", 20.0)
ARM = Layer("arm", 50.0)


def node(name: str, *listed: str, architecture: str = "amd64", mb: float = 40) -> Node:
    read = tuple(listed_images(((name,), round(mb * 1e6)) for name in listed))
    labels = {"kubernetes.io/arch": architecture}
    digests = frozenset(layer.digest for image in read for layer in image.layers)
    return Node(name, labels=labels, images=read, image_layers=digests)


def pod(name: str, *images: str, on: str | None = None, **fields: object) -> Pod:
    made = Pod("default", name, uid=name, images=images, node_name=on)
    return replace(made, **fields)  # type: ignore[arg-type]  # as the caller has them


class Scene:
    """A cluster's state whose registry knows both images."""

    def __init__(self, *nodes: Node) -> None:
        self.now_s = 0.0
        self.state = ClusterState()
        self.state.images = ImageState(lambda: self.now_s)
        self.state.apply(Relisted(nodes, ()))
        self.state.images.learn(WEB, WEB_DIGEST, {"amd64": (BASE, OWN), "arm64": (ARM,)})
        self.state.images.learn(DB, DB_DIGEST, {"": (BASE, OTHER)})

    @property
    def table(self) -> NodeTable:
        return self.state.table

    def missing(self, image: str) -> list[float]:
        view = self.state.view(TelemetryState(TimesToLive()), 0.0)
        return list(map(float, view.images.missing_mb(view.table, pod("asked", image))))

    def queued(self) -> list[float]:
        view = self.state.view(TelemetryState(TimesToLive()), 0.0)
        return list(map(float, view.images.waiting_mb(view.table)))

    def pull(self, on: str, image: str, **fields: object) -> float | None:
        self.state.apply(PodChanged(pod("uid", on=on)))
        return self.state.images.observe(ImagePull(on, "uid", image, **fields))  # type: ignore[arg-type]  # as above


def test_a_listed_image_brings_its_layers_and_shares_them() -> None:
    scene = Scene(node("n1", WEB_DIGEST), node("n2"))
    assert scene.missing(WEB) == [0.0, 40.0]
    assert scene.missing(DB) == [20.0, 50.0], "the base layer is there"


def test_each_architecture_has_its_layers() -> None:
    scene = Scene(node("n1"), node("n2", architecture="arm64"), node("n3", architecture="riscv64"))
    assert scene.missing(WEB) == [40.0, 50.0, 40.0]
    assert scene.missing(DB) == [50.0, 50.0, 50.0]


def test_a_listed_tag_is_not_pulled_again_but_for_latest() -> None:
    old = "reg.example/web@sha256:" + "c" * 64
    moved = Node(
        "n1",
        labels={"kubernetes.io/arch": "amd64"},
        images=tuple(listed_images([((old, WEB), 40_000_000)])),
    )
    assert Scene(moved).missing(WEB) == [0.0]
    latest = "reg.example/web:latest"
    listed = tuple(listed_images([((old, latest), 40_000_000)]))
    scene = Scene(replace(moved, images=listed))
    scene.state.images.learn(latest, WEB_DIGEST, {"amd64": (BASE, OWN)})
    assert scene.missing(latest) == [40.0]


def test_a_pulled_image_is_there_before_the_status_says_so_and_goes_with_it() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", WEB)
    assert scene.missing(WEB) == [40.0]
    scene.pull("n1", WEB, took_s=4.0, size_mb=40.0)
    assert scene.missing(WEB) == [0.0]
    scene.now_s += 59.0
    assert scene.missing(WEB) == [0.0]
    scene.now_s += 2.0
    assert scene.missing(WEB) == [40.0], "the status does not list it: the kubelet deleted it"


def test_a_full_status_hides_images_smaller_than_all_that_it_lists() -> None:
    others = [f"reg.example/other-{i}@sha256:{i:064x}" for i in range(50)]
    scene = Scene(node("n1", *others, mb=45.0))
    scene.pull("n1", WEB, took_s=4.0)
    scene.now_s += 1000.0
    assert scene.missing(WEB) == [0.0], "40 MB are less than 45"
    scene.state.apply(NodeChanged(node("n1", *others, mb=35.0)))
    assert scene.missing(WEB) == [40.0], "it would be listed"


def test_an_image_is_there_while_a_container_uses_it() -> None:
    scene = Scene(node("n1"))
    running = pod("web", WEB, on="n1", started_images=((WEB, WEB_DIGEST),))
    scene.state.apply(PodChanged(running))
    scene.now_s += 1000.0
    assert scene.missing(WEB) == [0.0]
    scene.state.apply(PodDeleted(running))
    assert scene.missing(WEB) == [0.0]
    scene.now_s += 61.0
    assert scene.missing(WEB) == [40.0]


def test_pods_that_wait_for_images_make_the_queue() -> None:
    scene = Scene(node("n1"), node("n2"))
    waiting = pod("web", WEB, on="n1", awaited_images=(WEB,))
    scene.state.apply(PodChanged(waiting))
    scene.state.apply(PodChanged(pod("db", DB, on="n1", awaited_images=(DB,))))
    assert scene.queued() == [60.0, 0.0], "the base layer once"
    assert scene.missing(WEB) == [0.0, 40.0]
    scene.state.apply(
        PodChanged(replace(waiting, awaited_images=(), started_images=((WEB, WEB_DIGEST),)))
    )
    assert scene.queued() == [20.0, 0.0]


def test_a_queue_is_made_again_only_when_its_images_change() -> None:
    scene = Scene(node("n1"), node("n2"))
    images = scene.state.images

    def wait(name: str, *awaited: str) -> None:
        scene.state.apply(PodChanged(pod(name, *awaited, on="n1", awaited_images=awaited)))

    wait("first", WEB)
    queued = images.table(scene.table).queued
    for number in range(3):
        wait(f"more-{number}", WEB)
        assert images.table(scene.table).queued is queued
    scene.state.apply(PodDeleted(pod("first", WEB, on="n1")))
    assert images.table(scene.table).queued is queued, "others wait for the same image"
    wait("other", WEB, DB)
    assert scene.queued() == [60.0, 0.0]
    for name in ("other", *(f"more-{number}" for number in range(3))):
        scene.state.apply(PodDeleted(pod(name, on="n1")))
    assert (scene.queued(), images.table(scene.table).queued) == ([0.0, 0.0], {})


def test_an_assumed_pod_waits_too() -> None:
    scene = Scene(node("n1"))
    pending = pod("web", WEB, awaited_images=(WEB,))
    scene.state.apply(PodChanged(pending))
    assert scene.queued() == [0.0]
    scene.state.assume(pending, "n1")
    assert scene.queued() == [40.0]
    scene.state.forget(pending)
    assert scene.queued() == [0.0]


def test_the_queue_shrinks_with_the_pull() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", DB)
    scene.pull("n1", DB, took_s=5.2, size_mb=50.0)  # 80 Mbit/s
    scene.state.apply(PodChanged(pod("web", WEB, on="n1", awaited_images=(WEB,))))
    scene.pull("n1", WEB)
    assert scene.queued() == [10.0]
    scene.now_s += 0.7
    assert scene.queued() == [pytest.approx(5.0)]
    scene.now_s += 5.0
    assert scene.queued() == [0.0]


def test_a_second_pod_of_the_same_image_waits_for_the_same_pull() -> None:
    scene = Scene(node("n1"))
    images = scene.state.images
    scene.pull("n1", DB)
    scene.pull("n1", DB, took_s=5.2, size_mb=50.0)  # 80 Mbit/s
    for name in ("first", "second"):
        scene.state.apply(PodChanged(pod(name, WEB, on="n1", awaited_images=(WEB,))))
    images.observe(ImagePull("n1", "first", WEB))
    scene.now_s += 0.7
    images.observe(ImagePull("n1", "second", WEB))
    assert scene.queued() == [pytest.approx(5.0)]
    before = images.table(scene.table).pull_mbps.tolist()
    images.observe(ImagePull("n1", "first", WEB, took_s=1.2, size_mb=40.0))
    images.observe(ImagePull("n1", "second", WEB, took_s=0.01, size_mb=40.0))
    assert images.table(scene.table).pull_mbps.tolist() == pytest.approx(before)


def test_a_pod_waits_for_the_pulls_before_its_own() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", DB)
    scene.pull("n1", DB, took_s=5.2, size_mb=50.0)  # 80 Mbit/s and 0.2 s
    own = "reg.example/own:1"
    by_digest = "reg.example/own@sha256:" + "e" * 64
    scene.state.images.learn(own, by_digest, {"": (Layer("third", 5.0),)})

    def expected_s(image: str) -> float:
        view = scene.state.view(TelemetryState(TimesToLive()), 0.0)
        return float(view.pull(pod("asked", image)).time_s[0])

    assert expected_s(own) == pytest.approx(0.2 + 0.5)
    scene.state.apply(PodChanged(pod("web", WEB, on="n1", awaited_images=(WEB,))))
    assert expected_s(own) == pytest.approx(1.2 + 0.7), "10 MB, then 5, and each its overhead"
    scene.now_s += 0.4  # until the kubelet asks
    scene.state.images.observe(ImagePull("n1", "web", WEB))
    # The next kubelet's question comes 0.4 s after the decision, and the wait counts from there.
    assert expected_s(own) == pytest.approx(0.8 + 0.7)
    assert expected_s(WEB) == pytest.approx(0.8), "nothing to download, but others are before it"
    scene.now_s += 0.9
    assert expected_s(own) == pytest.approx(0.7)
    assert expected_s(WEB) == 0.0, "there before the kubelet asks"


def test_only_the_first_question_for_a_pods_images_shows_how_long_a_kubelet_takes_to_ask() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", DB)
    scene.pull("n1", DB, took_s=5.2, size_mb=50.0)
    both = pod("both", WEB, DB, on="n1", awaited_images=(WEB, DB))
    scene.state.apply(PodChanged(both))
    scene.now_s += 0.4
    scene.state.images.observe(ImagePull("n1", "both", WEB))
    for _ in range(3):  # the registry has no such image, and the kubelet tries it again
        scene.state.apply(PodChanged(replace(both, labels={"its": "status changed"})))
        scene.now_s += 40.0
        scene.state.images.observe(ImagePull("n1", "both", DB))
    assert scene.state.images.table(scene.table).delay_s.tolist() == [pytest.approx(0.4)]


def test_pods_that_wait_are_gone_through_once_and_not_for_each_node() -> None:
    class Counted(dict[str, dict[str, Pod]]):
        read = 0

        def values(self) -> Any:
            self.read += 1
            return super().values()

        def items(self) -> Any:
            self.read += 1
            return super().items()

    names = [f"n{i}" for i in range(40)]
    scene = Scene(*map(node, names))
    for name in names:
        scene.state.apply(PodChanged(pod(f"on-{name}", WEB, on=name, awaited_images=(WEB,))))
        scene.pull(name, DB, took_s=5.2, size_mb=50.0, is_old=True)
    images = scene.state.images
    images._awaiting = counted = Counted(images._awaiting)
    statuses = list(images.statuses(scene.table))
    assert [each.pulling[0].image for each in statuses] == 40 * [WEB]
    assert all(each.speed is not None for each in statuses)
    assert counted.read <= 3


def test_the_layers_of_a_node_are_not_copied_for_each_layer_that_it_waits_for() -> None:
    class Held(frozenset[str]):
        def __or__(self, _: Any) -> Any:
            raise AssertionError("a copy of thousands of layers")

    scene = Scene(node("n1"))
    scene.pull("n1", DB, took_s=5.2, size_mb=50.0, is_old=True)
    scene.state.apply(PodChanged(pod("web", WEB, on="n1", awaited_images=(WEB,))))
    images = scene.state.images
    assert images.table(scene.table).queue_s[0] > 1.0
    images._nodes["n1"].held = Held({"base"})
    assert images.table(scene.table).queue_s[0] == pytest.approx(10 * 8 / 80 + 0.2, rel=0.2)


def test_a_placement_of_the_same_run_is_waited_for() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", DB)
    scene.pull("n1", DB, took_s=5.2, size_mb=50.0)  # 80 Mbit/s and 0.2 s
    view = scene.state.view(TelemetryState(TimesToLive()), 0.0)
    after = view.with_placement(pod("web", WEB), 0)
    assert after.images.queue_s == {0: pytest.approx(1.2)}
    assert float(after.pull(pod("asked", WEB)).time_s[0]) == pytest.approx(1.2)


def test_speed_is_that_of_what_was_downloaded() -> None:
    scene = Scene(node("n1", WEB_DIGEST))
    scene.pull("n1", DB)
    mbps = scene.pull("n1", DB, took_s=2.0, size_mb=50.0)
    assert mbps == pytest.approx(20 * 8 / 2), "the base layer was there"
    speed = scene.state.images.table(scene.table).pull_mbps
    assert speed.tolist() == [pytest.approx(20 * 8 / 1.8)]


def test_a_pull_behind_another_begins_with_what_that_one_brought() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", WEB)
    scene.pull("n1", DB)
    scene.pull("n1", WEB, took_s=4.2, size_mb=40.0)
    assert scene.pull("n1", DB, took_s=2.2, size_mb=50.0) == pytest.approx(20 * 8 / 2.2)
    (speed,) = scene.state.images.table(scene.table).pull_mbps
    assert speed == pytest.approx(80.0, rel=0.01)


def test_listed_pulls_count_only_until_there_are_others() -> None:
    scene = Scene(node("n1"))
    assert scene.pull("n1", WEB, took_s=2.2, size_mb=40.0, is_old=True) is None
    (speed,) = scene.state.images.table(scene.table).pull_mbps
    assert speed == pytest.approx(160.0)
    scene.pull("n1", WEB)
    scene.pull("n1", WEB, took_s=4.2, size_mb=40.0)
    (speed,) = scene.state.images.table(scene.table).pull_mbps
    assert speed == pytest.approx(80.0)


def test_pulls_of_unknown_nodes_and_images_are_harmless() -> None:
    scene = Scene(node("n1"))
    assert scene.pull("nowhere", WEB, took_s=1.0, size_mb=1e9) is None
    assert scene.pull("n1", "reg.example/strange:1", took_s=1.0, size_mb=20.0) is None
    assert scene.pull("n1", WEB, took_s=0.0, size_mb=0.0) is None
    assert np.isnan(scene.state.images.table(scene.table).pull_mbps).all()
    scene.pull("n1", DB)
    scene.pull("n1", DB, took_s=0.0, size_mb=50.0)
    assert np.isfinite(scene.state.images.table(scene.table).pull_mbps).all()


@pytest.mark.parametrize("uid", ["elsewhere", "unplaced", "unknown"])
def test_a_pull_counts_only_for_a_pod_on_its_node(uid: str) -> None:
    scene = Scene(node("n1"), node("n2"))
    scene.state.apply(PodChanged(pod("elsewhere", WEB, on="n2", awaited_images=(WEB,))))
    scene.state.apply(PodChanged(pod("unplaced", WEB, awaited_images=(WEB,))))
    claimed = ImagePull("n1", uid, DB)
    for pull in (claimed, replace(claimed, took_s=5.0, size_mb=50.0)):
        assert scene.state.images.observe(pull) is None
    scene.state.images.observe(replace(claimed, took_s=5.0, size_mb=50.0, is_old=True))
    assert scene.missing(DB)[0] == 50.0
    assert np.isnan(scene.state.images.table(scene.table).pull_mbps).all()


def test_a_pull_is_no_faster_than_any_link() -> None:
    scene = Scene(node("n1"))
    huge = "reg.example/huge:1"
    by_digest = "reg.example/huge@sha256:" + "e" * 64
    scene.state.images.learn(huge, by_digest, {"": (Layer("huge", 1e6),)})
    scene.pull("n1", huge)
    assert scene.pull("n1", huge, took_s=1e-9) == MOST_MBPS
    (speed,) = scene.state.images.table(scene.table).pull_mbps
    assert speed < 1.1 * MOST_MBPS


def test_a_relist_keeps_what_was_learned() -> None:
    scene = Scene(node("n1"))
    scene.pull("n1", WEB)
    scene.pull("n1", WEB, took_s=4.2, size_mb=40.0)
    scene.state.apply(Relisted((node("n1"), node("n2")), ()))
    assert scene.missing(WEB) == [0.0, 40.0]
    speeds = scene.state.images.table(scene.table).pull_mbps
    assert speeds[0] == pytest.approx(80.0)
    assert np.isnan(speeds[1])
    scene.state.apply(Relisted((node("n2"),), ()))
    assert scene.missing(WEB) == [40.0]


def test_wanted_are_the_pods_images_and_those_on_nodes_of_the_same_registries() -> None:
    elsewhere = "other.example/x@sha256:" + "d" * 64
    scene = Scene(node("n1", DB_DIGEST, elsewhere))
    pods = [
        pod("a", WEB, pull_secrets=("mine",), init_images=("busybox",)),
        pod("b", WEB, finished=True, pull_secrets=("theirs",)),
    ]
    assert scene.state.images.wanted(pods) == {
        "docker.io/library/busybox:latest": {"default/", "default/mine"},
        WEB: {"default/", "default/mine"},
        DB_DIGEST: set(),
    }
    scene.state.apply(NodeChanged(node("n1")))
    assert DB_DIGEST not in scene.state.images.wanted(pods)


def test_a_full_memory_forgets_the_oldest_that_nothing_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_layers, "_MAX_IMAGES", 3)
    scene = Scene(node("n1", WEB_DIGEST, DB_DIGEST))
    learn, names = scene.state.images.learn, [f"reg.example/app-{i}:1" for i in range(4)]
    layer = Layer("app", 5.0)
    scene.state.images.wanted([pod("web", WEB)])
    assert learn(names[0], f"reg.example/app-0@sha256:{0:064x}", {"": (layer,)}) == set()
    assert learn(names[1], f"reg.example/app-1@sha256:{1:064x}", {"": (layer,)}) == {names[0]}
    assert scene.missing(DB) == [0.0], "wanted, because n1 has it"
    scene.state.images.wanted([pod("app", names[1])])
    scene.state.apply(NodeChanged(node("n1", DB_DIGEST)))
    assert learn(names[2], f"reg.example/app-2@sha256:{2:064x}", {"": (layer,)}) == {WEB}
    assert np.isnan(scene.missing(WEB)).all()
    assert scene.missing(names[1]) == [5.0]
    # Names of the same image have the same limit.
    assert learn(names[3], f"reg.example/app-2@sha256:{2:064x}", {"": (layer,)}) == {DB}


def test_all_that_a_file_has_is_learned_before_the_nodes_layers_are_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, refresh = 0, ImageState._refresh

    def counted(state: ImageState, now_s: float) -> None:
        nonlocal made
        made += state._is_stale
        refresh(state, now_s)

    monkeypatch.setattr(ImageState, "_refresh", counted)
    scene = Scene(*[node(f"n{i}") for i in range(100)])
    told = [
        (f"reg.example/app-{i}:1", f"reg.example/app-{i}@sha256:{i:064x}", Layer(f"own-{i}", 1.0))
        for i in range(3000)
    ]
    for image, by_digest, layer in told:
        scene.state.images.learn(image, by_digest, {"": (BASE, layer)})
    assert made == 0
    assert scene.missing(told[-1][0]) == [31.0] * 100
    assert made == 1


def test_a_reading_has_what_the_listing_shows() -> None:
    scene = Scene(node("n1", WEB_DIGEST), node("n2"))
    scene.state.apply(PodChanged(pod("db", DB, on="n1", awaited_images=(DB,))))
    scene.pull("n1", DB)
    scene.now_s += 3.0
    first, second = scene.state.images.statuses(scene.table)
    assert (first.node, first.architecture, first.held_mb, first.queue_mb) == (
        *("n1", "amd64", 40.0, 20.0),
    )
    assert [(image.name, image.layers, image.used) for image in first.images] == [
        (WEB_DIGEST, 2, False)
    ]
    assert first.pulling == ((DB, 20.0, 3.0),)
    assert (second.images, second.pulling, second.speed) == ((), (), None)


def test_what_is_told_before_the_nodes_are_listed_is_known() -> None:
    scene = Scene()
    assert scene.missing(WEB) == []
    scene.state.apply(Relisted((node("n1"),), ()))
    assert scene.missing(WEB) == [40.0]
