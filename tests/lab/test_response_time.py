"""The response-time paper's steps 1 to 7 on real kubelets, with KEDA and the HPA controller.

Response times are measured where the requests come in, with Leadline and with kube-scheduler."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.cluster.service_profiles import write_profiles
from leadline_lab.image_builder import layer
from leadline_lab.spec import SERVER, BoardSpec

from tests.kube.api import ApiError
from tests.kube.controllers import kube_controller_manager
from tests.kube.keda import Keda, keda, scaled_object
from tests.kube.objects import Object, deployment, node
from tests.kube.scaling import CONTROLLERS, DEPLOYMENTS, PODS, SCALED
from tests.kube.scheduler import kube_scheduler
from tests.lab.gateway import COUNTER
from tests.lab.lab_images import HTTP_PORT, push_image
from tests.lab.running import RunningLab, Size, is_ready, running_lab, running_pod
from tests.support.ports import wait_until
from tests.system.daemons import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.network, pytest.mark.keda]

# As docs/experiments/response-time.md has them: the paper does not say.
PING_MS = {"w1": 50.0, "w2": 100.0, "w3": 150.0, "w4": 300.0}
THRESHOLD_MS = 250
SIZES = {name: Size(cpu=1, memory_mb=2000) for name in PING_MS} | {"w4": Size(2, 4000)}
TARGET_PER_S = 4
STEPS = ((3, 1), (7, 2), (11, 3), (15, 4), (11, 3), (7, 2), (3, 1))
MEASURE_S = 10.0
WAIT_S = 120.0
METRICS_PORT, KEDA_PORT = 9100, 25507
# A shell that counts: some milliseconds of work on each request.
WORK = b"""#!/bin/busybox sh
echo "Content-Type: text/plain"; echo
i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; echo $i
"""
PATH = "/cgi-bin/work"


@dataclass(frozen=True)
class Step:
    """What was measured in a step. response_ms: of a request on an open connection, mean and
    deviation; per_s: requests that were answered."""

    replicas: int
    nodes: Mapping[str, int]
    scaled_s: float
    response_ms: float
    deviation_ms: float
    per_s: float


class Scene:
    """A lab with a gateway on its server, and a Deployment that KEDA scales."""

    def __init__(self, running: RunningLab, scaling: Keda, image: str, folder: Path) -> None:
        self.running, self.scaling, self.image = running, scaling, image
        self.orders, self.measured = folder / "orders.json", folder / "measured.txt"
        self.per_s = 0.0
        self.order()
        command = [sys.executable, "-m", "tests.lab.gateway", str(self.orders), str(self.measured)]
        command += [str(METRICS_PORT), str(HTTP_PORT), PATH]
        running.lab.start(SERVER, "gateway", command)

    def pods(self) -> list[Object]:
        found = self.running.api.get(f"{PODS}?labelSelector=app%3Dweb")["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def order(self) -> list[Object]:
        """Tell the gateway the rate and the pods that are ready; returns these."""
        ready = [each for each in self.pods() if is_ready(each)]
        backends = [(each["status"]["podIP"], each["spec"]["nodeName"]) for each in ready]
        half = self.orders.with_suffix(".new")
        half.write_text(json.dumps({"per_s": self.per_s, "backends": sorted(backends)}))
        half.replace(self.orders)
        return ready

    def step(self, per_s: float, replicas: int) -> Step:
        """Load, wait until the replicas are as many, and measure."""
        self.per_s, start_s = per_s, time.monotonic()

        def placed() -> Counter[str]:
            ready = self.order()
            whole = len(ready) == len(self.pods())
            return Counter(each["spec"]["nodeName"] for each in ready if whole)

        nodes = eventually(
            placed, lambda found: found.total() == replicas, self.what(replicas), WAIT_S, 0.5
        )
        scaled_s, began_s = time.monotonic() - start_s, time.time()
        time.sleep(MEASURE_S)
        lines = [line.split() for line in self.measured.read_text().splitlines()]
        mine = [line for line in lines if len(line) == 5 and float(line[0]) >= began_s]
        answered_ms = [float(line[3]) for line in mine if line[4] == "1"]
        mean_ms, deviation_ms = statistics.fmean(answered_ms), statistics.pstdev(answered_ms)
        rate = len(answered_ms) / MEASURE_S
        return Step(replicas, dict(nodes), scaled_s, mean_ms, deviation_ms, rate)

    def what(self, replicas: int) -> str:
        return f"{replicas} replicas; KEDA's logs are {self.scaling.logs}"

    def steps(self, scheduler: str, annotations: Mapping[str, str], address: str) -> list[Step]:
        """The paper's seven steps with the pods of this scheduler."""
        self.deploy(scheduler, annotations)
        metadata = {"pods": "app=web", "requests": COUNTER, "target": str(TARGET_PER_S)}
        scaled = scaled_object("web", "web", address, metadata, most=4)
        self.running.api.create(SCALED, scaled)
        try:
            return [self.step(per_s, replicas) for per_s, replicas in STEPS]
        finally:
            self.per_s = 0.0
            for path in (f"{SCALED}/web", f"{DEPLOYMENTS}/web"):
                with suppress(ApiError):
                    self.running.api.text("DELETE", path, {"propagationPolicy": "Background"})
            eventually(self.order, lambda found: not found, "no replica is left", WAIT_S)

    def deploy(self, scheduler: str, annotations: Mapping[str, str]) -> None:
        pod = running_pod("web", self.image, cpu="300m", scheduler=scheduler)
        made = deployment("web", pod["spec"], annotations=annotations)
        self.running.api.create(DEPLOYMENTS, made)

    def profile(self, file: Path) -> dict[str, Any]:
        """Have `leadline profile` measure a replica on each board."""
        names = []
        for board in PING_MS:
            pod = running_pod(f"profiled-{board}", self.image, cpu="100m", nodeName=board)
            pod["metadata"]["labels"] = {"app": "web"}
            names.append(self.running.create(pod))
        for name in names:
            self.running.wait_running(name, WAIT_S)
        asked = ("--pods", "app=web", "--port", str(HTTP_PORT), "--path", PATH, "--requests", "5")
        (service,) = self.running.ask("profile", *asked, "--save", str(file))["services"]
        for name in names:
            self.running.api.delete(f"{PODS}/{name}")
        eventually(self.pods, lambda found: not found, "no pod is left", WAIT_S)
        boards: dict[str, Any] = service["boards"]
        return boards


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("steps")
    boards = [BoardSpec(name, 100, delay_ms) for name, delay_ms in PING_MS.items()]
    sync = ("--horizontal-pod-autoscaler-sync-period=2s",)
    with (
        running_lab(boards, sizes=SIZES) as running,
        kube_controller_manager(running.plane, CONTROLLERS, options=sync),
        keda(running.plane, folder) as scaling,
    ):
        # The master, from which the paper pings: an agent runs there, and no kubelet.
        master = {"node-role.kubernetes.io/control-plane": ""}
        address = running.lab.address()
        running.api.add_node(
            node(SERVER, labels=master, unschedulable=True, ready=False, address=address)
        )
        image = push_image(running.lab, "web", [layer({"cgi-bin/work": WORK})])
        yield Scene(running, scaling, image, folder)


