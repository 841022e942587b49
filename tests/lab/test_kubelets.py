"""Labs whose boards run pods: with real kubelets, containers and pulls over shaped links."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from leadline_controller.framework.quantity import parse_quantity
from leadline_lab import cgroups, network, state
from leadline_lab import lab as labs
from leadline_lab.kubelets import REGISTRY_PORT
from leadline_lab.spec import BoardSpec

from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.kubelets import kubelet_binaries
from tests.lab.inventory import end_stale_labs, namespace_inodes, processes_inside
from tests.lab.lab_images import push_image, random_layer, until_told
from tests.lab.running import PODS, RunningLab, Size, is_ready, running_lab, running_pod
from tests.support.ports import wait_until
from tests.system.daemons import eventually

pytestmark = [pytest.mark.network, pytest.mark.cluster]

BOARDS = (BoardSpec("fast", rate_mbps=100), BoardSpec("slow", rate_mbps=8), BoardSpec("far", 50, 4))
SIZES = {"far": Size(cpu=0.5, memory_mb=256, pods=5)}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningLab]:
    with running_lab(BOARDS, sizes=SIZES) as built:
        yield built


def test_a_pod_answers_over_the_link_of_its_board(running: RunningLab) -> None:
    image = push_image(running.lab, "web", [random_layer(2, seed=1)])
    name = running.create(running_pod("web", image, nodeName="slow"))
    pod = running.wait_running(name)
    # 2 MB at 8 Mbit/s; how much longer it takes depends on what else this machine does.
    assert running.fetch("fast", pod, "/data/1") > 1.8
    assert running.fetch("server", pod, "/data/1") > 1.8


def test_a_pull_takes_as_long_as_the_link_needs(running: RunningLab) -> None:
    shared, own = random_layer(5, seed=2), random_layer(5, seed=3)
    images = {
        "both": push_image(running.lab, "both", [shared, own]),
        "one": push_image(running.lab, "one", [shared]),
    }
    pulled_s = {}
    for board in ("fast", "slow"):
        for kind, image in images.items():
            name = running.create(running_pod(f"{kind}-{board}", image, nodeName=board))
            running.wait_running(name)
            pulled_s[name] = running.pulled_s(name)
    # 10 MB at 8 and at 100 Mbit/s, and then the shared layer is there.
    assert pulled_s["both-slow"] > 9
    assert 0.7 < pulled_s["both-fast"] < pulled_s["both-slow"]
    assert pulled_s["one-slow"] < pulled_s["both-slow"] / 2


def test_a_board_offers_what_its_size_says(running: RunningLab) -> None:
    offers = running.api.get("/api/v1/nodes/far")["status"]["allocatable"]
    assert (offers["cpu"], offers["pods"]) == ("500m", "5")
    assert parse_quantity(offers["memory"]) == pytest.approx(256e6, rel=0.01)
    assert running.api.get("/api/v1/nodes/fast")["status"]["allocatable"]["cpu"] != "500m"


def test_the_controller_places_a_pod_that_then_runs(running: RunningLab) -> None:
    running.start_controller()
    image = push_image(running.lab, "placed")
    selector = {"kubernetes.io/hostname": "far"}
    name = running.create(running_pod("placed", image, cpu="100m", node_selector=selector))
    pod = running.wait_running(name)
    assert pod["spec"]["nodeName"] == "far"
    placements = running.ask("placements")["placements"]
    assert [each["node"] for each in placements] == ["far"], placements
    # Its limits are the kernel's: the board's cgroup has one for the pod.
    uid = pod["metadata"]["uid"]
    assert any(uid in str(each) for each in cgroups.existing(running.lab.spec.name))
    running.api.text("DELETE", f"{PODS}/placed")  # with the grace that every pod has
    running.wait_gone("placed")


def test_what_pods_write_and_hosts_serve_is_seen_from_outside(running: RunningLab) -> None:
    image = push_image(running.lab, "talks", command=until_told("echo hello from $HOSTNAME"))
    running.create(running_pod("talks", image, nodeName="fast", restartPolicy="Never"))
    pod = eventually(
        lambda: running.api.get(f"{PODS}/talks"),
        lambda found: found["status"]["phase"] == "Succeeded",
        "the pod ends",
    )
    assert running.log(pod) == "hello from talks"
    with running.reach("server", REGISTRY_PORT) as port:
        client = HTTPConnection("127.0.0.1", port)
        client.request("GET", "/v2/_catalog")
        assert "talks" in json.load(client.getresponse())["repositories"]
        client.close()


def test_a_pod_is_resized_in_place(running: RunningLab) -> None:
    image = push_image(running.lab, "resized")
    made = running_pod("resized", image, cpu="100m", nodeName="fast")
    made["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "100m"}
    running.wait_running(running.create(made))
    wanted = {"requests": {"cpu": "200m"}, "limits": {"cpu": "200m"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": wanted}]}}
    kind = "application/strategic-merge-patch+json"
    running.api.text("PATCH", f"{PODS}/resized/resize", patch, kind)
    status = eventually(
        lambda: running.api.get(f"{PODS}/resized")["status"]["containerStatuses"][0],
        lambda status: status["resources"].get("limits") == {"cpu": "200m"},
        "the new limit is in force",
        60,
    )
    assert status["restartCount"] == 0


def test_the_command_builds_and_ends_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(f'name = "{name}"\nboards = [{{name = "a"}}]\n')
    (tmp_path / "bin").mkdir()
    for program, path in kubelet_binaries().items():
        (tmp_path / "bin" / program).symlink_to(path)

    def leadline_lab(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "leadline_controller.cli", "lab", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with control_plane() as plane:
        given = ("--kubeconfig", plane.kubeconfig, "--kubelet-binaries", tmp_path / "bin")
        said = leadline_lab("up", "--spec", tmp_path / "lab.toml", "--kubelets", *given)
        assert "registry of the boards: 10.77.0.254:5000\n" in said
        nodes = eventually(
            lambda: Api(plane.kubeconfig).get("/api/v1/nodes")["items"],
            lambda found: any(map(is_ready, found)),
            "the board is Ready",
        )
        assert [each["metadata"]["name"] for each in nodes] == ["a"]
        assert nodes[0]["metadata"]["labels"]["leadline.dev/lab"] == name
        leadline_lab("down", name)
    assert labs.status(name) is None
    assert not list(cgroups.existing(name))


# Where kubelet, containerd and the CNI plugins would leave their files.
USUAL_FOLDERS = (
    *("/etc/cni", "/opt/cni", "/opt/containerd", "/run/containerd", "/usr/libexec/kubernetes"),
    *("/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/containers"),
    "/var/log/pods",
)
KILLED = """
import sys, time
from pathlib import Path
from leadline_lab.spec import BoardSpec
from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.kubelets import kubelet_binaries
from tests.lab.lab_images import push_image
from tests.lab.running import running_lab, running_pod

