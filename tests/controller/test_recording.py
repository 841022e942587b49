"""What a running controller records: all that its views are made of, and nothing secret."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leadline_controller import loops, wiring
from leadline_controller.cluster.service_profiles import BoardProfile, ServiceProfile, document
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.model import Layer, Node, Pod
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.ports import (
    ImagePull,
    NotFoundError,
    PodChanged,
    PodUsage,
    Relisted,
)
from leadline_controller.framework.traffic import PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Counted,
    Decided,
    Entry,
    Learnt,
    Pulled,
    Recorded,
    Used,
)
from leadline_controller.history.recording_blocks import encode_block
from leadline_controller.history.recording_files import read_recording, recordings
from leadline_controller.history.recording_ring import RecordingSettings
from leadline_controller.kube.convert import Converter
from leadline_controller.registry.lookup import LookupSettings
from leadline_controller.settings import Settings
from leadline_controller.telemetry import accepted
from leadline_controller.telemetry.accepted import Agent, Born, Pinged, Reported
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_controller.telemetry.collectors import BoardReading
from leadline_controller.telemetry.paths import PingRound
from leadline_controller.telemetry.sequence import Stamp
from leadline_controller.telemetry.state import TelemetryState
from leadline_controller.wiring import Controller

from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster
from tests.support.tasks import until

NODES = ("n1", "n2", "n3")
PULL = ImagePull("n1", "u", "web:1", 3.0, 50.0)
WEB, DB = (("default", frozenset({("app", app)})) for app in ("web", "db"))
TRAFFIC = Traffic(
    {
        WEB: (PeerTraffic(DB, "default/db", 2.5, 1.0, 30.1),),
        DB: (PeerTraffic("n1", "198.51.100.7", 0.25, 0.0, 2.0),),
    },
    {"198.51.100.7": "n1"},
    {"n1": 3.5},
)
SIZE = {"cpu": 4000, "memory": 2**32, "pods": 110}


def measure(telemetry: TelemetryState, now_s: float) -> None:
    """Three boards say what they measure, and one that nobody believes says it again."""
    for name in NODES:
        born = Stamp(b"boot", 1, 1, 1000, now_s - 40)
        telemetry.birth(Agent(name, version="1", cores=4), born)
    for number in range(2, 6):
        for at, name in enumerate(NODES):
            when_s = now_s - 40 + 8 * number
            values = {"cpu_percent": 10.0 * at + number, "memory_percent": 33.3, "used_mbps": 0.7}
            stamp = Stamp(b"boot", 1, 2 * number, 1000 * number, when_s)
            assert telemetry.report(name, stamp, BoardReading(values))
            assert not telemetry.report(name, stamp, BoardReading({"cpu_percent": 99.0}))
            peers = {p: PingRound(1.5 + at + number / 7, 2, 2) for p in NODES if p != name}
            stamp = Stamp(b"boot", 1, 2 * number + 1, 1000 * number, when_s)
            assert telemetry.rtts(name, stamp, peers)
    telemetry.bandwidth(BandwidthTest("n1", "n2", 93.0, 0.5, now_s - 20))
    telemetry.bandwidth(BandwidthTest("n3", "n2", 91.0, 0.5, now_s - 10))


def feed(told: list[Entry]) -> tuple[ClusterState, TelemetryState]:
    """The states of a replay."""
    began = told[0].what
    assert isinstance(began, Began)
    clock = {"now_s": 0.0}
    state = ClusterState(assumes_load=began.assumed_load, unix_offset_s=lambda: None)
    telemetry = TelemetryState(Settings().ttl, is_passive=began.is_passive)
    for at_s, what in told:
        clock["now_s"] = at_s
        match what:
            case Changed(change):
                state.apply(change)
            case Born() | Reported() | Pinged() | accepted.Tested():
                telemetry.take(what)
            case _:
                learn(state, what)
    return state, telemetry


def learn(state: ClusterState, what: Recorded) -> None:
    match what:
        case Pulled(pull):
            state.images.observe(pull)
        case Learnt(image, digest, layers):
            state.images.learn(image, digest, layers)
        case Used(usage):
            state.recent.use_usage(usage)
        case Counted(peers, entries, flowing_mbps):
            state.use_traffic(Traffic(peers, entries, flowing_mbps))
        case _:
            pass


def assert_same(view: ClusterView, other: ClusterView) -> None:
    assert view.table.names == other.table.names
    assert view.nodes == other.nodes
    for name in METRICS:
        np.testing.assert_array_equal(getattr(view.metrics, name), getattr(other.metrics, name))
    np.testing.assert_array_equal(view.metrics.errors, other.metrics.errors)
    for resource, column in view.requested.items():
        np.testing.assert_array_equal(column, other.requested[resource])
    for name in ("peers", "entries", "flowing_mbps"):
        assert getattr(view.traffic, name) == getattr(other.traffic, name)
    for at in range(len(view.table)):
        np.testing.assert_array_equal(view.links.rtt_ms_from(at), other.links.rtt_ms_from(at))


async def recorded(folder: Path, **more: Any) -> tuple[Controller, list[Entry]]:
    """A controller that placed three pods and recorded it."""
    settings = Settings(warm_up_s=0.0, recording=RecordingSettings(True, folder), seed=11, **more)
    cluster = MemoryCluster([Node(name, SIZE) for name in NODES])
    controller = Controller(settings, cluster)
    now_s = controller.clock.now_s()
    measure(controller.telemetry, now_s)
    async with controller.storing_decisions(), wiring.running(*controller.placing()):
        for name in ("a", "b", "c"):
            cluster.put_pod(Pod("default", name, requests={"cpu": 500, "pods": 1}))
        await until(lambda: all(each.node_name for each in cluster.pods))
        await until(lambda: all(pod.node_name for pod, _ in controller.state.pods()))
        controller._use_traffic(TRAFFIC)
        controller._learn("web:1", "web@sha256:1", {"": (Layer("sha256:2", 3.5),)})
    return controller, list(read_recording(folder))


async def test_what_was_recorded_makes_the_same_view(tmp_path: Path) -> None:
    controller, told = await recorded(tmp_path)
    state, telemetry = feed(told)
    now_s = controller.clock.now_s()
    before = controller.state.view(controller.telemetry, now_s)
    assert np.isfinite(before.metrics.cpu_percent).all()
    assert np.isfinite(before.metrics.bandwidth_mbps).any()
    assert before.traffic is TRAFFIC
    assert_same(state.view(telemetry, now_s), before)
    began = told[0].what
    assert isinstance(began, Began)
    assert (began.strategy, began.seed, began.cluster) == ("leadline", 11, "default")
    assert began.ttl["rtt_s"] == 600.0
    assert (began.preferences, began.letter, began.preemption) == ("on", False, True)
    decided = {each.what.pod: each.what.node for each in told if isinstance(each.what, Decided)}
    assert decided == {pod.key: node for pod, node in controller.state.pods()}
    assert [each.what for each in told if isinstance(each.what, Learnt)] == [
        Learnt("web:1", "web@sha256:1", {"": (Layer("sha256:2", 3.5),)})
    ]


async def test_a_later_file_begins_with_what_makes_the_same_view(tmp_path: Path) -> None:
    controller, _ = await recorded(tmp_path)
    made = controller.recording
    assert made is not None
    made.put(Pulled(ImagePull("n1", "gone", "web:1", 3.0, 50.0)))
    made._write(controller.clock.now_s())
    await made.stop()
    made._write(controller.clock.now_s())
    made._ring.end(controller.clock.now_s())
    files = recordings(tmp_path)
    assert len(files) == 2
    told = list(read_recording(files[1]))
    began = told[0].what
    assert isinstance(began, Began)
    assert began.seed == 11
    state, telemetry = feed(told)
    now_s = controller.clock.now_s()
    assert_same(state.view(telemetry, now_s), controller.state.view(controller.telemetry, now_s))


class Kubelets:
    """Kubelets that pulled an image, and a metrics API."""

    async def watch_pulls(self) -> AsyncGenerator[ImagePull, None]:
        yield PULL
        await asyncio.Event().wait()

    async def read_secret(self, key: str) -> bytes:
        raise NotFoundError(key)

    async def pod_usage(self) -> Sequence[PodUsage]:
        return [PodUsage("default", "web", 0.3, 5e7, 1e9)]


async def test_pulls_use_and_profiles_are_recorded(tmp_path: Path) -> None:
    """A profile that comes later, too: pods have it in the recording already."""
    profiles, folder = tmp_path / "profiles.json", tmp_path / "recordings"
    board = BoardProfile("pi", 8.0, 1.0, 0.5, 9)
    profile = ServiceProfile("default", {"app": "web"}, {"n1": board})
    settings = Settings(
        profiles=profiles,
        images=LookupSettings(enabled=False),
        recording=RecordingSettings(True, folder),
    )
    kubelets, clock = Kubelets(), ManualClock(100.0)
    controller = Controller(settings, MemoryCluster(), clock=clock, pulls=kubelets, usage=kubelets)
    pod = Pod("default", "web", "u", node_name="n1", ready=True, labels={"app": "web"})
    shown = Relisted((Node("n1"),), (pod,), (PodSelector("Service", "default", "web", None),))
    controller.state.apply(shown)
    controller.notify(shown)
    async with (
        controller.storing_decisions(),
        wiring.running(
            controller.look_up_images(),
            controller.follow_usage(kubelets),
            loops.follow_profiles(controller.state, profiles, clock, controller._profiles_changed),
        ),
    ):
        await clock.advance(1.0)
        profiles.write_text(json.dumps(document([profile])))
        async with asyncio.timeout(90.0):
            while controller.state.profiled(pod) == pod:
                await clock.advance(20.0)
                await asyncio.sleep(0.01)  # a thread reads the file
    told = [entry.what for entry in read_recording(folder)]
    assert Pulled(PULL) in told
    assert Used({("default", frozenset({("app", "web")})): (0.3, 5e7)}) in told
    lists = [
        each.change
        for each in told
        if isinstance(each, Changed) and isinstance(each.change, Relisted)
    ]
    assert [dict(each.pods[0].annotations.profile_ms) for each in lists] == [
        {},
        {"pi": 8.0, "n1": 8.0},
    ]


async def test_nothing_is_recorded_by_default(tmp_path: Path) -> None:
    controller = Controller(Settings(), MemoryCluster())
    assert controller.recording is None
    controller._record(Decided("u", "d/p", None))


SECRET = "hunter2"


def secretive() -> dict[str, Any]:
    """A pod with a secret wherever one may be."""
    container = {
        "name": "app",
        "image": "web:1",
        "command": ["/bin/app", f"--password={SECRET}"],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": "login"}}],
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Auth", "value": SECRET}]}},
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
    }
    return {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "u1",
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"x": SECRET}),
                "leadline.dev/data-mb": "5",
            },
        },
        "spec": {
            "containers": [container],
            "initContainers": [{**container, "name": "init"}],
            "volumes": [
                {"name": "v", "flexVolume": {"driver": "d", "options": {"key": SECRET}}},
                {"name": "w", "secret": {"secretName": "login"}},
                {"name": "x", "csi": {"driver": "c", "volumeAttributes": {"key": SECRET}}},
            ],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": [SECRET]}],
        },
        "status": {
            "phase": "Running",
            "message": SECRET,
            "containerStatuses": [
                {"name": "app", "image": "web:1", "state": {"waiting": {"message": SECRET}}}
            ],
        },
    }


@pytest.mark.parametrize("broken", [None, "tolerations", "affinity", "containers"])
def test_no_secret_of_a_pod_is_recorded(broken: str | None) -> None:
    manifest = secretive()
    if broken == "containers":
        manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    elif broken is not None:
        manifest["spec"][broken] = 5
    pod = Converter().pod(manifest)
    assert pod is not None
    assert (pod.problem is None) == (broken is None)
    data = encode_block([Entry(1.0, Changed(PodChanged(pod)))])
    assert b"web" in data
    for secret in (SECRET, "PASSWORD", "/bin/app"):
        assert secret.encode() not in data
