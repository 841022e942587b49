"""A Deployment that KEDA or a test scales, the load on its service, and a controller."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from leadline_controller import wiring
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.serve.settings import GrpcSettings, KedaSettings
from leadline_controller.settings import Settings

from tests.controller.telemetry.telemetry_builder import TelemetryBuilder
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import Object, deployment

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


SCALED = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"


PODS = "/api/v1/namespaces/default/pods"


PING_MS = {"keda-w1": 5.0, "keda-w2": 20.0, "keda-w3": 40.0, "keda-w4": 300.0}


COUNTER = 'requests_total{service="web"}'


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


def timed_service(name: str, response_time_ms: int, profile_ms: int) -> Object:
    annotations = {
        "leadline.dev/user-node": "keda-gate",
        "leadline.dev/response-time-ms": str(response_time_ms),
        "leadline.dev/profile-ms": json.dumps(dict.fromkeys(PING_MS, profile_ms)),
    }
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "leadline", "containers": [container]}
    return deployment(name, spec, annotations=annotations)


@asynccontextmanager
async def controller(
    plane: ControlPlane,
    keda_settings: KedaSettings,
    strategy: str = "response-time",
    *,
    deletion_cost: bool = True,
) -> AsyncIterator[str]:
    """The scheduling loop and the scaler in this event loop, with the round trips of PING_MS, as
    agents would have measured them. Yields the scaler's address."""
    settings = Settings(
        strategy=strategy,
        seed=1,
        warm_up_s=0.0,
        serve=GrpcSettings("127.0.0.1:0"),
        keda=keda_settings,
        deletion_cost=deletion_cost,
    )
    async with KubeCluster.connect(plane.kubeconfig) as cluster:
        parts = wiring.Controller(settings, cluster)
        told = TelemetryBuilder()
        told.state = parts.telemetry
        for name in ("keda-gate", *PING_MS):
            told.birth(name)
        for name, rtt_ms in PING_MS.items():
            told.rtt("keda-gate", name, rtt_ms, parts.clock.now_s())
        async with (
            wiring.running(*parts.placing()),
            wiring.Servers(parts).serving() as addresses,
        ):
            yield addresses["keda"]


def removed(api: Api, path: str) -> None:
    try:
        if "scaledobjects" in path:
            api.patch(path, {"metadata": {"finalizers": None}})
        api.delete(path)
    except ApiError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
