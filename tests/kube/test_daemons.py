"""The stock scheduler and controllers start on the test control plane, work, and stop."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, ControlPlaneError
from tests.kube.controllers import kube_controller_manager
from tests.kube.daemon import Daemon
from tests.kube.objects import Object, namespace, node, pod
from tests.kube.scheduler import extender, kube_scheduler
from tests.kube.test_control_plane import eventually
from tests.kube.volumes import NO_PROVISIONER, claim, mounting, storage_class, volume
from tests.support.certificates import Authority, Certificate

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def place(plane: ControlPlane) -> Iterator[str]:
    """A new namespace and two nodes for its pods."""
    api = Api(plane.kubeconfig)
    name = "daemons"
    # It stays: no controller would finish the deletion of a namespace.
    api.create("/api/v1/namespaces", namespace(name))
    for index in (1, 2):
        api.add_node(node(f"{name}-n{index}", labels={"for": name}))
    yield name
    for index in (1, 2):
        api.delete(f"/api/v1/nodes/{name}-n{index}")


def stock_pod(name: str, **spec: Any) -> Object:
    return pod(name, scheduler="default-scheduler", node_selector={"for": "daemons"}, **spec)


def node_of(api: Api, place: str, name: str) -> str | None:
    found: str | None = api.get(f"{pods(place)}/{name}")["spec"].get("nodeName")
    return found


def pods(place: str) -> str:
    return f"/api/v1/namespaces/{place}/pods"


def test_the_stock_scheduler_binds_a_pod(plane: ControlPlane, api: Api, place: str) -> None:
    api.create(pods(place), stock_pod("p1", cpu="500m"))
    with kube_scheduler(plane, qps=1000, burst=1000) as running:
        assert eventually(lambda: node_of(api, place, "p1") is not None)
        assert process_name(running) == "controlplane"
    assert not Path(f"/proc/{running.pid}").exists()
    api.delete(f"{pods(place)}/p1")


def process_name(running: Daemon) -> str:
    return Path(f"/proc/{running.pid}/comm").read_text().strip()


def test_an_invalid_configuration_is_reported(plane: ControlPlane) -> None:
    with (
        pytest.raises(ControlPlaneError, match=r"kube-scheduler did not start.*percentageOfNodes"),
        kube_scheduler(plane, {"percentageOfNodesToScore": 1000}),
    ):
        pass


@pytest.mark.parametrize("tls", [False, True])
def test_the_stock_scheduler_calls_an_extender(
    plane: ControlPlane, api: Api, place: str, tmp_path: Path, tls: bool
) -> None:
    certificate = Authority(tmp_path).server("127.0.0.1") if tls else None
    asked: list[str] = []

    def answer(path: str, body: Any) -> Any:
        asked.append(path)
        if path == "/filter":
            return {"NodeNames": [f"{place}-n2"], "FailedNodes": {f"{place}-n1": "not today"}}
        return [{"Host": name, "Score": 1} for name in body["NodeNames"]]

    authority = certificate.ca_file if certificate else None
    with (
        serving(answer, certificate) as url,
        kube_scheduler(plane, extenders=[extender(url, authority=authority)]),
    ):
        api.create(pods(place), stock_pod("p2"))
        assert eventually(lambda: node_of(api, place, "p2") == f"{place}-n2")
    assert "/filter" in asked
    api.delete(f"{pods(place)}/p2")


@contextmanager
def serving(answer: Callable[[str, Any], Any], certificate: Certificate | None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(certificate.cert_file, certificate.key_file)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever).start()
        try:
            scheme = "https" if certificate else "http"
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_a_claim_with_wait_for_first_consumer_is_bound(
    plane: ControlPlane, api: Api, place: str
) -> None:
    """The scheduler chooses the volume, the controller binds it, and then the pod is bound."""
    claims = f"/api/v1/namespaces/{place}/persistentvolumeclaims"
    there = volume("daemons-v1", "daemons-local", node_name=f"{place}-n2")
    api.create(
        "/apis/storage.k8s.io/v1/storageclasses", storage_class("daemons-local", NO_PROVISIONER)
    )
    api.create("/api/v1/persistentvolumes", there)
    api.create(claims, claim("c1", "daemons-local"))
    asking = mounting("c1", "p3", scheduler="default-scheduler", node_selector={"for": place})
    controllers = ["persistentvolume-binder-controller"]
    with kube_controller_manager(plane, controllers), kube_scheduler(plane):
        api.create(pods(place), asking)
        assert eventually(lambda: node_of(api, place, "p3") == f"{place}-n2")
    assert api.get(f"{claims}/c1")["spec"]["volumeName"] == "daemons-v1"
    for path in (f"{pods(place)}/p3", f"{claims}/c1", "/api/v1/persistentvolumes/daemons-v1"):
        api.delete(path)
    api.delete("/apis/storage.k8s.io/v1/storageclasses/daemons-local")
