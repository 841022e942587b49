"""A cluster over simulated days: the real controller, its users, and all that goes wrong.

Real: the scheduler with its queue and cycle, the election, the planner of probes with its grants,
ingestion of encoded messages, history, the rescheduler and the database on a disk. Simulated: the
clock, the API server, the broker, boards and kubelets. A bookkeeper sees what crosses the ports.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from unittest.mock import patch

from leadline_controller import loops
from leadline_controller.history.store import HistorySettings
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.settings import Settings
from leadline_controller.telemetry.state import TimesToLive

from tests.controller.probing.day_boards import CLUSTER, Plan
from tests.endurance.api_server import SimulatedApiServer
from tests.endurance.boards import EnduringBoards
from tests.endurance.bookkeeper import Bookkeeper
from tests.endurance.churn import Churn
from tests.endurance.decisions import compare
from tests.endurance.loop import SimulatedLoop
from tests.endurance.members import Members
from tests.endurance.process import Machine, Process, write_older_version
from tests.endurance.samples import Sample, database_bytes, process_now

HOUR_S = 3600.0
JOURNAL_MB = 8
_FIRST_UNIX_S = 1_800_000_000.0
# Rarer than in the controller: `make day` has the planner at its own pace.
_TICK_S, _ESTIMATE_S, _SAMPLER_S = 30.0, 900.0, 30.0
_LOOK_S = 30.0
# A rested cluster, whose decisions can be compared with the database.
_RESTED_S = 150.0
_SETTLED_S = 30.0


@dataclass(frozen=True, slots=True)
class Run:
    """How a run goes."""

    hours: float = 72.0
    boards: int = 200
    seed: int = 0
    # New pods a second in the busy share of each hour, and a hundredth of it in the rest.
    churn_per_s: float = 10.0
    busy_share: float = 0.1
    faults: float = 1.0  # how often all goes wrong, 1.0 for the rates in FAULTS
    max_mb: int = 64
    sample_s: float = HOUR_S

    def plan(self) -> Plan:
        """Of the boards. Checks, reports and pings are rarer than by default, because they are not
        the subject; the budgets and leases are as always."""
        return Plan(
            boards=self.boards,
            hours=self.hours,
            seed=self.seed,
            report_every_s=300.0,
            limits=ProbeLimits(interval_s=600.0, ping_interval_s=1800, ping_ttl_s=5400),
            ttl=TimesToLive(report_s=700.0, rtt_s=6000.0),
        )


# Each with its rate: how often in an hour, of 200 boards.
FAULTS: dict[str, float] = {
    "agents that died": 20.0,
    "boards without power": 4.0,
    "boards that left": 1.0,
    "nodes that were cordoned": 3.0,
    "links that flapped": 3.0,
    "links that were throttled": 10.0,
    "boards' clocks that were set": 50.0,
    "broker outages": 0.5,
    "API server outages": 0.5,
    "watches that ended": 1.0,
    "wall clocks of the server that jumped": 0.3,
    "restarts of the controller": 0.6,
}


class LogCount(logging.Handler):
    """The log's size, and its lines by what they say."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self.bytes = 0
        self.lines: Counter[str] = Counter()
        self.errors: deque[str] = deque(maxlen=10)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.bytes += len(text) + 1
        self.lines[f"{record.levelname} {record.name.rpartition('.')[2]}: {record.msg}"] += 1
        if record.levelno >= logging.ERROR:
            self.errors.append(text)


