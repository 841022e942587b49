"""The chart on real kubelets: installed beside a broker, upgraded to one of its own, removed."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from leadline_controller.lab.kubelets import API_PORT, registry_address, registry_connection
from leadline_controller.lab.spec import BoardSpec

from tests.chart import images
from tests.chart.helm import RELEASE, helm, values_file
from tests.kube.api import Api, ApiError
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.objects import Object
from tests.kube.scheduler import kube_scheduler
from tests.lab.images import push_image
from tests.lab.running import BROKER_PORT, CLUSTER, RunningLab, is_ready, running_lab, running_pod
from tests.support.certificates import Authority, Certificate
from tests.system.daemons import eventually

pytestmark = [pytest.mark.chart, pytest.mark.timeout(1800)]

SYSTEM = "/api/v1/namespaces/kube-system"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leadline-controller"
API_HOST, BROKER_HOST = "kubernetes.default.svc", "leadline-broker.kube-system.svc"
CONTROLLERS = (
    *("statefulset-controller", "deployment-controller", "replicaset-controller"),
    *("disruption-controller", "root-ca-certificate-publisher-controller"),
    "garbage-collector-controller",
)
WAIT_S = 300.0


@dataclass
class Cluster:
    """A lab with kubelets, and the values of the installed chart."""

    running: RunningLab
    home: Path
    values: dict[str, Any]

    def helm(self, command: str) -> None:
        """Install or upgrade with the values, and wait until all is ready."""
        login = f"--kubeconfig={self.running.plane.kubeconfig}"
        given = values_file(self.home, self.values)
        helm(command, *RELEASE, given, login, "--wait", "--timeout=8m", home=self.home)

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
        running = stack.enter_context(running_lab((BoardSpec("n1"), BoardSpec("n2"))))
        flags = [f"--root-ca-file={authority_of(running.plane, tmp_path_factory.mktemp('ca'))}"]
        stack.enter_context(kube_controller_manager(running.plane, CONTROLLERS, options=flags))
        stack.enter_context(kube_scheduler(running.plane))
        registry = registry_address(running.lab)
        with closing(registry_connection(running.lab)) as connection:
            for name, file in archives.items():
                with images.opened(file) as archive:
                    images.push(connection, name, "test", archive)
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
        cluster = Cluster(running, tmp_path_factory.mktemp("helm"), values)
        cluster.helm("install")
        yield cluster


def authority_of(plane: ControlPlane, folder: Path) -> Path:
    """The file of the API server's authority."""
    (entry,) = yaml.safe_load(plane.kubeconfig.read_text())["clusters"]
    if file := entry["cluster"].get("certificate-authority"):
        return Path(plane.kubeconfig.parent, file)
    (folder / "ca.crt").write_bytes(
        base64.b64decode(entry["cluster"]["certificate-authority-data"])
    )
    return folder / "ca.crt"


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
