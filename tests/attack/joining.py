"""Thousands of pods that fit nowhere, and nodes that join one by one: each of them wakes every pod.

A process of its own, so that its memory can be measured: the real scheduler with all filters, on
a cluster in memory, and the real history on disk. It prints one line of JSON: see Outcome.
"""

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from leadline_controller.cluster.state import ClusterState
from leadline_controller.config import Settings
from leadline_controller.decisions.database import Database
from leadline_controller.decisions.record import Change
from leadline_controller.decisions.store import HistorySettings
from leadline_controller.decisions.times import Moment
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.ports import Event, NodeChanged, Relisted
from leadline_controller.scheduling.batches import Batch
from leadline_controller.scheduling.scheduler import Scheduler, SchedulingProfile
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_controller.wiring import Controller

from tests.support.memory import peak_bytes
from tests.support.memory_cluster import MemoryCluster

MIB = 2**20


@dataclass(frozen=True)
class Outcome:
    """decided: decisions that the scheduler made. kept: those that the file has, each repetition
    counted. in_detail: rows with their scores and refusals. grown_mib: resident memory at its
    highest, beyond what the pending pods took before the first node joined. per_s: decisions a
    second. stop_s: how long stopping took. warnings: lines of the history's log."""

    decided: int
    kept: int
    in_detail: int
    grown_mib: float
    per_s: float
    stop_s: float
    warnings: tuple[str, ...]


class _Counting(Scheduler):
    decided = 0

    def _decide(self, pod: Pod, batch: Batch | None = None) -> Decision:
        self.decided += 1
        return super()._decide(pod, batch)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def slow_disk(each_write_s: float) -> None:
    """Have every transaction from now on wait so long for the disk."""
    write = Database.write

    def slowly(self: Database, changes: Iterable[Change], now: Moment) -> None:
        time.sleep(each_write_s)
        write(self, changes, now)

    setattr(Database, "write", slowly)  # noqa: B010  # what the class has is typed


class _Cluster(MemoryCluster):
    """Keeps no events, as the API server is elsewhere."""

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        pass


def decisions_over(count: int, nodes: int) -> Iterator[Decision]:
    """Decisions about as many pods that fit. A node changes before each, so none shares its view
    of the nodes with another."""
    state, telemetry = ClusterState(), TelemetryState(TimesToLive())
    state.apply(Relisted(tuple(_node(number) for number in range(nodes)), (), ()))
    for number in range(count):
        changed = replace(_node(0), labels={"turn": str(number)})
        state.apply(NodeChanged(changed))
        pod = Pod("default", f"p{number}", uid=f"u{number}", requests={CPU: 10, PODS: 1})
        view = state.view(telemetry, float(number))
        yield decide(view, pod, FILTERS, Dacs(), Random(1))


def _node(number: int) -> Node:
    return Node(f"board-{number}", {CPU: 4000, MEMORY: 2**32, PODS: 110}, ready=True)


async def work(path: Path, pods: int, nodes: int, every_s: float, disk_s: float = 0.0) -> Outcome:
    """Have `nodes` nodes join, one each `every_s` seconds, beside `pods` pending pods, with a
    disk that takes `disk_s` for each transaction."""
    lines = _Lines()
    logging.getLogger("leadline_controller.decisions").addHandler(lines)
    cluster = _Cluster()
    for number in range(pods):
        requests = {CPU: 64_000, MEMORY: 2**30, PODS: 1}
        cluster.put_pod(Pod("default", f"pending-{number}", uid=f"uid-{number}", requests=requests))
    settings = Settings(decisions=HistorySettings(path, max_mb=1024), warm_up_s=0.0)
    controller = Controller(settings, cluster)
    async with controller.storing_decisions():
        scheduler = _Counting(
            cluster,
            controller.state,
            controller.telemetry,
            controller.decisions,
            SchedulingProfile(KubeDefault(), FILTERS, Random(1)),
            controller.clock,
        )
        if disk_s:
            slow_disk(disk_s)
        before_mib = peak_bytes(os.getpid()) / MIB
        running = asyncio.create_task(scheduler.run())
        begin_s = time.monotonic()
        for number in range(nodes):
            await asyncio.sleep(every_s)
            cluster.put_node(_node(number))
        per_s = scheduler.decided / (time.monotonic() - begin_s)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        stop_s = time.monotonic()
    stop_s = time.monotonic() - stop_s
    grown_mib = peak_bytes(os.getpid()) / MIB - before_mib
    kept, in_detail = _kept(path)
    return Outcome(
        *(scheduler.decided, kept, in_detail, round(grown_mib, 1)),
        *(round(per_s, 1), round(stop_s, 2), tuple(lines.lines)),
    )


def _kept(path: Path) -> tuple[int, int]:
    database = Database(path, 1024 * MIB, float("inf"))
    try:
        counts = [(row.times, len(row.explanation) > 0) for row in database.all()]
    finally:
        database.close()
    return sum(times for times, _ in counts), sum(detailed for _, detailed in counts)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, handlers=[logging.NullHandler()])
    with tempfile.TemporaryDirectory(prefix="leadline-joining-") as folder:
        count, joining, every_s, disk_s = sys.argv[1:]
        path = Path(folder) / "d.db"
        measured = asyncio.run(work(path, int(count), int(joining), float(every_s), float(disk_s)))
    print(json.dumps(asdict(measured)), flush=True)