class Endurance:
    """One run. `book` has what was found, `samples` what it needed."""

    def __init__(self, run: Run, folder: Path, loop: SimulatedLoop, log: LogCount) -> None:
        self.run_as, self.folder, self.loop, self.log = run, folder, loop, log
        self.random = Random(run.seed)
        self.book = Bookkeeper()
        self.counts: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.boards = EnduringBoards(run.plan(), loop, self.book)
        self.server = SimulatedApiServer(self.book, loop)
        self._members = Members(self.server, self.boards, self.random)
        self._churn = Churn(self.server, self.boards.boards, self.random)
        self.server.on_bound = self._churn.bound
        self._wall_s = _FIRST_UNIX_S
        self._machine = Machine(loop, self._unix_s)
        self._faults: Mapping[str, Callable[[], None]] = {
            "broker outages": self._stop_broker,
            "API server outages": self._stop_server,
            "watches that ended": self.server.end_watches,
            "wall clocks of the server that jumped": self._jump,
            "restarts of the controller": self._begin_restart,
        }
        self._processes: list[Process] = []  # the one that runs, or none
        self._ended: set[asyncio.Task[None]] = set()
        self._restarting: set[asyncio.Task[None]] = set()
        self._folders = self._begun = 0
        self._able_since_s = inf
        self._rested_since_s = 0.0
        self._settings = Settings(
            cluster=CLUSTER,
            seed=run.seed,
            warm_up_s=15.0,
            limits=self.boards.plan.limits,
            budget=self.boards.plan.budget,
            uplinks=self.boards.uplinks,
            ttl=self.boards.plan.ttl,
            rescheduling=ReschedulingSettings(mode="manual"),
            decisions=HistorySettings(max_mb=run.max_mb),
        )
        loop.is_awaited = lambda: any(each.recorder.is_behind() for each in self._processes)
        loop.set_exception_handler(self._unhandled)

    async def run(self, show: Callable[[object], None] = lambda _: None) -> None:
        """Let the time pass. show: gets each sample."""
        run = self.run_as
        with (
            self.boards.agents_clock(),
            patch.object(loops, "_PROBE_TICK_S", _TICK_S),
            patch.object(loops, "_ESTIMATE_EVERY_S", _ESTIMATE_S),
            patch.object(loops, "_SAMPLE_EVERY_S", _SAMPLER_S),
        ):
            for board in self.boards.boards:
                self._members.join(board)
                first_s = self.random.uniform(0.0, self.boards.plan.report_every_s)
                self.boards.at(first_s, partial(self.boards.report, board))
            folder = self._new_folder()
            write_older_version(folder / "decisions.db")
            self._begin(folder)
            self._again(self._next_arrival_s, lambda: self._churn.arrive(self._unix_s()))
            self._again(lambda: _LOOK_S, self._look)
            for fault, rate in FAULTS.items():
                scale = run.boards / 200 if fault in self._members.faults else 1.0
                if rate * scale * run.faults > 0:
                    gap_s = HOUR_S / (rate * scale * run.faults)
                    # A number of its own for each: how often one comes depends on nothing else.
                    gaps = Random(f"{run.seed} {fault}")
                    self._again(partial(gaps.expovariate, 1 / gap_s), partial(self._fault, fault))
            while self.loop.now_s < run.hours * HOUR_S:
                await asyncio.sleep(min(run.sample_s, run.hours * HOUR_S - self.loop.now_s))
                await self._sample()
                show(self.samples[-1])
            await self._finish()

    def _next_arrival_s(self) -> float:
        run = self.run_as
        is_busy = self.loop.now_s % HOUR_S < run.busy_share * HOUR_S
        return self.random.expovariate(run.churn_per_s * (1.0 if is_busy else 0.01))

    # What goes wrong.

    def _fault(self, what: str) -> None:
        self.counts[what] += 1
        self.boards.now_s = self.loop.now_s
        if what in self._faults:
            self._faults[what]()
        elif (board := self._members.some()) is not None:
            self._members.faults[what](board)

    def _stop_broker(self) -> None:
        if self.boards.is_broker_up:
            self.boards.stop_broker(forgets=self.random.random() < 0.5)
            self.loop.call_later(self.random.uniform(2.0, 120.0), self._start_broker)

    def _start_broker(self) -> None:
        self.boards.now_s = self.loop.now_s
        self.boards.start_broker()

    def _stop_server(self) -> None:
        if self.server.is_up:
            self._disturb()
            self.server.stop()
            away_s = self.random.choice((2.0, 8.0, 20.0, 60.0, 180.0))
            self.loop.call_later(away_s, self.server.start)

    def _jump(self) -> None:
        self._wall_s += self.random.choice((-1, 1)) * self.random.uniform(60.0, 900.0)

    def _begin_restart(self) -> None:
        if len(self._processes) != 1:
            return  # another restart is under way
        how = (self._kill, self._upgrade, self._lose_power, self._take_over)
        self.counts["restarts begun"] += 1
        self._disturb()
        task = asyncio.create_task(how[self.counts["restarts begun"] % len(how)]())
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)

    async def _kill(self) -> None:
        self.counts["killed"] += 1
        process, folder = self._processes.pop(), self._new_folder()
        process.kill(folder)
        self._watch_end(process, folder)
        await asyncio.sleep(2.0)
        self._begin(folder)

    async def _lose_power(self) -> None:
        self.counts["without power"] += 1
        process, folder = self._processes.pop(), self._new_folder()
        process.kill(folder, self.random)
        self._watch_end(process, folder)
        self._machine.boot()
        await asyncio.sleep(45.0)
        self._begin(folder)

    async def _upgrade(self) -> None:
        self.counts["upgraded"] += 1
        process = self._processes.pop()
        await process.end()
        process.connection.cut()
        self._watch_end(process, process.folder)
        await asyncio.sleep(5.0)
        self._begin(process.folder)

    async def _take_over(self) -> None:
        """A standby on the same machine, with files of its own, leads after the leader's death."""
        self.counts["taken over"] += 1
        folder = self._new_folder()
        self._begin(folder)
        await asyncio.sleep(60.0)
        self._disturb()
        process = self._processes.pop(0)
        process.kill(None)
        self._watch_end(process, folder)

    def _watch_end(self, process: Process, used: Path) -> None:
        """used: the folder of the next one."""
        self._ended.add(process.task)
        process.task.add_done_callback(partial(self._over, process.folder, used))

    def _over(self, old: Path, used: Path, task: asyncio.Task[None]) -> None:
        self._ended.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.book.violated("the controller raised", self.loop.now_s, repr(error))
        if old != used:
            shutil.rmtree(old)

    def _begin(self, folder: Path) -> None:
        self._begun += 1
        process = Process(
            f"controller-{self._begun}",
            folder,
            self._settings,
            self._machine,
            self.server,
            self.boards,
            Random(self.run_as.seed + self._begun),
        )
        self._processes.append(process)

    def _new_folder(self) -> Path:
        self._folders += 1
        return self.folder / f"state-{self._folders}"

    def _disturb(self) -> None:
        self._able_since_s = inf
        self._rested_since_s = inf

    def _unix_s(self) -> float:
        return self.loop.now_s + self._wall_s

    # What is looked at.

    def _look(self) -> None:
        now_s = self.loop.now_s
        is_able = self.server.is_up and any(each.is_able() for each in self._processes)
        if not is_able:
            self._disturb()
        elif self._able_since_s == inf:
            self._able_since_s, self._rested_since_s = now_s + _SETTLED_S, now_s
        self.book.look(now_s, self._able_since_s)
        self.boards.small_audit.report(now_s)
        for process in self._processes:
            if process.task.done():
                self.book.violated("the controller ended", now_s, process.name)

    async def _sample(self) -> None:
        while not self._processes:  # noqa: ASYNC110  # between two there is nothing to measure
            await asyncio.sleep(1.0)
        gc.collect()
        now_s = self.loop.now_s
        process = self._processes[0]
        if now_s - self._rested_since_s > _RESTED_S:
            await process.recorder.measure()  # after all that waits is written
            self.counts["decisions compared"] += compare(process.path, self.book, now_s)
        rss, descriptors, threads = process_now()
        book = self.book
        self.samples.append(
            Sample(
                now_s,
                rss,
                descriptors,
                threads,
                database_bytes(process.path),
                self.log.bytes,
                book.counts["created"],
                book.counts["bound"],
                book.counts["gone, bound"] + book.counts["gone, pending"],
                len(book.pending),
                self._begun - 1,
                sum(book.violations.values()),
            )
        )

    async def _finish(self) -> None:
        """No more pods come. Let those that can be placed be placed, and end the controller."""
        for process in list(self._processes):
            await process.end()
            self._over(process.folder, process.folder, process.task)
        self._processes.clear()
        for task in (*self._ended, *self._restarting):
            task.cancel()
        await asyncio.gather(*self._ended, *self._restarting, return_exceptions=True)
        counts, book = self.book.counts, self.book
        alive = len(self.server.pods)
        gone = counts["gone, bound"] + counts["gone, pending"]
        if counts["created"] != alive + gone or len(book.pods) != alive:
            self.book.violated(
                "pods are not accounted for",
                self.loop.now_s,
                f"{counts['created']} created, {gone} gone, {alive} there",
            )

    def _again(self, gap_s: Callable[[], float], event: Callable[[], None]) -> None:
        """Call it again and again."""

        def turn() -> None:
            event()
            self.loop.call_later(gap_s(), turn)

        self.loop.call_later(gap_s(), turn)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        what = context.get("exception") or context.get("message")
        self.book.violated("unhandled", self.loop.now_s, repr(what))


def simulate(run: Run, folder: Path, show: Callable[[object], None] = lambda _: None) -> Endurance:
    """Let a whole run pass, and return it."""
    log, logger = LogCount(), logging.getLogger("leadline_controller")
    before = logger.level, logger.propagate
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, SimulatedLoop)
            endurance = Endurance(run, folder, loop, log)
            runner.run(endurance.run(show))
        return endurance
    finally:
        logger.removeHandler(log)
        logger.setLevel(before[0])
        logger.propagate = before[1]
