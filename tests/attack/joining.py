"""Thousands of pods that fit nowhere, and nodes that join one by one: each of them wakes every pod.

A process of its own, so that its memory can be measured: the real scheduler with all filters, on
a cluster in memory, and the real history on disk. It prints one line of JSON: see Outcome.
"""

import asyncio
import json
import logging
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Rule, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.framework.ports import Event, NodeChanged, Relisted
from leadline_controller.history.log import PENDING
from leadline_controller.history.record import Change
from leadline_controller.history.store import HistorySettings, Store
from leadline_controller.scheduling.decision_step import DecisionStep
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.settings import Settings
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_controller.wiring import Controller

from tests.support.memory import peak_bytes
from tests.support.memory_cluster import MemoryCluster

MIB = 2**20


@dataclass(frozen=True)
class Outcome:
    """What came of an attack."""

    decided: int  # decisions that the scheduler made
    kept: int  # those that the file has, each repetition counted
    in_detail: int  # rows with their scores and refusals
    # Resident memory at its highest, beyond what the pending pods took before the first node
    # joined.
    grown_mib: float
    per_s: float  # decisions a second
    stop_s: float  # how long stopping took
    warnings: tuple[str, ...]  # lines of the history's log


class _Counting(DecisionStep):
    decided = 0

    def record(self, decision: Decision, outcome: str = PENDING) -> None:
        self.decided += 1
        super().record(decision, outcome)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def slow_disk(each_write_s: float) -> None:
    """Have every transaction from now on wait so long for the disk."""
    write = Store.write

    def slowly(self: Store, changes: Iterable[Change]) -> int:
        time.sleep(each_write_s)
        return write(self, changes)

    setattr(Store, "write", slowly)  # noqa: B010  # what the class has is typed


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
        yield decide(view, pod, Rule(Dacs(), FILTERS, Random(1)))


def _node(number: int) -> Node:
    return Node(f"board-{number}", {CPU: 4000, MEMORY: 2**32, PODS: 110}, ready=True)


async def work(path: Path, pods: int, nodes: int, every_s: float, disk_s: float = 0.0) -> Outcome:
    """Have `nodes` nodes join, one each `every_s` seconds, beside `pods` pending pods, with a
    disk that takes `disk_s` for each transaction."""
    lines = _Lines()
    logging.getLogger("leadline_controller.history").addHandler(lines)
    cluster = _Cluster()
    for number in range(pods):
        requests = {CPU: 64_000, MEMORY: 2**30, PODS: 1}
        cluster.put_pod(Pod("default", f"pending-{number}", uid=f"uid-{number}", requests=requests))
    settings = Settings(decisions=HistorySettings(path, max_mb=1024), warm_up_s=0.0)
    controller = Controller(settings, cluster)
    async with controller.storing_decisions():
        by = Rule(KubeDefault(), FILTERS, Random(1))
        parts = (controller.state, controller.telemetry, controller.decisions)
        step = _Counting(*parts, by, controller.clock)
        scheduler = Scheduler(cluster, step)
        if disk_s:
            slow_disk(disk_s)
        before_mib = peak_bytes(os.getpid()) / MIB
        running = asyncio.create_task(scheduler.run())
        begin_s = time.monotonic()
        for number in range(nodes):
            await asyncio.sleep(every_s)
            cluster.put_node(_node(number))
        per_s = step.decided / (time.monotonic() - begin_s)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        stop_s = time.monotonic()
    stop_s = time.monotonic() - stop_s
    grown_mib = peak_bytes(os.getpid()) / MIB - before_mib
    kept, in_detail = _kept(path)
    return Outcome(
        *(step.decided, kept, in_detail, round(grown_mib, 1)),
        *(round(per_s, 1), round(stop_s, 2), tuple(lines.lines)),
    )


def _kept(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT sum(record ->> 7), sum(length(explanation) > 0) FROM decisions"
        times, detailed = connection.execute(sql).fetchone()
    return times, detailed


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, handlers=[logging.NullHandler()])
    with tempfile.TemporaryDirectory(prefix="leadline-joining-") as folder:
        count, joining, every_s, disk_s = sys.argv[1:]
        path = Path(folder) / "d.db"
        measured = asyncio.run(work(path, int(count), int(joining), float(every_s), float(disk_s)))
    print(json.dumps(asdict(measured)), flush=True)