with running_lab([BoardSpec("n1"), BoardSpec("n2")]) as running:
    image = push_image(running.lab, "web")
    for board in ("n1", "n2"):
        running.create(running_pod(f"web-{board}", image, nodeName=board))
    for board in ("n1", "n2"):
        running.wait_running(f"web-{board}")
    print(running.lab.spec.name, flush=True)
    time.sleep(600)
"""


def test_nothing_is_left_of_a_lab_whose_test_was_killed() -> None:
    def mounts() -> str:
        return Path("/proc/self/mountinfo").read_text()

    def sysctls() -> list[str]:
        # kubelet would set both.
        return [
            Path("/proc/sys", each).read_text() for each in ("vm/overcommit_memory", "kernel/panic")
        ]

    def command_lines() -> str:
        return subprocess.check_output(["ps", "-eo", "args"], text=True)

    def folders() -> list[str]:
        return [each for each in USUAL_FOLDERS if Path(each).exists()]

    before, folders_before = sysctls(), folders()
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        name = run.stdout.readline().strip()
        inodes = namespace_inodes(network.namespaces(name))
        pods = {
            int(pid)
            for cgroup in cgroups.existing(name)
            for pid in (cgroup / "cgroup.procs").read_text().split()
        }
        run.kill()
    # A sandbox and a container on both boards, their shims, two daemons each.
    assert len(pods) >= 2 * (2 + 1 + 2)
    assert state.data_directory(name).exists()
    assert name not in mounts().replace(f"/run/netns/leadline-{name}", "")
    assert sysctls() == before
    assert f"leadline-lab/{name}/" in command_lines()
    end_stale_labs()
    wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pods), "pods end")
    # Also those that forward the API, which are outside of the lab's namespaces.
    wait_until(lambda: f"leadline-lab/{name}/" not in command_lines(), "all processes end")
    assert not processes_inside(inodes)
    assert not list(cgroups.existing(name))
    assert not network.namespaces(name)
    assert name not in mounts()
    assert not state.data_directory(name).exists()
    assert not state.directory(name).exists()
    assert folders() == folders_before
