"""Leadline as an extender of the real kube-scheduler: a process, over TLS, on a real API server,
with each configuration."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from http.client import HTTPSConnection
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.attack.extender import all_at_once
from tests.attack.extender_client import Address
from tests.attack.extender_questions import of_labels, whole_question
from tests.controller.extender.harness import args, pod_manifest
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.daemon import Daemon as Part
from tests.kube.extending import Extending, extending
from tests.kube.objects import namespace, node, pod
from tests.support.memory import controller_limit_bytes, limited_memory, peak_bytes
from tests.system.daemons import Daemon, eventually, leadline

pytestmark = pytest.mark.cluster

PLACE = "extender"
PODS = f"/api/v1/namespaces/{PLACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{PLACE}/events"
MINE = {"for": PLACE}
BANDWIDTH = "leadline.dev/bandwidth-mbps"
# kube-scheduler alone would take the emptiest, and so never the wide one, which has least CPU.
NARROW, MIDDLE, WIDE = (f"{PLACE}-{name}" for name in ("narrow", "middle", "wide"))
NODES = {NARROW: ("8", "10"), MIDDLE: ("8", "50"), WIDE: ("4", "1000")}
MUCH_DATA = {"leadline.dev/data-mb": "100"}
EVERY_WAY = [
    pytest.param(bind, capable, id=f"{bind or '--no-bind'} {capable}")
    for bind in ("", "--bind")
    for capable in ("--node-cache-capable", "--no-node-cache-capable")
]


@dataclass(frozen=True)
class Scene:
    """The API server, the controller and kube-scheduler of a test."""

    extending: Extending

    @property
    def api(self) -> Api:
        return Api(self.extending.plane.kubeconfig)

    @property
    def controller(self) -> Daemon:
        return self.extending.controller

    def scheduler(self, *options: str) -> AbstractContextManager[Part]:
        return self.extending.scheduler(*options)

    def add(self, name: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> None:
        made = pod(
            name,
            cpu="100m",
            scheduler="default-scheduler",
            node_selector=MINE,
            annotations=annotations,
            **spec,
        )
        self.api.create(PODS, made)

    def nodes_of(self, prefix: str = "") -> dict[str, str | None]:
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName")
            for pod in self.api.get(PODS)["items"]
            if pod["metadata"]["name"].startswith(prefix)
        }

    def wait_bound(self, name: str) -> str | None:
        return eventually(lambda: self.nodes_of(name), lambda n: n[name], f"{name} is bound")[name]

    def wait_note(self, name: str, reason: str, text: str) -> Any:
        def found() -> list[Any]:
            return [
                event
                for event in self.api.get(EVENTS)["items"]
                if event["regarding"].get("name", "") == name and event["reason"] == reason
            ]

        events = eventually(
            found, lambda events: any(text in e["note"] for e in events), f"{reason}: {text}"
        )
        return next(event for event in events if text in event["note"])

    def explain(self, name: str) -> Any:
        shown = leadline(
            "explain", f"{PLACE}/{name}", "-o", "json", "--address", self.extending.inspected
        )
        assert (shown.returncode, shown.stderr) == (0, ""), shown
        return yaml.safe_load(shown.stdout)


@pytest.fixture(scope="module")
def whole(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    api = Api(plane.kubeconfig)
    with suppress(ApiError):  # it stays: nothing here would ever finish its deletion
        api.create("/api/v1/namespaces", namespace(PLACE))
    for name, (cpu, mbps) in NODES.items():
        api.add_node(node(name, cpu=cpu, labels={**MINE, BANDWIDTH: mbps}))
    try:
        with extending(plane, tmp_path_factory.mktemp("extender"), "{alpha = 0}") as running:
            yield Scene(running)
    finally:
        for name in NODES:
            api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
def scene(whole: Scene) -> Iterator[Scene]:
    whole.controller.start()
    try:
        yield whole
    finally:
        for name in whole.nodes_of():
            whole.api.delete(f"{PODS}/{name}")


def binding_plugins_ran(scheduler: Part) -> bool:
    """Whether kube-scheduler bound pods itself."""
    # The certificate is self-signed.
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection(urlsplit(scheduler.url).netloc, context=trusting)
    with closing(connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    pattern = r'extension_point_duration_seconds_count\{extension_point="Bind",.*\} [1-9]'
    return re.search(pattern, text) is not None


@pytest.mark.parametrize(("bind", "capable"), EVERY_WAY)
def test_a_pod_runs_on_the_node_that_the_strategy_chose(
    scene: Scene, bind: str, capable: str
) -> None:
    with scene.scheduler(bind, capable) as scheduler:
        scene.add("web", MUCH_DATA)
        assert scene.wait_bound("web") == WIDE
        assert binding_plugins_ran(scheduler) == (not bind)
    advised = scene.wait_note("web", "Advised", f"{WIDE} by dacs: 0.9")
    assert advised["reportingController"] == "leadline"
    scene.wait_note("web", "Scheduled", f"Successfully assigned {PLACE}/web to {WIDE}")
    explained = scene.explain("web")
    assert (explained["node"], explained["outcome"]) == (WIDE, "bound")
    assert explained["scores"].keys() == NODES.keys()


@pytest.mark.parametrize(("bind", "capable"), EVERY_WAY)
def test_a_pod_that_no_link_can_carry_gets_an_event(scene: Scene, bind: str, capable: str) -> None:
    name = f"stream{bind}{capable}"  # events outlive the pods that they are about
    with scene.scheduler(bind, capable):
        scene.add(name, {BANDWIDTH: "2000"})
        for has in ("10", "50", "1000"):
            reason = (
                f"Leadline NodeBandwidthFit: insufficient bandwidth: needs 2000 Mbit/s, has {has}"
            )
            scene.wait_note(name, "FailedScheduling", reason)
        assert scene.nodes_of(name) == {name: None}
    explained = scene.explain(name)
    assert (explained["node"], explained["outcome"]) == (None, "pending")
    assert set(NODES) <= explained["rejected"].keys()


def test_a_links_bandwidth_is_never_assigned_twice(scene: Scene) -> None:
    with scene.scheduler("--bind"):
        for number in range(12):
            scene.add(f"stream-{number:02}", {BANDWIDTH: "100"})
        eventually(
            lambda: list(scene.nodes_of("stream").values()),
            lambda nodes: nodes.count(WIDE) == 10,
            "ten times 100 Mbit/s are on the link of 1000",
        )
        left = [name for name, where in scene.nodes_of("stream").items() if where is None]
        assert len(left) == 2
        for name in left:
            scene.wait_note(name, "FailedScheduling", "insufficient bandwidth")
        on_wide = next(name for name, where in scene.nodes_of("stream").items() if where)
        scene.api.delete(f"{PODS}/{on_wide}")
        passers = count()

        def after_another_has_gone() -> list[str | None]:
            # kube-scheduler may see a deletion and ask before the controller sees it. It asks
            # again after the next deletion.
            passer = f"passer-{next(passers)}"
            scene.add(passer)
            scene.wait_bound(passer)
            scene.api.delete(f"{PODS}/{passer}")
            return list(scene.nodes_of("stream").values())

        eventually(
            after_another_has_gone,
            lambda nodes: nodes.count(WIDE) == 10,
            "what became free is used",
        )


def prefers(node_name: str) -> Mapping[str, Any]:
    """A preference for this node that outweighs the extender's score with a weight of 1."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}
    term = {"weight": 100, "preference": {"matchExpressions": [here]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize("bind", ["", "--bind"])
def test_a_links_bandwidth_is_not_assigned_twice_when_kube_scheduler_chooses_another_node(
    scene: Scene, bind: str
) -> None:
    """All pods are pending at the start, so it filters the next while it binds the last."""
    names = [f"stream-{number}" for number in range(8)]
    for name in names:
        scene.add(name, {BANDWIDTH: "30", **MUCH_DATA}, affinity=prefers(MIDDLE))
    with scene.scheduler(bind, "--weight", "1"):
        where = [scene.wait_bound(name) for name in names]
    assert (where.count(MIDDLE), where.count(WIDE)) == (1, 7)


def test_an_invalid_annotation_is_named_in_an_event(scene: Scene) -> None:
    with scene.scheduler("--no-ignorable"):
        scene.add("odd", {BANDWIDTH: "plenty"})
        problem = "annotation leadline.dev/bandwidth-mbps: expected a number"
        scene.wait_note("odd", "FailedScheduling", problem)
        assert scene.nodes_of("odd") == {"odd": None}


def test_kube_scheduler_continues_while_leadline_is_down(scene: Scene) -> None:
    scene.controller.stop()
    with scene.scheduler("--bind", "--ignorable"):
        scene.add("alone", MUCH_DATA)
        assert scene.wait_bound("alone") in NODES
        scene.controller.start()
        scene.controller.wait_said("answering kube-scheduler", scene.controller.said("answering"))
        eventually(
            lambda: place_one_more(scene), lambda where: where == WIDE, "Leadline is asked again"
        )


@pytest.mark.parametrize("bind", ["", "--bind"])
def test_kube_scheduler_continues_while_leadline_hangs(scene: Scene, bind: str) -> None:
    pid = scene.controller.pid
    assert pid is not None
    with scene.scheduler(bind, "--ignorable", "--timeout", "1s"):
        os.kill(pid, signal.SIGSTOP)
        try:
            scene.add("alone", MUCH_DATA)
            assert scene.wait_bound("alone") in NODES
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(
            lambda: place_one_more(scene), lambda where: where == WIDE, "Leadline is asked again"
        )


def place_one_more(scene: Scene) -> str | None:
    name = f"back-{len(scene.nodes_of('back'))}"
    scene.add(name, MUCH_DATA)
    return scene.wait_bound(name)


def test_pods_wait_for_leadline_when_the_extender_is_not_ignorable(scene: Scene) -> None:
    scene.controller.stop()
    with scene.scheduler("--no-ignorable"):
        scene.add("patient", MUCH_DATA)
        scene.wait_note("patient", "FailedScheduling", "connection refused")
        assert scene.nodes_of("patient") == {"patient": None}
        scene.controller.start()
        assert scene.wait_bound("patient") == WIDE


def test_pods_that_were_bound_during_a_restart_are_counted(scene: Scene) -> None:
    """The controller's memory holds nothing that it could not read again."""
    with scene.scheduler("--no-ignorable"):
        scene.add("first", {BANDWIDTH: "600"})
        assert scene.wait_bound("first") == WIDE
        scene.controller.stop()
        scene.controller.start()
        scene.add("second", {BANDWIDTH: "600"})
        scene.wait_note("second", "FailedScheduling", "needs 600 Mbit/s, has 400")


def test_five_thousand_whole_nodes_are_answered_within_the_units_memory(
    scene: Scene,
) -> None:
    """As the manual promises, under MemoryMax; requests over the size limit are rejected."""
    scene.controller.stop()
    with limited_memory(controller_limit_bytes("MemoryMax")):
        scene.controller.start()
    eventually(lambda: errors_to(scene, small_question()), lambda errors: errors == [""], "ready")
    question = whole_question(5000)
    # A busy machine may exceed kube-scheduler's timeout; then it asks again.
    eventually(lambda: errors_to(scene, question), lambda errors: errors == [""], "it is answered")
    for errors in (errors_to(scene, question, 4), errors_to(scene, of_labels(40_000_000), 2)):
        assert all(not error or "nodeCacheCapable: true" in error for error in errors), errors
    assert scene.controller.pid is not None
    assert peak_bytes(scene.controller.pid) < controller_limit_bytes("MemoryHigh")


def small_question() -> bytes:
    return args(pod_manifest("small"), [*NODES])


def errors_to(scene: Scene, question: bytes, count: int = 1) -> list[str]:
    caller = scene.extending.caller
    assert caller is not None
    address = Address.of(scene.extending.address, caller.context())
    return asyncio.run(all_at_once(address, question, count))


def test_spread_pods_may_be_bound_in_any_order(scene: Scene) -> None:
    """kube-scheduler binds them concurrently, so not in the order of its decisions."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
        "nodeTaintsPolicy": "Honor",
    }
    names = [f"spread-{number}" for number in range(12)]
    with scene.scheduler("--bind", "--no-ignorable"):
        for name in names:
            scene.add(name, labels={"app": "spread"}, topologySpreadConstraints=[spread])
        where = [scene.wait_bound(name) for name in names]
    assert {node: where.count(node) for node in NODES} == dict.fromkeys(NODES, 4)


def test_a_pod_that_kube_scheduler_did_not_filter_is_not_bound(scene: Scene) -> None:
    caller = scene.extending.caller
    assert caller is not None
    scene.add("alone")
    uid = scene.api.get(f"{PODS}/alone")["metadata"]["uid"]
    binding = {"PodName": "alone", "PodNamespace": PLACE, "PodUID": uid, "Node": WIDE}
    with closing(HTTPSConnection(scene.extending.address, context=caller.context())) as connection:
        connection.request("POST", "/bind", json.dumps(binding))
        answer = json.loads(connection.getresponse().read())["Error"]
    assert "no filter or prioritize call named this pod" in answer
    assert scene.nodes_of("alone") == {"alone": None}
