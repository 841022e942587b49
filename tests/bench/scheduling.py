"""Leadline beside the stock kube-scheduler: pods bound a second, and what a pod waits.

There are one API server, KWOK's nodes, and boards that report all the time. Each scheduler has two
loads with the same number of pods: a backlog that exists when it starts, for the binding rate, and
pods that are created steadily, slower than any scheduler binds, for the waiting time. The API
server's audit log has the times of creation and binding. The backlogs run in rounds, and each round
starts with another scheduler, as the machine's speed varies. KWOK is frozen during a backlog,
because kubelets have their own machines, and the number of pods that it would start meanwhile is
random. Both write an event for each pod, partly after the last binding, so there is a rate until
all of these are stored, too. Besides, bindings without a scheduler show what the API server can do
at most. LEADLINE_TEST_STORE=kine takes k3s' own store in place of etcd.

Variables make it shorter, or compare two versions of Leadline:

    BENCH_NODES=100,1000    the sizes of the cluster
    BENCH_ROUNDS=3          backlogs for each scheduler
    BENCH_OTHER=../before   another checkout, whose controller takes its turns as well
    BENCH_STEADY=0          backlogs alone
"""

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from statistics import mean, median, quantiles

import psutil

from tests.kube.api import BulkApi
from tests.kube.control_plane import ControlPlane
from tests.kube.kwok import Kwok, kwok, many_nodes, side_by_side
from tests.kube.objects import pod
from tests.kube.scheduler import kube_scheduler
from tests.support.boards import CLUSTER, reporting
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port
from tests.support.processes import frozen
from tests.system.audit import Audit, audited_plane
from tests.system.daemons import Daemon, eventually

NODES = tuple(int(size) for size in os.environ.get("BENCH_NODES", "100,1000,5000").split(","))
PODS = 1000
STEADY_PER_S = 40
NO_LIMIT_PER_S = 10_000
PATH = "/api/v1/namespaces/default/pods"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))
STEADY = os.environ.get("BENCH_STEADY", "1") != "0"
OTHER = os.environ.get("BENCH_OTHER", "")
# KWOK and the garbage collectors still have work after the last pod is deleted.
SETTLE_S = 3.0
TIMEOUT_S = 300.0
# kube-scheduler drops events if there are too many at once, so nobody waits for all of them.
EVENTS_S = 5.0
RAW = (sys.executable, "-m", "tests.bench.raw_bindings")
RAW_NAME = "raw"
# Kubelets, boards and the broker have their own machines; here they have the lowest priority.
BACKGROUND_NICE = 19
# Runs a scheduler and yields its process id.
Started = Callable[[], AbstractContextManager[int]]


@dataclass(frozen=True)
class BenchedScheduler:
    """A scheduler and its schedulerName."""

    name: str
    scheduler_name: str
    running: Started
    rounds: int = ROUNDS
    tells: bool = True  # it writes events


@dataclass(frozen=True)
class Backlog:
    """The binding rate of a backlog, the rate until all events are stored as well, NaN if there are
    fewer events than pods, and the CPU time from the first binding to the last."""

    bound_per_s: float
    told_per_s: float
    scheduler_cpu_s: float
    server_cpu_s: float


def row(size: int, name: str, rounds: Sequence[Backlog], waits_ms: Sequence[float]) -> str:
    """One scheduler with `size` nodes: the median round, the slowest and the fastest."""
    cuts = quantiles(waits_ms, n=100) if waits_ms else []
    waited = f"{cuts[49]:>7.1f}{cuts[98]:>7.1f}" if cuts else " " * 14
    speeds = [each.bound_per_s for each in rounds]
    scheduler, server = (
        mean(getattr(each, what) for each in rounds) / PODS * 1000
        for what in ("scheduler_cpu_s", "server_cpu_s")
    )
    spread = f"{min(speeds):.0f}-{max(speeds):.0f}"
    told = [each.told_per_s for each in rounds]
    return (
        f"{size:>6,}  {name:<31}{median(speeds):>7.0f}{spread:>10}{median(told):>7.0f}"
        f"{waited}{scheduler:>8.2f}{server:>8.2f}"
    )


