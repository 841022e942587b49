"""Leadline beside the stock kube-scheduler: pods bound a second, and what a pod waits.

One API server, KWOK's nodes, boards that report all the while. Each scheduler in turn has two
loads of as many pods: a backlog that is there when it starts, which shows how many it binds a
second, and pods that come steadily and slower than any of them binds, which shows what one
waits. When a pod was made and when it was bound is what the API server's audit log says.
"""

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil

from tests.bench.boards import CLUSTER, reporting
from tests.kube.api import BulkApi
from tests.kube.control_plane import ControlPlane
from tests.kube.kwok import Kwok, kwok, many_nodes, side_by_side
from tests.kube.objects import pod
from tests.kube.scheduler import kube_scheduler
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port
from tests.system.audit import Audit, audited_plane
from tests.system.daemons import Daemon, eventually

NODES = (100, 1000, 5000)
PODS = 1000
STEADY_PER_S = 40
LIFTED = 10_000
PATH = "/api/v1/namespaces/default/pods"
PATIENCE_S = 300.0
# Kubelets, boards and the broker have machines of their own; here they take what is left.
PLAYED = 19
# A run of a scheduler: yields the process that it is.
Running = Callable[[], "contextmanager[int]"]


@dataclass(frozen=True)
class Result:
    """Of one scheduler over so many nodes. The CPU seconds are of the backlog."""

    nodes: int
    name: str
    per_s: float
    waits_ms: Sequence[float]
    scheduler_cpu_s: float
    server_cpu_s: float

    def row(self) -> str:
        cuts = quantiles(self.waits_ms, n=100)
        return (
            f"{self.nodes:>6,}  {self.name:<32}{self.per_s:>8.0f}{cuts[49]:>9.1f}{cuts[98]:>9.1f}"
            f"{1000 * self.scheduler_cpu_s / PODS:>11.2f}{1000 * self.server_cpu_s / PODS:>11.2f}"
        )


@dataclass
class Scene:
    """What all of them run on."""

    folder: Path
    plane: ControlPlane
    audit: Audit
    broker: Broker
    kwok: Kwok

    @contextmanager
    def stock(self, **limits: int) -> Iterator[int]:
        """kube-scheduler."""
        with kube_scheduler(self.plane, **limits) as running:
            yield running.pid

    @contextmanager
    def leadline(self) -> Iterator[int]:
        """The controller with dacs, and all filters."""
        config = self.folder / "controller.toml"
        config.write_text(
            f'cluster = "{CLUSTER}"\n'
            f'[broker]\nhost = "{self.broker.host}"\nport = {self.broker.port}\n'
            f'[kubernetes]\nkubeconfig = "{self.plane.kubeconfig}"\n'
            f'[strategy]\nname = "dacs"\n[grpc]\naddress = "127.0.0.1:{free_port()}"\n'
        )
        daemon = Daemon("leadline_controller", config, self.folder / "controller.log")
        try:
            daemon.start()
            assert daemon.pid is not None
            yield daemon.pid
        finally:
            daemon.stop()

    def create(self, name: str, scheduler: str, user_node: str) -> None:
        """Make one pod."""
        hints = {"leadline.dev/user-node": user_node, "leadline.dev/bandwidth-mbps": "1"}
        self._api.create(PATH, pod(name, cpu="10m", scheduler=scheduler, annotations=hints))

    def wait_bound(self, prefix: str) -> dict[str, tuple[float, float]]:
        """Pod -> when it was made and when it was bound, seconds by the API server's clock."""
        eventually(
            lambda: sum(write.worked for write in self.audit.bindings(prefix)),
            lambda count: count >= PODS,
            f"{PODS} pods {prefix}* are bound",
            PATIENCE_S,
        )
        made = self.audit.made(prefix)
        return {
            write.name: (made[write.name], write.done_s)
            for write in self.audit.bindings(prefix)
            if write.worked
        }

    def clear(self) -> None:
        """Remove all pods."""
        self._api.delete(PATH)
        eventually(lambda: self._api.get(PATH)["items"], lambda left: not left, "no pods")

    def cpu_s(self, pid: int) -> float:
        """What a process and its children have used."""
        process = psutil.Process(pid)
        return sum(
            sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True))
        )

    def __post_init__(self) -> None:
        self._api = BulkApi(self.plane.kubeconfig)


