"""Pods of agents enroll on a real API server, and the chart's broker lets each speak for its own
node alone."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from leadline_agent import enroll
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_wire import certificates

from tests.kube.account import agents_manifests, applied, wait_allowed
from tests.kube.agent_requests import issuing, request
from tests.kube.api import Api, authority_of
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import node, pod
from tests.support.broker_role import role_broker
from tests.support.certificates import Authority
from tests.support.ports import wait_until

pytestmark = pytest.mark.cluster

SYSTEM = "/api/v1/namespaces/kube-system"
NODES = ("issued-1", "issued-2")


@dataclass
class Pods:
    """Agents' pods, and how each reaches the API server."""

    admin: Api
    plane: ControlPlane
    folder: Path

    def server(self, node: str, account: str = "leadline-agent") -> enroll.ApiServer:
        """The API server, as the pod of this account on a node has it; "": of no pod."""
        spec: dict[str, object] = {"expirationSeconds": 3600}
        if node:
            name = f"{account}-{node}"
            made = pod(name, scheduler="nobody")
            made["metadata"]["namespace"] = "kube-system"
            made["spec"] |= {"serviceAccountName": account, "nodeName": node}
            uid = self.admin.create(f"{SYSTEM}/pods", made)["metadata"]["uid"]
            bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
            spec["boundObjectRef"] = bound
        path = f"{SYSTEM}/serviceaccounts/{account}/token"
        token = self.admin.create(path, {"spec": spec})["status"]["token"]
        folder = self.folder / f"{account}-{node}"
        folder.mkdir()
        (folder / "token").write_text(token)
        (folder / "ca.crt").write_text(authority_of(self.plane.kubeconfig))
        (entry,) = yaml.safe_load(self.plane.kubeconfig.read_text())["clusters"]
        where = urlsplit(entry["cluster"]["server"])
        return enroll.ApiServer(str(where.hostname), where.port or 443, folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def pods(plane: ControlPlane, account: Path, api: Api, tmp_path: Path) -> Iterator[Pods]:
    with applied(api, agents_manifests()):
        signers = {"group": "certificates.k8s.io", "resource": "signers"}
        wait_allowed(Api(account), True, **signers, verb="sign", name="leadline.dev/agent")
        for name in NODES:
            api.add_node(node(name))
        try:
            yield Pods(api, plane, tmp_path)
        finally:
            for each in api.get(f"{SYSTEM}/pods")["items"]:
                api.delete(f"{SYSTEM}/pods/{each['metadata']['name']}")
            for name in NODES:
                api.delete(f"/api/v1/nodes/{name}")
            for each in api.get(enroll.REQUESTS)["items"]:
                api.delete(f"{enroll.REQUESTS}/{each['metadata']['name']}")


@asynccontextmanager
async def running_issuer(account: Path, authority: Authority) -> AsyncIterator[None]:
    async with KubeCluster.connect(account) as cluster:
        issuer = cluster.issue(issuing(authority), SOLE_LEADER, lambda: NODES)
        task = asyncio.create_task(issuer)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled(), task.exception()


async def enrolled(server: enroll.ApiServer, node: str) -> Path:
    """The file that an agent's pod gets. Raises EnrollError."""
    file = server.account / f"{node}.pem"
    await asyncio.to_thread(enroll.enroll, server, node, file)
    return file


async def test_a_pod_gets_a_certificate_for_its_own_node_and_no_other(
    pods: Pods, account: Path, authority: Authority
) -> None:
    pods.admin.create(f"{SYSTEM}/serviceaccounts", {"metadata": {"name": "somebody"}})
    own, somebody = pods.server(NODES[0]), pods.server(NODES[1], "somebody")
    spec = {"request": request(f"/CN={NODES[0]}"), "signerName": enroll.SIGNER}
    refused = [
        (f"expected the subject CN={NODES[0]}", enrolled(own, NODES[1])),
        ("expected the token of a pod", enrolled(pods.server(""), NODES[0])),
        ("only system:serviceaccount:kube-system:leadline-agent", enrolled(somebody, NODES[1])),
        ("expected the usages", asyncio.to_thread(asked, own, {**spec, "usages": ["server auth"]})),
    ]
    with applied(pods.admin, [asks_too("somebody")]):
        async with running_issuer(account, authority):
            file = await enrolled(own, NODES[0])
            certificate = certificates.read(file)
            assert (certificate.common_name, file.stat().st_mode & 0o777) == (NODES[0], 0o600)
            assert certificate.not_after - certificate.not_before == timedelta(days=7)
            for why, asking in refused:
                with pytest.raises(enroll.EnrollError, match=f"^denied: {why}"):
                    await asking
    pods.admin.delete(f"{SYSTEM}/serviceaccounts/somebody")


def asked(server: enroll.ApiServer, spec: dict[str, object]) -> None:
    """Wait for the answer to a request that no agent makes. Raises EnrollError."""
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    made = {**body, "metadata": {"generateName": "odd-"}, "spec": spec}
    name = server.call("POST", enroll.REQUESTS, made)["metadata"]["name"]
    wait = threading.Event().wait
    while not (status := server.call("GET", f"{enroll.REQUESTS}/{name}").get("status")):
        wait(0.1)
    (condition,) = status["conditions"]
    raise enroll.EnrollError(f"{condition['type'].lower()}: {condition['message']}")


def asks_too(account: str) -> dict[str, object]:
    """The right of agents to ask, for another account."""
    reference = next(each for each in agents_manifests() if each["kind"] == "ClusterRoleBinding")
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    return {**reference, "metadata": {"name": f"{account}-asks"}, "subjects": [subject]}


async def test_a_controller_that_starts_later_answers_what_waits(
    pods: Pods, account: Path, authority: Authority
) -> None:
    waiting = asyncio.create_task(enrolled(pods.server(NODES[1]), NODES[1]))
    there = partial(pods.admin.get, enroll.REQUESTS)
    await asyncio.to_thread(wait_until, lambda: bool(there()["items"]), "a request is there")
    async with running_issuer(account, authority):
        assert certificates.read(await waiting).common_name == NODES[1]


async def test_requests_that_are_deleted_while_others_are_signed_are_left_alone(
    pods: Pods, account: Path, authority: Authority
) -> None:
    usages = ["digital signature", "client auth"]
    spec = {
        "request": request(f"/CN={NODES[0]}"),
        "signerName": enroll.SIGNER,
        "usages": usages,
    }
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    server = pods.server(NODES[0])
    for number in range(20):
        made = {**kind, "metadata": {"name": f"many-{number:02}"}, "spec": spec}
        server.call("POST", enroll.REQUESTS, made)

    def delete_from_the_end() -> None:
        first = f"{enroll.REQUESTS}/many-00"
        wait_until(lambda: "certificate" in pods.admin.get(first)["status"], "one is signed")
        for number in reversed(range(5, 20)):
            pods.admin.delete(f"{enroll.REQUESTS}/many-{number:02}")

    async with running_issuer(account, authority):
        await asyncio.to_thread(delete_from_the_end)
        assert certificates.read(await enrolled(server, NODES[0])).common_name == NODES[0]


async def test_one_board_cannot_speak_as_another(
    pods: Pods, account: Path, authority: Authority, tmp_path: Path
) -> None:
    """By the ACL of the role, whose lines are also the chart's: see test_chart_files.py."""
    async with running_issuer(account, authority):
        files = [await enrolled(pods.server(each), each) for each in NODES]
    (tmp_path / "broker").mkdir()
    first, second = (f"leadline/v1/default/{each}/birth" for each in NODES)
    with role_broker(tmp_path / "broker", authority) as broker:

        def client(program: str, cert_file: Path, key_file: Path, *more: str) -> str:
            files = {"--cafile": authority.ca_file, "--cert": cert_file, "--key": key_file}
            given = [str(each) for pair in files.items() for each in pair]
            where = ["-V", "5", "-q", "1", "-h", broker.host, "-p", str(broker.port)]
            command = [program, *where, *given, *more]
            return subprocess.run(command, timeout=60, capture_output=True, text=True).stdout

        for file, topic, text in (
            *((files[0], first, "own"), (files[1], second, "own")),
            *((files[0], second, "forged"), (files[1], first, "forged")),
        ):
            client("mosquitto_pub", file, file, "-r", "-t", topic, "-m", text)
        own = authority.client("leadline-controller")
        listen = ("-C", "2", "-W", "30", "-v", "-t", "leadline/v1/default/+/birth")
        heard = client("mosquitto_sub", own.cert_file, own.key_file, *listen)
    assert set(heard.splitlines()) == {f"{first} own", f"{second} own"}
