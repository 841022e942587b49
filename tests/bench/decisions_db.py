"""The cost of recording every decision: the scheduler's time, bytes on disk, and pruning.

DACS with all filters decides over clusters of 4 to 5,000 nodes, at a rate at which pods can be
bound, once without a recorder and once with a recorder that writes the decisions to disk.
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles

import numpy as np
from leadline_controller.decisions import times
from leadline_controller.decisions.database import Database
from leadline_controller.decisions.explanation import encode, explanation
from leadline_controller.decisions.log import BOUND, PENDING, DecisionLog
from leadline_controller.decisions.record import DecisionRecord
from leadline_controller.decisions.recorder import KEPT_NODES, Recorder
from leadline_controller.decisions.store import HistorySettings
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Strategy, decide
from leadline_controller.framework.options import build, values_of
from leadline_controller.framework.view import METRICS, ClusterView
from leadline_controller.strategies import STRATEGIES

from tests.bench.decision import cluster, pods

SIZES = (4, 100, 1000, 5000)
DECISIONS = 2000
PER_S = 250
MIB = 1024 * 1024
DACS: Strategy = build(STRATEGIES["dacs"], {})


def view_of(size: int) -> ClusterView:
    """The benchmark's cluster with the times of all measurements."""
    view = cluster(size)
    at_s = np.random.default_rng(size).uniform(0, 60, (size, len(METRICS)))
    return replace(view, metrics=replace(view.metrics, measured_at_s=at_s))


def decisions(size: int) -> Iterator[Decision]:
    """Decisions about one new pod after another."""
    view, templates, random = view_of(size), pods(size), Random(0)
    number = 0
    while True:
        for pod in templates:
            number += 1
            new_pod = replace(pod, name=f"{pod.name}-{number}", uid=f"{number:032x}")
            yield decide(replace(view), new_pod, FILTERS, DACS, random)


def paced(size: int, log: DecisionLog) -> tuple[list[float], list[float]]:
    """Milliseconds of each decision, and of logging it, at PER_S decisions a second."""
    options, source, decide_ms, log_ms = values_of(DACS), decisions(size), [], []
    due_s = time.perf_counter()
    for _ in range(DECISIONS):
        due_s += 1 / PER_S
        time.sleep(max(0.0, due_s - time.perf_counter()))
        start = time.perf_counter()
        decision = next(source)
        between = time.perf_counter()
        log.add(decision, 60.0, PENDING, options)
        log.set_outcome(decision.pod.key, BOUND)
        log_ms.append((time.perf_counter() - between) * 1e3)
        decide_ms.append((between - start) * 1e3)
    return decide_ms, log_ms


@contextmanager
def recording(path: Path) -> Iterator[Recorder]:
    """A recorder that writes to disk."""
    recorder = Recorder(HistorySettings(path))
    recorder.start()
    try:
        yield recorder
    finally:
        asyncio.run(recorder.stop())


def added_time(folder: Path) -> None:
    """Measure the scheduling loop without and with the recorder."""
    print(f"{'':8}{'deciding, ms: median/p99':>32}{'logging, ms: median/p99':>32}{'thread,':>12}")
    print(f"{'nodes':8}{'without':>16}{'with':>16}{'without':>16}{'with':>16}{'ms each':>12}")
    for size in SIZES:
        without = paced(size, DecisionLog())
        with recording(folder / f"{size}.db") as recorder:
            with_ = paced(size, DecisionLog(sink=recorder.put))
        columns = (without[0], with_[0], without[1], with_[1])
        cells = "".join(f"{median(x):9.3f} {quantiles(x, n=100)[98]:6.3f}" for x in columns)
        print(f"{size:<8,}{cells}{thread_ms(size):12.3f}", flush=True)


def thread_ms(size: int) -> float:
    """The time of the recorder's thread for one decision, without the database."""
    source = decisions(size)
    spent = []
    for _ in range(100):
        decision = next(source)
        start = time.perf_counter()
        encode(explanation(decision, 60.0, KEPT_NODES))
        spent.append(time.perf_counter() - start)
    return median(spent) * 1e3


def sizes(folder: Path) -> None:
    """Print the bytes of an explanation, and of the whole file for each decision."""
    print(f"\n{'nodes':8}{'explanation, B':>12}{'file, B':>12}{'in 64 MiB':>12}")
    for size in SIZES:
        source = decisions(size)
        lengths = [len(encode(explanation(next(source), 60.0, KEPT_NODES))) for _ in range(200)]
        path = folder / f"{size}.db"
        with closing(sqlite3.connect(path)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM decisions").fetchone()
        each = path.stat().st_size / count
        print(f"{size:<8,}{mean(lengths):12.0f}{each:12.0f}{64 * MIB / each:12,.0f}")


def pruning(folder: Path) -> None:
    """Write batches into a database with room, and into a full one."""
    now, options = times.now(), values_of(DACS)
    records = [
        DecisionRecord.of(each, 60.0, BOUND, options, now).encoded(KEPT_NODES)
        for each in islice(decisions(100), 500)
    ]
    print(f"\n{'a batch of 64, ms':24}{'median':>10}{'p99':>10}{'largest':>10}")
    for name, max_mb in (("with room", 1024), ("full at 16 MiB", 16)):
        database = Database(folder / f"pruned-{max_mb}.db", max_mb * MIB, 1e9)
        spent = []
        for turn in range(200):
            batch = [
                record._replace(pod=f"default/p-{turn}-{i}", uid=f"{turn}-{i}")
                for i, record in enumerate(records[turn % 400 : turn % 400 + 64])
            ]
            start = time.perf_counter()
            database.write(batch, times.now())
            spent.append((time.perf_counter() - start) * 1e3)
        database.close()
        half = spent[100:]
        print(f"{name:24}{median(half):10.2f}{quantiles(half, n=100)[98]:10.2f}{max(half):10.2f}")


def main() -> None:
    """Measure and print; takes about a minute."""
    with tempfile.TemporaryDirectory(prefix="leadline-bench-") as name:
        print(f"{DECISIONS} decisions a row, {PER_S} a second; {os.cpu_count()} processors")
        added_time(Path(name))
        sizes(Path(name))
        pruning(Path(name))


if __name__ == "__main__":
    main()
