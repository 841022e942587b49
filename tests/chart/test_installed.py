"""The chart on real kubelets: installed beside a broker, upgraded to one of its own, removed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from leadline_lab.kubelets import API_PORT, registry_address, registry_connection
from leadline_lab.spec import BoardSpec

from tests.chart import image_archives
from tests.chart.helm import RELEASE, helm, values_file
from tests.kube.api import Api, ApiError, authority_of
from tests.kube.controllers import kube_controller_manager
from tests.kube.daemon import toolchain
from tests.kube.gobuild import built
from tests.kube.metrics_server import KUBELET
from tests.kube.objects import Object
from tests.kube.scheduler import kube_scheduler
from tests.lab.lab_images import push_image
from tests.lab.running import BROKER_PORT, CLUSTER, RunningLab, is_ready, running_lab, running_pod
from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port, listens, wait_until
from tests.system.daemons import eventually, leadline

pytestmark = [pytest.mark.chart, pytest.mark.timeout(1800)]

SYSTEM = "/api/v1/namespaces/kube-system"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leadline-controller"
API_HOST, BROKER_HOST = "kubernetes.default.svc", "leadline-broker.kube-system.svc"
CONTROLLERS = (
    *("statefulset-controller", "deployment-controller", "replicaset-controller"),
    *("disruption-controller", "root-ca-certificate-publisher-controller"),
    *("garbage-collector-controller", "daemonset-controller"),
)
WAIT_S = 300.0
KUBELET_PORT = 10250


@dataclass
class Cluster:
    """A lab with kubelets, and the values of the installed chart. client: a certificate for the
    command `leadline`."""

    running: RunningLab
    home: Path
    values: dict[str, Any]
    client: Certificate

    def helm(self, command: str, *, wait: bool = True) -> None:
        """Install or upgrade with the values, and wait until all is ready, if that is wanted."""
        login = f"--kubeconfig={self.running.plane.kubeconfig}"
        given = values_file(self.home, self.values)
        waiting = ("--wait", "--timeout=8m") if wait else ()
        helm(command, *RELEASE, given, login, *waiting, home=self.home)

    def pod(self, name: str) -> Object:
        """A pod whose name begins so."""
        pods = self.running.api.get(f"{SYSTEM}/pods")["items"]
        (found,) = (each for each in pods if each["metadata"]["name"].startswith(name))
        return dict(found)

    def holder(self) -> str:
        """Who holds the Lease."""
        return str(self.running.api.get(LEASE)["spec"].get("holderIdentity", ""))

    def placed(self, name: str, image: str) -> Object:
        """Create a pod for Leadline, wait until it runs, and return it."""
        self.running.create(running_pod(name, image, cpu="10m"))
        return self.running.wait_running(name, WAIT_S)


@pytest.fixture(scope="module")
def cluster(
    archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        running = stack.enter_context(
            running_lab((BoardSpec("n1"), BoardSpec("n2")), kubelet=KUBELET)
        )
        root_ca = tmp_path_factory.mktemp("ca") / "ca.crt"
        root_ca.write_text(authority_of(running.plane.kubeconfig))
        flags = [f"--root-ca-file={root_ca}"]
        stack.enter_context(kube_controller_manager(running.plane, CONTROLLERS, options=flags))
        stack.enter_context(kube_scheduler(running.plane))
        registry = registry_address(running.lab)
        with closing(registry_connection(running.lab)) as connection:
            for name, file in archives.items():
                with image_archives.opened(file) as archive:
                    image_archives.push(connection, name, "test", archive)
        values = {
            "image": {"repository": f"{registry}/leadline-controller", "tag": "test"},
            "settings": {
                "cluster": CLUSTER,
                "warm_up_s": 2,
                "broker": {
                    "host": running.lab.address(),
                    "port": BROKER_PORT,
                    "plaintext": True,
                },
            },
            # The lab has no service network and no DNS.
            "apiServer": {"host": API_HOST, "port": API_PORT},
            "hostAliases": [{"ip": running.lab.address(), "hostnames": [API_HOST]}],
        }
        authority = Authority(tmp_path_factory.mktemp("grpc"))
        create_secret(running.api, "leadline-grpc", authority.server("127.0.0.1"))
        values["certificates"] = {"grpc": "leadline-grpc"}
        cluster = Cluster(
            running, tmp_path_factory.mktemp("helm"), values, authority.client("alice")
        )
        cluster.helm("install")
        yield cluster


def create_secret(api: Api, name: str, pair: Certificate) -> None:
    files = {"ca.crt": pair.ca_file, "tls.crt": pair.cert_file, "tls.key": pair.key_file}
    data = {key: file.read_text() for key, file in files.items()}
    api.create(f"{SYSTEM}/secrets", {"metadata": {"name": name}, "stringData": data})


def test_the_installed_controller_leads_and_places_pods(cluster: Cluster) -> None:
    pod = cluster.pod("leadline-controller-0")
    assert is_ready(pod)
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    eventually(
        cluster.holder,
        lambda holder: holder.startswith("leadline-controller-0_"),
        "the pod holds the Lease",
        WAIT_S,
    )
    placed = cluster.placed("first", push_image(cluster.running.lab, "first"))
    assert placed["spec"]["nodeName"] in ("n1", "n2")
    again = cluster.pod("leadline-controller-0")
    assert again["status"]["containerStatuses"][0]["restartCount"] == 0
    said = cluster.running.log(again)
    # Its rights are enough, and so are the folders that it may write to.
    assert not [line for line in said.splitlines() if re.search("orbidden|Read-only|Trace", line)]


def test_the_command_asks_through_a_port_that_kubectl_forwards(cluster: Cluster) -> None:
    port, own, running = free_port(), cluster.client, cluster.running
    forward = [
        *(str(built(toolchain(os.environ), os.environ)), "kubectl", "port-forward"),
        f"--kubeconfig={running.plane.kubeconfig}",
        *("--namespace=kube-system", "pod/leadline-controller-0", f"{port}:25505"),
    ]
    there = ("--address", f"127.0.0.1:{port}")
    shown = ("--ca", own.ca_file, "--cert", own.cert_file, "--key", own.key_file)
    node = cluster.pod("leadline-controller-0")["spec"]["nodeName"]
    with running.reach(node, KUBELET_PORT) as kubelet, ExitStack() as stack:

        def forwarded() -> subprocess.CompletedProcess[str]:
            # The API server is outside of the lab. The kubelet soon writes its own address again.
            status = {
                "addresses": [{"type": "Hostname", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
            }
            running.api.patch(f"/api/v1/nodes/{node}/status", {"status": status})
            process = stack.enter_context(subprocess.Popen(forward))
            stack.callback(process.kill)  # it outlives SIGTERM
            wait_until(
                lambda: listens("127.0.0.1", port) or process.poll() is not None, "kubectl began"
            )
            return leadline("nodes", *there, *map(str, shown))

        answer = eventually(
            forwarded,
            lambda answer: answer.returncode == 0,
            "the controller answers one with a certificate",
            WAIT_S,
        )
        assert "n1" in answer.stdout
        refused = leadline("nodes", *there)
        assert (refused.returncode, "TLS" in refused.stderr) == (3, True)


def test_an_upgrade_brings_a_broker_and_two_replicas(cluster: Cluster, tmp_path: Path) -> None:
    api, values = cluster.running.api, cluster.values
    before = cluster.pod("leadline-controller-0")["metadata"]["uid"]
    authority = Authority(tmp_path)
    create_secret(api, "leadline-broker", authority.server(BROKER_HOST))
    for number in (0, 1):
        # As the role leadline.edge.pki names controllers.
        name = f"leadline-controller:leadline-controller-{number}"
        client = authority.client(f"controller-{number}", common_name=name)
        create_secret(api, f"leadline-broker-{number}", client)
    registry = registry_address(cluster.running.lab)
    values["broker"] = {
        "enabled": True,
        "certificate": "leadline-broker",
        "image": {"repository": f"{registry}/leadline-broker", "tag": "test"},
        "service": {"type": "ClusterIP"},
    }
    del values["settings"]["broker"]
    values["replicas"] = 2
    values["certificates"] = {"broker": ["leadline-broker-0", "leadline-broker-1"]}
    cluster.helm("upgrade")
    # Now the broker has an address, which a service network would have hidden.
    address = cluster.pod("leadline-broker")["status"]["podIP"]
    values["hostAliases"].append({"ip": address, "hostnames": [BROKER_HOST]})
    cluster.helm("upgrade")
    for number in (0, 1):
        assert is_ready(cluster.pod(f"leadline-controller-{number}"))
    assert cluster.pod("leadline-controller-0")["metadata"]["uid"] != before
    users = {f"leadline-controller:leadline-controller-{number}" for number in (0, 1)}

    def said() -> str:
        return cluster.running.log(cluster.pod("leadline-broker"))

    eventually(
        said,
        lambda text: all(f" as {user} " in text for user in users),
        "both replicas are the broker's clients, by their certificates",
        WAIT_S,
    )
    placed = cluster.placed("second", push_image(cluster.running.lab, "second"))
    assert placed["spec"]["nodeName"] in ("n1", "n2")
    budget = api.get(
        "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/leadline-controller"
    )
    assert (budget["status"]["expectedPods"], budget["status"]["disruptionsAllowed"]) == (2, 1)


def test_nothing_of_it_is_left_but_the_lease(cluster: Cluster) -> None:
    api = cluster.running.api
    helm(
        *("uninstall", "leadline", "--namespace=kube-system", "--wait"),
        f"--kubeconfig={cluster.running.plane.kubeconfig}",
        home=cluster.home,
    )
    with pytest.raises(ApiError):
        api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/leadline-controller")
    for kind in ("serviceaccounts", "configmaps"):
        names = {each["metadata"]["name"] for each in api.get(f"{SYSTEM}/{kind}")["items"]}
        assert not {name for name in names if name.startswith("leadline")}
    eventually(
        lambda: [each["metadata"]["name"] for each in api.get(f"{SYSTEM}/pods")["items"]],
        lambda names: not [name for name in names if name.startswith("leadline")],
        "its pods are gone",
        WAIT_S,
    )
    assert api.get(LEASE)["metadata"]["name"] == "leadline-controller"


def test_from_an_install_with_agents_to_the_first_placed_pod(
    cluster: Cluster, tmp_path: Path
) -> None:
    """All in the cluster: broker, controller and agents, which begin without certificates. The
    controller's image is on the nodes already."""
    running, registry = cluster.running, registry_address(cluster.running.lab)
    authority = Authority(tmp_path)
    image = push_image(running.lab, "with-agents")
    signer = Certificate(
        authority.ca_file, authority.ca_file, authority.ca_file.with_suffix(".key")
    )
    create_secret(running.api, "leadline-agents", signer)
    for name, pair in (
        ("leadline-broker-agents", authority.server(BROKER_HOST)),
        ("leadline-controller-agents", authority.client("leadline-controller")),
    ):
        create_secret(running.api, name, pair)
    del cluster.values["hostAliases"][1:]
    cluster.values |= {
        "replicas": 1,
        "certificates": {
            **{"broker": ["leadline-controller-agents"], "agents": "leadline-agents"},
            "grpc": "leadline-grpc",
        },
        "broker": {
            "enabled": True,
            "certificate": "leadline-broker-agents",
            "image": {"repository": f"{registry}/leadline-broker", "tag": "test"},
            "service": {"type": "ClusterIP"},
        },
        "agent": {
            "enabled": True,
            "image": {"repository": f"{registry}/leadline-agent", "tag": "test"},
            "env": [{"name": "LEADLINE_INTERVAL_S", "value": "2"}],
        },
    }
    cluster.values["settings"].pop("broker", None)
    cluster.values["settings"]["grpc"] = {"address": "0.0.0.0:25505"}
    for board in ("n1", "n2"):  # as systemd does on a node
        allow = "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range"
        subprocess.run(running.lab.command(board, ["sh", "-c", allow]), check=True)
    began_s, times_s = time.monotonic(), {}

    def note(what: str) -> None:
        times_s[what] = time.monotonic() - began_s

    cluster.helm("install", wait=False)
    note("helm install")
    # The lab has no DNS, so the broker's address has to be told.
    selected = f"{SYSTEM}/pods?labelSelector=app.kubernetes.io/name=leadline-broker"
    (address,) = eventually(
        lambda: [each["status"].get("podIP") for each in running.api.get(selected)["items"]],
        lambda found: found and all(found),
        "the broker has an address",
        WAIT_S,
    )
    cluster.values["hostAliases"].append({"ip": address, "hostnames": [BROKER_HOST]})
    cluster.helm("upgrade")
    note("all ready")
    controller = cluster.pod("leadline-controller-0")
    own = cluster.client
    files = ("--ca", own.ca_file, "--cert", own.cert_file, "--key", own.key_file)
    where = controller["spec"]["nodeName"], 25505, controller["status"]["podIP"]
    with running.reach(*where) as port:

        def ask(*question: str) -> Any:
            there = ("--address", f"127.0.0.1:{port}")
            answer = leadline(*question, "-o", "json", *there, *map(str, files))
            return json.loads(answer.stdout) if answer.returncode == 0 else answer.stderr

        def online(said: Any) -> set[str]:
            nodes = said["nodes"] if isinstance(said, dict) else ()
            return {each["name"] for each in nodes if each["agent"] == "online"}

        eventually(
            lambda: ask("nodes"),
            lambda said: online(said) == {"n1", "n2"},
            "both agents report",
            WAIT_S,
        )
        note("both agents online")
        placed = cluster.placed("with-agents", image)
        note("first pod runs")
        assert placed["spec"]["nodeName"] in ("n1", "n2")
        (link,) = eventually(
            lambda: ask("matrix")["links"],
            lambda links: links and links[0]["rtt_method"] == "icmp",
            "a round trip is measured",
            WAIT_S,
        )
        note("round trip measured")
        seen = eventually(
            lambda: [set(each["metrics"]) for each in ask("nodes")["nodes"]],
            lambda found: all({"cpu_percent", "packets_sent_per_s"} <= each for each in found),
            "both nodes are measured",
            WAIT_S,
        )
        print(link, seen)  # with -s: what an agent in a pod sees
    print({what: round(after_s, 1) for what, after_s in times_s.items()})
    pods = running.api.get(f"{SYSTEM}/pods")["items"]
    agents = [each for each in pods if each["metadata"]["name"].startswith("leadline-agent")]
    assert {each["spec"]["nodeName"] for each in agents} == {"n1", "n2"}
    for each in agents:
        assert "a certificate until" in running.log(each)
        assert [state["restartCount"] for state in each["status"]["containerStatuses"]] == [0]
