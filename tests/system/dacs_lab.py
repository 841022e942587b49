"""DACS' experiments (Section 7 of its paper) with real parts: boards on links shaped to Tables 4
and 5, a real agent, containerd and kubelet on each, a real API server, the controller, the stock
kube-scheduler beside it, and pods that compute FFTs when their users ask for them.

Settings are those of the simulated experiment, docs/experiments/dacs.md; none was chosen by what
comes out here. `make dacs-lab` runs it.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from leadline_controller.framework.model import CPU, MEMORY
from leadline_controller.strategies.nas import PREFERRED_LABEL
from leadline_experiments.dacs import simulation
from leadline_experiments.dacs.methods import ALPHAS, Key
from leadline_experiments.dacs.simulation import (
    ITERATIONS,
    MASTER,
    SCENARIO_1,
    SCENARIO_2,
    USERS,
    WORKERS,
    Outcome,
    Scenario,
    ServedRequest,
)
from leadline_lab import cgroups, network
from leadline_lab.image_builder import layer
from leadline_lab.spec import BoardSpec

from tests.kube.daemon import toolchain
from tests.kube.gobuild import built_module
from tests.kube.objects import Object
from tests.kube.scheduler import kube_scheduler
from tests.lab.inventory import stop_processes
from tests.lab.lab_images import HTTP_PORT, push_image
from tests.lab.running import PODS, RunningLab, Size, is_ready, running_lab, running_pod
from tests.system.daemons import eventually

SCENARIOS = {1: SCENARIO_1, 2: SCENARIO_2}
# The tables are exact stars: a round trip between two boards is the sum of what their links add.
DELAYS_MS = {
    1: {MASTER: 150.0, "n1": 50.0, "n2": 0.0, "n3": 10.0},
    2: {MASTER: 200.0, "n1": 150.0, "n2": 10.0, "n3": 0.0},
}
# What all pods of a cluster may use together, in cores of this machine; agents, kubelets and the
# API server have the rest. A virtual CPU of the paper is its share of that.
CORES = 1.2
POINTS, _TONE = 16384, 37
_PERIOD_US = 50_000
_PINGS = 7
_PAUSE_S = 2.0  # a run of the strategy ends after a second without a decision
_WAIT_S = 300.0
_MASTER_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
STOCK: Key = ("kube-scheduler", "1.36")


@dataclass(frozen=True)
class Method:
    """A scheduler of the experiment. toml: the controller's [strategy]; empty for the stock
    kube-scheduler. preferred: the node that is labelled as preferred. assumed_load: whether the
    load of pods that were just placed counts; the papers know none."""

    key: Key
    toml: str = ""
    preferred: str | None = None
    assumed_load: bool = False


def _methods() -> Iterator[Method]:
    yield Method(STOCK)
    for name in ("kube-default", "elasticfog", "tsra", "kcss"):
        yield Method((name, ""), f'name = "{name}"')
    for worker in WORKERS:
        yield Method(("nas", f"{worker} preferred"), 'name = "nas"', worker)
    for alpha in ALPHAS:
        options = f"alpha = {alpha:g}, phi = {simulation.PHI}, lambda = {simulation.LAMBDA_S}"
        yield Method(("dacs", f"alpha={alpha:g}"), f'name = "dacs"\noptions = {{{options}}}')
    yield Method(("leadline", ""), 'name = "leadline"', assumed_load=True)


METHODS = {method.key: method for method in _methods()}


@dataclass(frozen=True)
class Run:
    """One run of a method. rtt_ms: what the agents measured of each pair of nodes before it.
    ready_s: from the creation of the first pod until each was ready. served_share: of the CPU time
    that the board with most pods owed these at high load, what they got; much below 1, other work
    on this machine took it."""

    key: Key
    outcome: Outcome
    rtt_ms: Mapping[str, float]
    ready_s: Sequence[float]
    served_share: float


class Trial:
    """A cluster of one scenario. iterations: by load; the paper's are ITERATIONS."""

    def __init__(
        self, running: RunningLab, scenario: Scenario, iterations: Mapping[str, int], image: str
    ) -> None:
        self._running = running
        self._scenario = scenario
        self._iterations = iterations
        self._image = image
        vcpus = {worker.name: worker.allocatable[CPU] / 1000 for worker in scenario.workers}
        self._vcpu_cores = CORES / sum(vcpus.values())
        self._board_cores = {name: self._vcpu_cores * count for name, count in vcpus.items()}
        for name, cores in self._board_cores.items():
            board = cgroups.name(running.lab.spec.name, name)
            # What else this machine does comes after them.
            self._control(f"/{board}", ("cpu.shares", "8192"), ("cpu.weight", "800"))
            self._limit(f"/{board}/kubepods", cores)

    def runs(self, method: Method, times: int) -> Iterator[Run]:
        """Have a method place the pods so many times, from none each time."""
        running = self._running
        for worker in WORKERS:
            label = {PREFERRED_LABEL: "true" if worker == method.preferred else None}
            running.api.patch(f"/api/v1/nodes/{worker}", {"metadata": {"labels": label}})
        rtt_ms = self._start_controller(method) if method.toml else {}
        for _ in range(times):
            yield self._run(method, rtt_ms)
            time.sleep(_PAUSE_S)
        if method.toml:
            stop_processes(running.lab.spec.name, "controller")

    def _run(self, method: Method, rtt_ms: Mapping[str, float]) -> Run:
        """Create the pods, and let their users ask for the FFTs as soon as all are ready."""
        running, scenario = self._running, self._scenario
        scheduler = "leadline" if method.toml else "default-scheduler"
        names = [f"fft-{number}" for number in range(1, scenario.pod_count + 1)]
        began_s = time.monotonic()
        for name, user in zip(names, scenario.users, strict=True):
            running.create(self._pod(name, user, scheduler))
        ready_s: dict[str, float] = {}

        def found() -> list[Object]:
            found = running.api.get(f"{PODS}?labelSelector=app%3Dfft")["items"]
            pods = {each["metadata"]["name"]: each for each in found}
            for name in filter(lambda name: is_ready(pods[name]), names):
                ready_s.setdefault(name, time.monotonic() - began_s)
            return [pods[name] for name in names]

        what = f"pods of {method.key} are ready"
        pods = eventually(found, lambda pods: len(ready_s) == len(pods), what, _WAIT_S)
        for each in pods:
            self._limit(f"/pod{each['metadata']['uid']}", self._vcpu_cores)
        nodes = [each["spec"]["nodeName"] for each in pods]
        to = list(zip(scenario.users, (each["status"]["podIP"] for each in pods), strict=True))
        # The paper measures network delay apart, with many small requests.
        network_s = [
            statistics.median(answers)
            for answers in zip(*(self._ask(to, 0)[0] for _ in range(_PINGS)), strict=True)
        ]
        requests, share = {}, 0.0
        for load, iterations in self._iterations.items():
            answered_s, told = self._ask(to, iterations)
            requests[load] = [
                ServedRequest(network, each["processing_s"], ready_s[name] + answered)
                for name, network, each, answered in zip(
                    names, network_s, told, answered_s, strict=True
                )
            ]
            share = self._served_share(nodes, told)
        for name in names:
            running.api.delete(f"{PODS}/{name}")
        for name in names:
            running.wait_gone(name)
        outcome = Outcome(nodes, scenario.users, requests)
        return Run(method.key, outcome, rtt_ms, [ready_s[name] for name in names], share)

    def _pod(self, name: str, user: str, scheduler: str) -> Object:
        memory = f"{simulation.POD_MIB}Mi"
        annotations = {
            "leadline.dev/user-node": user,
            "leadline.dev/data-mb": f"{simulation.DATA_MB:g}",
            "leadline.dev/bandwidth-mbps": f"{self._scenario.pod_mbps:g}",
        }
        made = running_pod(
            name,
            self._image,
            cpu=f"{simulation.POD_CPU_MILLI}m",
            memory=memory,
            scheduler=scheduler,
            labels={"app": "fft"},
            annotations=annotations,
        )
        made["spec"]["containers"][0]["resources"]["limits"] = {"memory": memory}
        return made

    def _start_controller(self, method: Method) -> Mapping[str, float]:
        """Start it with this strategy and wait until every round trip is measured; returns these.

        Bandwidth is not tested: links are not shaped, and the interfaces state 1 Gbit/s.
        """
        self._running.start_controller(
            f"[strategy]\nassumed_load = {str(method.assumed_load).lower()}\n{method.toml}\n"
            "[probe]\nbytes_per_day = 0\nping_interval_s = 1\n"
        )

        def measured() -> Mapping[str, float]:
            return {
                f"{min(link['a'], link['b'])}-{max(link['a'], link['b'])}": link["rtt_ms"]
                for link in self._running.ask("matrix")["links"]
                if link.get("rtt_source") == "measured" and {link["a"], link["b"]} <= set(USERS)
            }

        pairs = len(USERS) * (len(USERS) - 1) // 2
        eventually(measured, lambda found: len(found) == pairs, "round trips are known", _WAIT_S)
        time.sleep(5)  # some rounds more: the first samples include ARP
        return measured()

    def _ask(
        self, to: Sequence[tuple[str, str]], iterations: int
    ) -> tuple[list[float], list[dict[str, float]]]:
        """All users ask their pods at once; seconds until each had its answer, and the answers."""
        points = POINTS if iterations else 2
        # The simulation's work, which shrinks with the virtual CPU.
        cpu_s = iterations * simulation.CORE_S_AN_ITERATION * self._vcpu_cores
        path = f"/fft?cpu_ms={cpu_s * 1000:.0f}&points={points}&tone={_TONE}"

        def ask(pair: tuple[str, str]) -> tuple[float, dict[str, float]]:
            user, address = pair
            began_s = time.monotonic()
            namespace = self._running.lab.spec.namespace(user)
            with closing(HTTPConnection(address, HTTP_PORT)) as client:
                client.sock = network.connect_in(namespace, (address, HTTP_PORT))
                client.sock.settimeout(1800)
                client.request("GET", path)
                told = json.loads(client.getresponse().read())
            assert not iterations or told["peak"] == _TONE, told
            return time.monotonic() - began_s, told

        with ThreadPoolExecutor(len(to)) as pool:
            answers = list(pool.map(ask, to))
        return [answered_s for answered_s, _ in answers], [told for _, told in answers]

    def _limit(self, folder: str, cores: float) -> None:
        quota = f"{cores * _PERIOD_US:.0f}"
        self._control(
            folder,
            ("cpu.cfs_period_us", f"{_PERIOD_US}"),
            ("cpu.cfs_quota_us", quota),
            ("cpu.max", f"{quota} {_PERIOD_US}"),
        )

    def _control(self, folder: str, *controls: tuple[str, str]) -> None:
        """Write a file of each control that the cgroup has, version 1 or 2, whose path ends so."""
        files = [
            (each / name, value)
            for each in cgroups.existing(self._running.lab.spec.name)
            for name, value in controls
            if str(each).endswith(folder) and (each / name).exists()
        ]
        assert files, f"no cgroup {folder}"
        for file, value in files:
            file.write_text(value)

    def _served_share(self, nodes: Sequence[str], told: Sequence[Mapping[str, float]]) -> float:
        used_s: dict[str, float] = defaultdict(float)
        took_s: dict[str, float] = defaultdict(float)
        for node, each in zip(nodes, told, strict=True):
            used_s[node] += each["cpu_s"]
            took_s[node] = max(took_s[node], each["processing_s"])
        fullest = max(WORKERS, key=nodes.count)
        cores = min(self._board_cores[fullest], nodes.count(fullest) * self._vcpu_cores)
        return used_s[fullest] / (cores * took_s[fullest])


