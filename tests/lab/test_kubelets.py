"""Labs whose boards run pods: with real kubelets, containers and pulls over shaped links."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from leadline_controller.framework.quantity import parse_quantity
from leadline_controller.lab import cgroups, network, state
from leadline_controller.lab.spec import BoardSpec

from tests.lab.images import push_image, random_layer
from tests.lab.inventory import end_stale_labs, namespace_inodes, processes_inside
from tests.lab.running import RunningLab, Size, running_lab, running_pod
from tests.support.ports import wait_until

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
    for host in ("fast", "server"):
        # 2 MB at 8 Mbit/s.
        assert 1.8 < running.fetch(host, pod, "/data/1") < 6, host
    assert running.fetch("slow", pod, "/data/1") < 1


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
    # 10 MB at 8 and 100 Mbit/s; then the shared layer is there.
    assert 9 < pulled_s["both-slow"] < 20
    assert 0.7 < pulled_s["both-fast"] < pulled_s["both-slow"] / 3
    assert pulled_s["one-slow"] < 2


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
    assert [each["node"] for each in running.ask("placements")["placements"]] == ["far"]
    # Its limits are the kernel's: the board's cgroup has one for the pod.
    uid = pod["metadata"]["uid"]
    assert any(uid in str(each) for each in cgroups.existing(running.lab.spec.name))


KILLED = """
import sys, time
from pathlib import Path
from leadline_controller.lab.spec import BoardSpec
from tests.lab.images import push_image
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

    before = sysctls()
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
    end_stale_labs()
    wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pods), "pods end")
    assert not processes_inside(inodes)
    assert not list(cgroups.existing(name))
    assert not network.namespaces(name)
    assert name not in mounts()
    assert not state.data_directory(name).exists()
    assert not state.directory(name).exists()
    assert not [each for each in Path("/var/log", "containers").glob("*") if name in str(each)]
