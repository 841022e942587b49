"""The memory and CPU time of the agent and of node_exporter in the same minute.

Both work at their usual rate: the agent reports every 10 s over TLS and pings five peers, and
node_exporter is scraped every 10 s. Then a second agent runs 10,000 cycles as fast as it can, to
show whether its memory grows.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.agents import Listener, agent_config, listening, running_agent
from tests.support.certificates import Authority
from tests.support.mosquitto import mosquitto
from tests.support.ports import free_port, listens, wait_until

EXPORTER = "prometheus-node-exporter"
INTERVAL_S = 10
MEASURED_S = 60
PEERS = 5
CYCLES = 10_000
SAMPLED_AT = (1_000, 4_000, 7_000, CYCLES)
# An agent of the same code that does not wait between reports and does not limit its sending.
ACCELERATED = """
import dataclasses, os, pathlib, sys
from leadline_agent import config, loop
from leadline_agent.publish import session
session.DRAIN_PER_S = 1e6
settings = config.load(pathlib.Path(sys.argv[1]), os.environ)
sys.exit(loop.run(dataclasses.replace(settings, interval_s=0.002)))
"""


def main() -> None:
    """Measure and print; takes about two and a half minutes."""
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as name:
        folder = Path(name)
        environ = compiled(folder / "bytecode")
        side_by_side(folder, environ)
        growth(folder / "growth", environ)


def compiled(folder: Path) -> Mapping[str, str]:
    """An environment in which Python finds compiled bytecode, as on a board after pip."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ = {"PYTHONPYCACHEPREFIX": str(folder)}
    command = [sys.executable, "-c", "import leadline_agent.__main__"]
    subprocess.run(command, check=True, env={**os.environ, **environ})
    return environ


def side_by_side(folder: Path, environ: Mapping[str, str]) -> None:
    """Measure the agent and node_exporter in the same minute."""
    authority = Authority(folder / "ca")
    with (
        mosquitto(tls=authority.server("localhost")) as broker,
        listening(broker.port, tls=authority.client("controller")) as listener,
        node_exporter() as exporter,
    ):
        config = agent_config(
            folder / "agent", broker.port, tls=authority.client("pi-1"), interval_s=INTERVAL_S
        )
        # This compiles what only a running agent imports. A process keeps the 1.8 MB that the
        # compiler takes for that.
        with running_agent(config, environ):
            listener.wait_for(topics.Kind.REPORT, timeout_s=60)
        listener.heard.clear()
        with running_agent(config, environ) as agent:
            listener.wait_for(topics.Kind.REPORT, timeout_s=60)
            listener.lease(pb.Lease(node="pi-1", ping=ping_lease()))
            listener.wait_for(topics.Kind.RTT, timeout_s=60)
            measured = watch([agent.process.pid, *exporter[:1]], exporter[1:])
        report_bytes = max(len(codec.encode(report)) for report in listener.of(topics.Kind.REPORT))
    names = [f"agent, TLS, {PEERS} ping peers", "node_exporter"]
    print(f"{'':28}{'resident MB':>12}{'CPU % of a core':>18}   every {INTERVAL_S} s")
    for row, (rss_mb, cpu_percent) in zip(names, measured, strict=False):
        print(f"{row:28}{rss_mb:>12.1f}{cpu_percent:>18.2f}")
    if not exporter:
        print(f"{names[1]:28}{'not installed: apt-get install ' + EXPORTER}")
    print(f"a report of this machine: {report_bytes} bytes, without the time of sending")


def ping_lease() -> pb.PingLease:
    """A lease for five peers, which are all this machine."""
    peers = [pb.Peer(node=f"pi-{n}", address=f"127.0.0.{n}") for n in range(2, 2 + PEERS)]
    return pb.PingLease(peers=peers, interval_s=INTERVAL_S, count=5, ttl_s=10 * MEASURED_S)


@contextmanager
def node_exporter() -> Iterator[list[int]]:
    """Run Debian's node_exporter. Yields [pid, port], or [] if it is not installed."""
    program = shutil.which(EXPORTER)
    if program is None:
        yield []
        return
    port = free_port()
    command = [program, f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: listens("127.0.0.1", port), f"{EXPORTER} listens")
            scrape(port)
            yield [process.pid, port]
        finally:
            process.kill()


def scrape(port: int) -> None:
    """Read all metrics, as Prometheus does."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        answer.read()


def watch(pids: list[int], scraped: list[int]) -> list[tuple[float, float]]:
    """(resident MB, CPU per cent of one core) of each process over MEASURED_S."""
    processes = [psutil.Process(pid) for pid in pids]
    before_s = [cpu_s(process) for process in processes]
    start_s = time.monotonic()
    while time.monotonic() < start_s + MEASURED_S:
        time.sleep(INTERVAL_S)
        for port in scraped:
            scrape(port)
    elapsed_s = time.monotonic() - start_s
    return [
        (process.memory_info().rss / 1e6, 100 * (cpu_s(process) - was_s) / elapsed_s)
        for process, was_s in zip(processes, before_s, strict=True)
    ]


def cpu_s(process: psutil.Process) -> float:
    """The CPU seconds of a process since its start."""
    times = process.cpu_times()
    return times.user + times.system


def growth(folder: Path, environ: Mapping[str, str]) -> None:
    """Print the resident memory after each number of cycles in SAMPLED_AT."""
    with mosquitto() as broker, listening(broker.port, broker.host) as listener:
        config = agent_config(folder, broker.port)
        command = [sys.executable, "-c", ACCELERATED, str(config)]
        with subprocess.Popen(
            command, stderr=subprocess.DEVNULL, env={**os.environ, **environ}
        ) as process:
            try:
                rows = [(n, rss_after(n, listener, process.pid)) for n in SAMPLED_AT]
            finally:
                process.kill()
    for cycles, rss_mb in rows:
        print(f"{f'agent after {cycles} cycles':28}{rss_mb:>12.1f}")


def rss_after(cycles: int, listener: Listener, pid: int) -> float:
    """Wait for this number of reports. The agent's resident MB then."""
    wait_until(lambda: len(listener.heard) >= cycles, f"{cycles} reports", timeout_s=300)
    return psutil.Process(pid).memory_info().rss / 1e6


if __name__ == "__main__":
    main()
