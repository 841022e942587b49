"""A cluster that runs pods: a control plane, and a lab whose boards have kubelets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from leadline_lab import lab as labs
from leadline_lab.broker import start_broker
from leadline_lab.kubelets import start_kubelets
from leadline_lab.lab import AgentSettings, Lab, start_agents
from leadline_lab.processes import Process, wait_listening
from leadline_lab.spec import SERVER, BoardSpec, LabSpec

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.controllers import kube_controller_manager
from tests.kube.kubelets import kubelet_binaries
from tests.kube.objects import Object, pod
from tests.lab.inventory import end_stale_labs, fresh_name
from tests.lab.lab_images import HTTP_PORT
from tests.support.ports import free_port, listens, wait_until
from tests.system.daemons import eventually

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
# It lifts the taint of a new node.
NODE_LIFECYCLE = "node-lifecycle-controller"
WAIT_S = 120.0
CLUSTER, BROKER_PORT, GRPC = "lab", 1883, "127.0.0.1:7077"
_PULLED = re.compile(r"Successfully pulled image .* in ([0-9hms.]+) \(")


@dataclass(frozen=True)
class Size:
    """What a board offers to pods, at most what this machine has; kubelet holds the rest back."""

    cpu: float
    memory_mb: int
    pods: int = 110

    def kubelet_config(self) -> dict[str, Any]:
        """The fields of kubelet's configuration that make it offer this much."""
        cpu = (os.cpu_count() or 1) - self.cpu
        memory_mb = psutil.virtual_memory().total // 10**6 - self.memory_mb
        assert min(cpu, memory_mb) >= 0, f"this machine has less than {self}"
        reserved = {"cpu": f"{cpu:.3f}", "memory": f"{memory_mb}M"}
        return {"systemReserved": reserved, "maxPods": self.pods}


@dataclass(frozen=True)
class RunningLab:
    """A lab with kubelets. `kubeconfig`: for what runs on the lab's hosts; `plane.kubeconfig` is
    for what runs outside."""

    lab: Lab
    plane: ControlPlane
    kubeconfig: Path

    @property
    def api(self) -> Api:
        """The API with the rights of the administrator."""
        return Api(self.plane.kubeconfig)

    def start_controller(self, toml: str = "", kubernetes: str = "") -> Process:
        """Start the controller on the lab's server and wait until it answers.

        `toml` are further tables of its file, and `kubernetes` further fields of that table.
        """
        config = self.lab.directory / "controller.toml"
        config.write_text(
            f'cluster = "{CLUSTER}"\n'
            f'[broker]\nhost = "{self.lab.address()}"\nplaintext = true\nport = {BROKER_PORT}\n'
            f'[kubernetes]\nkubeconfig = "{self.kubeconfig}"\n{kubernetes}'
            f'[grpc]\naddress = "{GRPC}"\n'
            f'[decisions]\npath = "{self.lab.directory}/decisions.db"\n{toml}'
        )
        command = [sys.executable, "-m", "leadline_controller", "run", "--config", str(config)]
        controller = self.lab.start(SERVER, "controller", command)
        wait_listening(controller, int(GRPC.rpartition(":")[2]), WAIT_S)
        return controller

    def ask(self, *question: str) -> Any:
        """The command line's answer, from the controller, as JSON."""
        program = [sys.executable, "-m", "leadline_controller.cli", *question]
        command = self.lab.command(SERVER, [*program, "-o", "json", "--address", GRPC])
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)

    def create(self, manifest: Object) -> str:
        """Create a pod and return its name."""
        return str(self.api.create(PODS, manifest)["metadata"]["name"])

    def wait_running(self, name: str, timeout_s: float = WAIT_S) -> Object:
        """Wait until all of a pod's containers run, and return the pod."""

        def found() -> Object:
            return dict(self.api.get(f"{PODS}/{name}"))

        return eventually(found, is_ready, f"pod {name} runs", timeout_s)

    def wait_gone(self, name: str) -> None:
        """Wait until a deleted pod is no longer there."""

        def names() -> list[str]:
            return [each["metadata"]["name"] for each in self.api.get(PODS)["items"]]

        eventually(names, lambda found: name not in found, f"pod {name} is gone", WAIT_S)

    def log(self, pod: Object) -> str:
        """What a pod's containers wrote. The API server can't reach the boards for kubectl logs."""
        logs = self.lab.data / pod["spec"]["nodeName"] / "var/log/pods"
        of_pod = sorted(logs.glob(f"*_{pod['metadata']['uid']}/*/*.log"))
        lines = "".join(each.read_text() for each in of_pod).splitlines()
        # Time, stream and a flag are before the text.
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    @contextmanager
    def reach(self, host: str, port: int, address: str = "") -> Iterator[int]:
        """Yield a loopback port outside the lab that leads to a port of a host in the lab, at its
        address on the switch unless another is given, such as 127.0.0.1."""
        outside, join = free_port(), self.lab.directory / f"{host}-{port}.sock"
        target = self.lab.command(
            host, _socat(f"UNIX-LISTEN:{join}", f"TCP:{address or self.lab.address(host)}:{port}")
        )
        entry = _socat(f"TCP-LISTEN:{outside},bind=127.0.0.1", f"UNIX-CONNECT:{join}")
        with subprocess.Popen(target) as inner, subprocess.Popen(entry) as outer:
            try:
                wait_until(join.exists, f"{join} is there")
                wait_until(lambda: listens("127.0.0.1", outside), f"port {outside} is open")
                yield outside
            finally:
                outer.terminate()
                inner.terminate()
                join.unlink(missing_ok=True)

    def pulled_s(self, name: str) -> float:
        """How long the pull of a pod's image took, by kubelet's event."""
        return eventually(lambda: self.pulls_s(name), bool, f"event Pulled of {name}", WAIT_S)[0]

    def pulls_s(self, name: str = "") -> list[float]:
        """How long the pulls of a pod's image took, or of all pods'."""
        events = self.api.get(EVENTS)["items"]
        mine = [each for each in events if name in ("", each["involvedObject"].get("name"))]
        return [_go_seconds(match[1]) for each in mine if (match := _PULLED.match(each["message"]))]

    def fetch(self, host: str, pod: Object, path: str) -> float:
        """Get a file from a pod's HTTP server on a host, and return the seconds that it took."""
        url = f"http://{pod['status']['podIP']}:{HTTP_PORT}{path}"
        command = self.lab.command(host, ["busybox", "wget", "-q", "-O", "/dev/null", url])
        started = time.monotonic()
        subprocess.run(command, check=True, timeout=WAIT_S)
        return time.monotonic() - started