def play(
    scenario: Scenario,
    keys: Sequence[Key],
    iterations: Mapping[str, int] = ITERATIONS,
    times: int = 1,
    name: str = "",
) -> Iterator[Run]:
    """Build the lab of a scenario, and run each method so many times."""
    boards = [BoardSpec(each, None, ms, 1000) for each, ms in DELAYS_MS[scenario.number].items()]
    sizes = {
        worker.name: Size(worker.allocatable[CPU] / 1000, worker.allocatable[MEMORY] // 10**6)
        for worker in scenario.workers
    }
    program = built_module(Path(__file__).with_name("fft"), toolchain(), os.environ)
    with ExitStack() as stack:
        running = stack.enter_context(running_lab(boards, sizes=sizes, name=name))
        stack.enter_context(kube_scheduler(running.plane))
        running.api.patch(f"/api/v1/nodes/{MASTER}", {"spec": {"taints": [_MASTER_TAINT]}})
        files = layer({"bin/fft": program.read_bytes()})
        image = push_image(running.lab, "fft", [files], ["/bin/fft"])
        for board in USERS:
            # The traffic that the paper has on all nodes.
            ping = ["ping", "-q", "-i", f"{1 / simulation.PACKETS_PER_S:g}"]
            running.lab.start(board, f"traffic-{board}", [*ping, running.lab.address()])
        for worker, mib in zip(WORKERS, scenario.before_mib, strict=True):
            # What ran before; and all have the image.
            before = running_pod(f"before-{worker}", image, memory=f"{mib}Mi", nodeName=worker)
            running.wait_running(running.create(before))
            if not mib:
                running.api.delete(f"{PODS}/before-{worker}")
        trial = Trial(running, scenario, iterations, image)
        for key in keys:
            yield from trial.runs(METHODS[key], times)