@contextmanager
def scene() -> Iterator[Scene]:
    """An API server that says what it was asked, KWOK and a broker."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="leadline-bench-")))
        plane, audit = cleanup.enter_context(audited_plane(folder))
        player = cleanup.enter_context(kwok(plane, lease_s=400))
        broker = cleanup.enter_context(mosquitto())
        for played in (player.process.pid, broker.pid):
            psutil.Process(played).nice(PLAYED)
        yield Scene(folder, plane, audit, broker, player)


def measure(
    scene: Scene, nodes: Sequence[str], name: str, pods_of: str, running: Callable[[], Any]
) -> Result:
    """Both loads under one scheduler; `pods_of` is its name in the pods."""
    label = f"{''.join(c for c in name if c.isalpha())}-{len(nodes)}"

    def create(prefix: str, at: int) -> None:
        scene.create(f"{prefix}-{at:04}", pods_of, nodes[at % len(nodes)])

    side_by_side(partial(create, f"{label}-backlog"), range(PODS))
    server = scene.plane.pid
    assert server is not None
    with running() as pid:
        server_cpu_s = -scene.cpu_s(server)
        bound = sorted(done_s for _, done_s in scene.wait_bound(f"{label}-backlog").values())
        cpu_s = scene.cpu_s(pid)
        server_cpu_s += scene.cpu_s(server)
        scene.clear()
        begin_s = time.monotonic()
        for at in range(PODS):
            time.sleep(max(0.0, begin_s + at / STEADY_PER_S - time.monotonic()))
            create(f"{label}-steady", at)
        waits_ms = [
            (done_s - made_s) * 1000
            for made_s, done_s in scene.wait_bound(f"{label}-steady").values()
        ]
    scene.clear()
    per_s = (PODS - 1) / (bound[-1] - bound[0])
    return Result(len(nodes), name, per_s, waits_ms, cpu_s, server_cpu_s)


def results(sizes: Sequence[int] = NODES) -> Iterator[Result]:
    """All schedulers over clusters that grow."""
    with scene() as stage:
        contenders: dict[str, tuple[str, Callable[[], Any]]] = {
            "kube-scheduler, default limits": ("default-scheduler", stage.stock),
            "kube-scheduler, limits lifted": (
                "default-scheduler",
                partial(stage.stock, qps=LIFTED, burst=LIFTED),
            ),
            "leadline, dacs, all filters": ("leadline", stage.leadline),
        }
        nodes: list[str] = []
        for size in sizes:
            labels = {"leadline.dev/bandwidth-mbps": "1000"}
            more = many_nodes(size - len(nodes), f"n{size}", pods=1100, labels=labels)
            stage.kwok.add_nodes(more)
            nodes += [each["metadata"]["name"] for each in more]
            with reporting(stage.broker, nodes):
                for name, (pods_of, running) in contenders.items():
                    yield measure(stage, nodes, name, pods_of, running)


def main() -> None:
    """Print the table, a row as soon as it is there."""
    gc.freeze()
    print(f"a backlog of {PODS:,} pods, then {PODS:,} more at {STEADY_PER_S} a second")
    print(f"{'':40}{'bound':>8}{'creation to':>18}{'CPU ms a pod':>22}")
    print(f"{'':40}{'a second':>8}{'p50 ms':>9}{'p99 ms':>9}{'scheduler':>11}{'server':>11}")
    for result in results():
        print(result.row(), flush=True)