def running_pod(name: str, image: str, **rest: Any) -> Object:
    """Return a pod of one container of this image; `rest` as for `objects.pod`."""
    made = pod(name, automountServiceAccountToken=False, enableServiceLinks=False, **rest)
    made["spec"]["containers"][0]["image"] = image
    return made


@contextmanager
def running_lab(
    boards: Sequence[BoardSpec],
    controllers: Sequence[str] = (),
    sizes: Mapping[str, Size] | None = None,
    name: str = "",
    kubelet: Mapping[str, Any] | None = None,
    *,
    flows: bool = False,
) -> Iterator[RunningLab]:
    """Yield a lab of these boards, all Ready, with an agent on each and on the server.

    `controllers` run beside the one for nodes. A board without a size offers the whole machine. The
    lab is named freshly, unless `name` says otherwise, and removed with all that runs on it.
    `kubelet`: fields of each kubelet's configuration. `flows`: agents report what is counted by
    those that `leadline_lab.lab.start_flows` starts.
    """
    end_stale_labs()
    binaries = kubelet_binaries()
    config = {each.name: dict(kubelet or {}) for each in boards}
    for board, size in (sizes or {}).items():
        config[board] |= size.kubelet_config()
    spec = LabSpec(name or fresh_name(), boards=tuple(boards))
    with ExitStack() as stack:
        plane = stack.enter_context(control_plane())
        stack.enter_context(kube_controller_manager(plane, [NODE_LIFECYCLE, *controllers]))
        lab = labs.up(spec)
        stack.callback(labs.down, spec.name)
        broker = start_broker(lab, BROKER_PORT)
        start_agents(lab, AgentSettings(CLUSTER, *broker, interval_s=1, flows=flows))
        kubeconfig = start_kubelets(lab, plane.kubeconfig, binaries, config)
        running = RunningLab(lab, plane, kubeconfig)
        wait_ready(running.api, {board.name for board in boards})
        yield running


def wait_ready(api: Api, names: set[str]) -> None:
    """Wait until exactly these nodes are there, and all are Ready and without a taint."""

    def ready() -> set[str]:
        return {
            node["metadata"]["name"]
            for node in api.get("/api/v1/nodes")["items"]
            if not node["spec"].get("taints") and is_ready(node)
        }

    eventually(ready, lambda found: found == names, f"nodes {sorted(names)} are Ready", WAIT_S)


def is_ready(thing: Object) -> bool:
    """Whether a node or a pod is Ready."""
    conditions = thing["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _socat(listen: str, target: str) -> list[str]:
    return ["socat", f"{listen},fork", target]


def _go_seconds(duration: str) -> float:
    """Seconds of a duration as Go writes it, such as 1m2.5s or 350ms."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([0-9.]+)(ms|h|m|s)", duration))