@dataclass
class SchedulerBench:
    """The cluster that all schedulers use in turn."""

    folder: Path
    plane: ControlPlane
    audit: Audit
    broker: Broker
    kwok: Kwok

    @contextmanager
    def stock(self, limit_per_s: int | None = None) -> Iterator[int]:
        """kube-scheduler with its default limit of requests to the server, or with another."""
        with kube_scheduler(self.plane, qps=limit_per_s, burst=limit_per_s) as running:
            yield running.pid

    @contextmanager
    def leadline(self, checkout: str = "", strategy: str = "dacs") -> Iterator[int]:
        """The controller, and all filters. checkout: another one than this."""
        # Of its own, because another checkout may not read what this one wrote.
        config = self.folder / f"controller{Path(checkout).name}.toml"
        config.write_text(
            f'cluster = "{CLUSTER}"\n'
            f'[broker]\nhost = "{self.broker.host}"\nport = {self.broker.port}\n'
            f'[kubernetes]\nkubeconfig = "{self.plane.kubeconfig}"\n'
            f'[strategy]\nname = "{strategy}"\n[grpc]\naddress = "127.0.0.1:{free_port()}"\n'
        )
        parts = [str(Path(checkout).resolve() / part) for part in ("controller", "proto")]
        environ = {"PYTHONPATH": os.pathsep.join(parts)} if checkout else {}
        daemon = Daemon("leadline_controller", config, self.folder / "controller.log", environ)
        try:
            daemon.start()
            assert daemon.pid is not None
            yield daemon.pid
        finally:
            daemon.stop()

    @contextmanager
    def raw(self) -> Iterator[int]:
        """Bindings without a scheduler."""
        command = (*RAW, str(self.plane.kubeconfig), RAW_NAME)
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            yield process.pid
            process.terminate()

    def create(self, name: str, scheduler: str, user_node: str) -> None:
        """Create a pod."""
        hints = {"leadline.dev/user-node": user_node, "leadline.dev/bandwidth-mbps": "1"}
        self._api.create(PATH, pod(name, cpu="10m", scheduler=scheduler, annotations=hints))

    def wait_bound(self, prefix: str) -> dict[str, tuple[float, float]]:
        """Pod -> times of its creation and of its binding, by the API server's clock, seconds."""
        self.wait_bindings(prefix, PODS)
        made = self.audit.created(prefix)
        return {
            write.name: (made[write.name], write.done_s)
            for write in self.audit.bindings(prefix)
            if write.worked
        }

    def wait_bindings(self, prefix: str, wanted: int) -> None:
        """Wait until at least `wanted` pods are bound."""
        eventually(
            lambda: sum(write.worked for write in self.audit.bindings(prefix)),
            lambda count: count >= wanted,
            f"{wanted} pods {prefix}* are bound",
            TIMEOUT_S,
        )

    def wait_told(self, prefix: str) -> dict[str, float]:
        """Wait for the events of the pods, while there are more and more of them. Returns when each
        was stored."""
        told, changed_s = self.audit.told(prefix), time.monotonic()
        while len(told) < PODS and time.monotonic() - changed_s < EVENTS_S:
            time.sleep(0.1)
            before, told = len(told), self.audit.told(prefix)
            if len(told) > before:
                changed_s = time.monotonic()
        return told

    def clear(self) -> None:
        """Remove all pods."""
        self._api.delete(PATH)
        eventually(lambda: self._api.get(PATH)["items"], lambda left: not left, "no pods")
        time.sleep(SETTLE_S)

    def cpu_s(self, pid: int) -> float:
        """The CPU time of a process and its children."""
        process = psutil.Process(pid)
        return sum(
            sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True))
        )

    def __post_init__(self) -> None:
        self._api = BulkApi(self.plane.kubeconfig)