@pytest.mark.timeout(1200)
def test_the_papers_steps_on_real_kubelets(scene: Scene, tmp_path: Path) -> None:
    running, profiles = scene.running, scene.running.lab.directory / "profiles.json"
    write_profiles(profiles, [])
    running.start_controller(
        f'[strategy]\nname = "response-time"\nprofiles = "{profiles}"\n'
        f'[keda]\naddress = "127.0.0.1:{KEDA_PORT}"\nwindow_s = 6\n'
        f'requests_urls = ["http://127.0.0.1:{METRICS_PORT}/metrics"]\n',
        "deletion_cost = true\n",
    )
    wait_until(lambda: pinged(running) == set(PING_MS), "the master pings every board", WAIT_S)
    boards = scene.profile(profiles)
    print(json.dumps(boards))
    for name, ping_ms in PING_MS.items():
        assert ping_ms * 0.9 < boards[name]["rtt_ms"] < ping_ms * 1.5 + 20
    time.sleep(11)  # until the controller has read the file
    with running.reach(SERVER, KEDA_PORT, "127.0.0.1") as port:
        wanted = {"leadline.dev/response-time-ms": str(THRESHOLD_MS)}
        ours = scene.steps("leadline", wanted, f"127.0.0.1:{port}")
        show("leadline", ours)
        with kube_scheduler(running.plane):
            default = scene.steps("default-scheduler", {}, f"127.0.0.1:{port}")
        show("kube-scheduler", default)
    for up, down in ((0, 6), (1, 5), (2, 4)):
        assert ours[up].nodes == ours[down].nodes, "the newest is the first that goes"
    assert [set(each.nodes) for each in ours[:4]] == [
        *({"w1"}, {"w1", "w2"}, {"w1", "w2", "w3"}, {"w1", "w2", "w3"})
    ]
    assert ours[0].response_ms < default[0].response_ms


def pinged(running: RunningLab) -> set[str]:
    """The boards that the master has pinged."""
    links = running.ask("matrix")["links"]
    known = [{each["a"], each["b"]} for each in links if each.get("rtt_source") == "measured"]
    return {name for pair in known if SERVER in pair for name in pair - {SERVER}}


def show(scheduler: str, steps: list[Step]) -> None:
    for number, each in enumerate(steps, start=1):
        print(
            f"{scheduler} step {number}: {each.replicas} replicas on {each.nodes} after "
            f"{each.scaled_s:.1f} s, {each.response_ms:.1f} ms +- {each.deviation_ms:.1f}, "
            f"{each.per_s:.1f} requests/s"
        )
