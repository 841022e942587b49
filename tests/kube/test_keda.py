"""KEDA's own operator and adapter, and the HPA controller, scale a Deployment by Leadline's answers
while a real HTTP service is under real load. The real scheduling loop binds the pods to nodes that
KWOK plays."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_controller import wiring
from leadline_controller.api.settings import KedaSettings
from leadline_controller.config import Settings
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.wiring import running, servers

from tests.controller.api.extender_server import files
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.keda import EXAMPLES, Keda, keda, scaled_object
from tests.kube.kwok import kwok
from tests.kube.objects import Object, node
from tests.support.certificates import Authority

pytestmark = [pytest.mark.cluster, pytest.mark.keda, pytest.mark.timeout(400)]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SCALED = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"
TRIGGERS = "/apis/keda.sh/v1alpha1/namespaces/default/triggerauthentications"
SECRETS = "/api/v1/namespaces/default/secrets"
PODS = "/api/v1/namespaces/default/pods"
PING_MS = {"keda-w1": 5.0, "keda-w2": 20.0, "keda-w3": 40.0, "keda-w4": 300.0}
COUNTER = 'requests_total{service="web"}'
TARGET_PER_S = 4
# Section 4.2: ten users for each replica, more by ten in each step, then fewer by ten. An extra
# step asks for more than can be placed.
STEPS = ((3, 1), (7, 2), (11, 3), (15, 4), (11, 3), (7, 2), (3, 1))
CONTROLLERS = (
    *("deployment-controller", "replicaset-controller"),
    *("horizontal-pod-autoscaler-controller", "garbage-collector-controller"),
)
PATIENCE_S = 120.0


class Service:
    """An HTTP service that counts its requests, as an ingress does, and a load on it."""

    def __init__(self) -> None:
        self.per_s = 0.0
        self._count = 0
        self._stop = threading.Event()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Yield the address of the page with the counter."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    text = f"# TYPE requests_total counter\n{COUNTER} {service._count}\n"
                else:
                    service._count += 1
                    text = "hello"
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        port = server.server_address[1]
        threads = [
            threading.Thread(target=server.serve_forever, daemon=True),
            threading.Thread(target=self._load, args=(port,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            self._stop.set()
            server.shutdown()
            server.server_close()
            threads[1].join()

    def _load(self, port: int) -> None:
        client = HTTPConnection("127.0.0.1", port, timeout=10)
        due_s = time.monotonic()
        while not self._stop.is_set():
            due_s = max(due_s + 1 / max(self.per_s, 1.0), time.monotonic() - 1.0)
            if self._stop.wait(due_s - time.monotonic()):
                break
            if self.per_s > 0:
                client.request("GET", "/")
                client.getresponse().read()
        client.close()


class Scene:
    """The Deployment `name` as the API server shows it; its pods have the label app of that name.
    why: what is known when something does not come true."""

    def __init__(self, api: Api, service: Service, name: str, why: Callable[[], str]) -> None:
        self.api = api
        self.service = service
        self.name = name
        self.why = why

    def replicas(self) -> int:
        return int(self.api.get(f"{DEPLOYMENTS}/{self.name}")["spec"]["replicas"])

    def pods(self) -> list[Object]:
        return list(self.api.get(f"{PODS}?labelSelector=app%3D{self.name}")["items"])

    def nodes(self) -> Counter[str]:
        """The replicas on each node, without those that are being deleted."""
        kept = [each for each in self.pods() if "deletionTimestamp" not in each["metadata"]]
        return Counter(each["spec"].get("nodeName", "pending") for each in kept)

    async def scaled_to(self, replicas: int) -> Counter[str]:
        """Wait until so many replicas run; returns the nodes that they are on."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            nodes = await asyncio.to_thread(self.nodes)
            asked = await asyncio.to_thread(self.replicas)
            if asked == replicas == nodes.total() and not nodes["pending"]:
                return nodes
            if time.monotonic() > deadline_s:
                raise AssertionError(
                    f"expected {replicas} replicas, the Deployment has {asked}, its pods are on "
                    f"{dict(nodes)}: {self.why()}"
                )
            await asyncio.sleep(0.3)


def deployment(name: str, response_time_ms: int, profile_ms: int) -> Object:
    annotations = {
        "leadline.dev/user-node": "keda-gate",
        "leadline.dev/response-time-ms": str(response_time_ms),
        "leadline.dev/profile-ms": json.dumps(dict.fromkeys(PING_MS, profile_ms)),
    }
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {"schedulerName": "leadline", "containers": [container]},
            },
        },
    }


@asynccontextmanager
async def controller(plane: ControlPlane, keda_settings: KedaSettings) -> AsyncIterator[str]:
    """The scheduling loop and the scaler in this event loop, with the round trips of PING_MS, as
    agents would have measured them. Yields the scaler's address."""
    settings = Settings(
        strategy="response-time", seed=1, warm_up_s=0.0, keda=keda_settings, deletion_cost=True
    )
    async with KubeCluster.connect(plane.kubeconfig) as cluster:
        parts, how = wiring.Controller(settings, cluster), wiring.scheduling_profile(settings)
        told = TelemetryBuilder()
        told.state = parts.telemetry
        for name in ("keda-gate", *PING_MS):
            told.birth(name)
        for name, rtt_ms in PING_MS.items():
            told.rtt("keda-gate", name, rtt_ms, parts.clock.now_s())
        async with (
            running(parts.scheduler(how).run()),
            parts.ordering_replicas(),
            servers.keda(parts, how) as address,
        ):
            assert address is not None
            yield address