@contextmanager
def scheduler_bench() -> Iterator[SchedulerBench]:
    """An API server with an audit log, KWOK and a broker."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="leadline-bench-")))
        plane, audit = cleanup.enter_context(audited_plane(folder))
        player = cleanup.enter_context(kwok(plane, lease_s=400))
        broker = cleanup.enter_context(mosquitto())
        for played in (player.process.pid, broker.pid):
            psutil.Process(played).nice(BACKGROUND_NICE)
        yield SchedulerBench(folder, plane, audit, broker, player)


def backlog(
    bench: SchedulerBench, nodes: Sequence[str], scheduler: BenchedScheduler, prefix: str
) -> Backlog:
    """Bind pods that exist when the scheduler starts."""

    def create(at: int) -> None:
        bench.create(f"{prefix}-{at:04}", scheduler.scheduler_name, nodes[at % len(nodes)])

    side_by_side(create, range(PODS))
    server = bench.plane.pid
    assert server is not None
    with frozen(bench.kwok.process), scheduler.running() as pid:
        bench.wait_bindings(prefix, 1)
        before = bench.cpu_s(pid), bench.cpu_s(server)
        bound = sorted(done_s for _, done_s in bench.wait_bound(prefix).values())
        after = bench.cpu_s(pid), bench.cpu_s(server)
        told = bench.wait_told(prefix) if scheduler.tells else {}
    bench.clear()
    told_s = max(bound[-1], *told.values()) if len(told) == PODS else nan
    return Backlog(
        bound_per_s=(PODS - 1) / (bound[-1] - bound[0]),
        told_per_s=(PODS - 1) / (told_s - bound[0]),
        scheduler_cpu_s=after[0] - before[0],
        server_cpu_s=after[1] - before[1],
    )


def steady_ms(
    bench: SchedulerBench, nodes: Sequence[str], scheduler: BenchedScheduler, prefix: str
) -> list[float]:
    """The times from creation to binding, of pods that are created one by one."""
    with scheduler.running() as _:
        bench.create(f"first-{prefix}", scheduler.scheduler_name, nodes[0])
        bench.wait_bindings(f"first-{prefix}", 1)
        begin_s = time.monotonic()
        for at in range(PODS):
            time.sleep(max(0.0, begin_s + at / STEADY_PER_S - time.monotonic()))
            bench.create(f"{prefix}-{at:04}", scheduler.scheduler_name, nodes[at % len(nodes)])
        waits = bench.wait_bound(f"{prefix}-").values()
    bench.clear()
    return [(bound_s - made_s) * 1000 for made_s, bound_s in waits]


def rows(sizes: Sequence[int] = NODES) -> Iterator[str]:
    """All schedulers over clusters that grow."""
    with scheduler_bench() as bench:
        schedulers: tuple[BenchedScheduler, ...] = (
            # It waits for its own limit, so one round is as good as many.
            BenchedScheduler("kube-scheduler, default limits", "default-scheduler", bench.stock, 1),
            BenchedScheduler(
                "kube-scheduler, limits lifted",
                "default-scheduler",
                partial(bench.stock, NO_LIMIT_PER_S),
            ),
            BenchedScheduler("leadline, dacs, all filters", "leadline", bench.leadline),
            BenchedScheduler("bindings without a scheduler", RAW_NAME, bench.raw, tells=False),
        )
        if OTHER:
            other = partial(bench.leadline, OTHER)
            schedulers += (BenchedScheduler("leadline, of BENCH_OTHER", "leadline", other),)
        nodes: list[str] = []
        for size in sizes:
            labels = {"leadline.dev/bandwidth-mbps": "1000"}
            more = many_nodes(size - len(nodes), f"n{size}", pods=1100, labels=labels)
            bench.kwok.add_nodes(more)
            nodes += [each["metadata"]["name"] for each in more]
            with reporting(bench.broker, nodes):
                rounds: dict[str, list[Backlog]] = {each.name: [] for each in schedulers}
                for number in range(ROUNDS):
                    due = [each for each in schedulers if number < each.rounds]
                    first = number % len(due)
                    for at, each in enumerate(due[first:] + due[:first]):
                        prefix = f"backlog-{size}-{number}-{at}"
                        rounds[each.name].append(backlog(bench, nodes, each, prefix))
                for at, each in enumerate(schedulers):
                    prefix = f"steady-{size}-{at}"
                    waits_ms = (
                        steady_ms(bench, nodes, each, prefix) if each.tells and STEADY else ()
                    )
                    yield row(size, each.name, rounds[each.name], waits_ms)


def main() -> None:
    """Print the table, row by row."""
    gc.freeze()
    steady = f", then {PODS:,} at {STEADY_PER_S} a second" if STEADY else ""
    print(f"{ROUNDS} times a backlog of {PODS:,} pods{steady}")
    print(f"{'':39}{'bound a second':>17}{'events':>7}{'waited ms':>14}{'CPU ms a pod':>16}")
    print(
        f"{'':39}{'median':>7}{'all':>10}{'too':>7}{'p50':>7}{'p99':>7}{'sched.':>8}{'server':>8}"
    )
    for line in rows():
        print(line, flush=True)