@pytest.fixture(scope="module")
def scaling(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    """KEDA, the HPA controller, and nodes with room for two replicas each."""
    sync = ("--horizontal-pod-autoscaler-sync-period=2s",)
    with (
        kube_controller_manager(plane, CONTROLLERS, options=sync),
        kwok(plane) as nodes,
        keda(plane, tmp_path_factory.mktemp("keda")) as running_keda,
    ):
        made = [node(name, cpu="2") for name in PING_MS]
        nodes.add_nodes([*made, node("keda-gate", cpu="2", unschedulable=True)])
        yield running_keda
        nodes.remove_nodes([*PING_MS, "keda-gate"])


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_keda_accepts_the_docs_examples(api: Api, scaling: Keda, file: Path) -> None:
    paths = {"ScaledObject": SCALED, "TriggerAuthentication": TRIGGERS}
    for manifest in yaml.safe_load_all(file.read_text()):
        api.create(f"{paths[manifest['kind']]}?dryRun=All&fieldValidation=Strict", manifest)


def test_the_papers_steps(plane: ControlPlane, api: Api, scaling: Keda, tmp_path: Path) -> None:
    metadata = {"target": str(TARGET_PER_S)}
    made = deployment("web", response_time_ms=100, profile_ms=10)
    asyncio.run(scaled(plane, api, scaling, tmp_path, made, metadata, follow_steps))


def test_the_replicas_that_keep_the_response_time(
    plane: ControlPlane, api: Api, scaling: Keda, tmp_path: Path
) -> None:
    """Of 100 ms of work each, one replica on w1 takes 5 + 100/(1 - 0.3) = 148 ms at 3 requests a
    second, and 505 ms at 8; two take 5 + 167 and 20 + 167 ms."""
    metadata = {"metric": "response-time"}
    made = deployment("slow", response_time_ms=250, profile_ms=100)
    asyncio.run(scaled(plane, api, scaling, tmp_path, made, metadata, follow_response_time))


async def scaled(
    plane: ControlPlane,
    api: Api,
    scaling: Keda,
    folder: Path,
    made: Object,
    more: Mapping[str, str],
    follow: Callable[[Scene], Awaitable[None]],
) -> None:
    """Have KEDA scale the Deployment by Leadline's answers over TLS while `follow` looks on. more:
    of the trigger's metadata."""
    name = made["metadata"]["name"]
    authority = Authority(folder / "pki")
    server, caller = authority.server("127.0.0.1"), authority.client("keda")
    service = Service()
    with service.serving() as url:
        told = KedaSettings("127.0.0.1:0", files(server), (url,), window_s=6.0)
        async with controller(plane, told) as address:
            scene = Scene(api, service, name, lambda: said(scaling))
            metadata = {"pods": f"app={name}", "requests": COUNTER, **more}
            secret = {
                "caCert": caller.ca_file.read_bytes(),
                "tlsClientCert": caller.cert_file.read_bytes(),
                "tlsClientKey": caller.key_file.read_bytes(),
            }
            references = [{"parameter": key, "name": "keda", "key": key} for key in secret]
            asked = scaled_object(name, name, address, metadata, most=20, authentication="keda")
            objects: tuple[tuple[str, Object], ...] = (
                (
                    SECRETS,
                    {
                        "metadata": {"name": "keda"},
                        "data": {
                            key: base64.b64encode(value).decode() for key, value in secret.items()
                        },
                    },
                ),
                (
                    TRIGGERS,
                    {
                        "apiVersion": "keda.sh/v1alpha1",
                        "kind": "TriggerAuthentication",
                        "metadata": {"name": "keda"},
                        "spec": {"secretTargetRef": references},
                    },
                ),
                (DEPLOYMENTS, made),
                (SCALED, asked),
            )
            try:
                for path, body in objects:
                    await asyncio.to_thread(api.create, path, body)
                await follow(scene)
            finally:
                service.per_s = 0
                for path, body in reversed(objects):
                    await asyncio.to_thread(removed, api, f"{path}/{body['metadata']['name']}")
                for each in await asyncio.to_thread(scene.pods):
                    await asyncio.to_thread(removed, api, f"{PODS}/{each['metadata']['name']}")


async def follow_steps(scene: Scene) -> None:
    for per_s, replicas in STEPS:
        scene.service.per_s = per_s
        start_s = time.monotonic()
        nodes = await scene.scaled_to(replicas)
        print(f"{per_s} requests/s: {dict(nodes)} after {time.monotonic() - start_s:.1f} s")
        # Upwards the algorithm's order; downwards what it leaves when the newest is removed.
        order = ["keda-w1", "keda-w2", "keda-w3", "keda-w1"]
        assert nodes == Counter(order[:replicas])
    scene.service.per_s = 32
    nodes = await scene.scaled_to(6)  # 8 are needed, and 6 can be placed
    assert nodes == {"keda-w1": 2, "keda-w2": 2, "keda-w3": 2}
    await asyncio.sleep(5)
    assert await asyncio.to_thread(scene.replicas) == 6


async def follow_response_time(scene: Scene) -> None:
    for per_s, replicas in ((3, 1), (8, 2), (3, 1)):
        scene.service.per_s = per_s
        nodes = await scene.scaled_to(replicas)
        print(f"{per_s} requests/s: {dict(nodes)}")
        assert set(nodes) == set(["keda-w1", "keda-w2"][:replicas])
        if replicas == 1 and per_s == 3:
            await asyncio.sleep(8)  # the rate is over six seconds
            assert await asyncio.to_thread(scene.replicas) == 1


def said(scaling: Keda) -> str:
    lines = (log.read_text(errors="replace").splitlines() for log in scaling.logs)
    return " | ".join(line[:400] for each in lines for line in each[-6:])


def removed(api: Api, path: str) -> None:
    try:
        if "scaledobjects" in path:
            api.patch(path, {"metadata": {"finalizers": None}})
        api.delete(path)
    except ApiError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
