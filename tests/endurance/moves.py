"""How often a strategy moves pods in a simulated week, and how long requests wait meanwhile.

Real: the scheduler, the rescheduler in its mode `automatic` with its defaults, the planner of
probes and ingestion of encoded messages. Simulated: the clock, the API server, boards, links,
services and users. The same seed has the same boards, faults and load for every strategy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import fmean
from unittest.mock import patch

from leadline_controller import loops
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import Event
from leadline_controller.history.times import Moment
from leadline_controller.rescheduling import rescheduler as reschedulers
from leadline_controller.rescheduling.rescheduler import ReschedulingSettings
from leadline_controller.settings import Settings
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.work import Work, running

from tests.controller.probing.day_boards import CLUSTER
from tests.endurance.api_server import SimulatedApiServer
from tests.endurance.boards import Session
from tests.endurance.bookkeeper import Bookkeeper
from tests.endurance.loop import SimulatedLoop
from tests.endurance.process import Clock, CountingRecorder
from tests.endurance.week_boards import DAY_S, HOUR_S, Weather, WeekBoards, WeekMembers, plan
from tests.endurance.workloads import Waited, Workloads, mean_ms

# A pod that comes back within this time wanders.
RETURN_S = 2 * HOUR_S
_FIRST_UNIX_S = 1_800_000_000.0
_TURN_S, _LOOK_S, _JOBS_GAP_S = 10.0, 300.0, 600.0
# How often in a day of one board.
_MEMBERS_RATES = {
    "agents that died": 1.0,
    "boards without power": 0.3,
    "boards that left": 0.05,
    "nodes that were cordoned": 0.1,
    "links that flapped": 0.1,
    "links that were throttled": 0.5,
}
# Rarer than in the controller, because most of the time goes there.
_PATCHES = (
    (loops, "_PROBE_TICK_S", 120.0),
    (loops, "_ESTIMATE_EVERY_S", 300.0),
    (loops, "_SAMPLE_EVERY_S", HOUR_S),
    (loops, "_LEARN_EVERY_S", 60.0),
    (reschedulers, "_POLL_S", 10.0),
    (reschedulers, "_LOOK_S", 60.0),
)


@dataclass(frozen=True, slots=True)
class Run:
    """How a run goes. eventful: how many times as often something happens to boards and links."""

    strategy: str
    hours: float = 168.0
    boards: int = 12
    seed: int = 0
    eventful: float = 1.0


@dataclass(frozen=True, slots=True)
class Move:
    """A move that began."""

    at_s: float
    workload: str
    source: str
    target: str
    why: str

    @property
    def cause(self) -> str:
        """What was worse: a metric of the board, by its name."""
        return self.why.partition(" ")[0]

    def __str__(self) -> str:
        return (
            f"{self.at_s / HOUR_S:.2f} h: {self.workload}, {self.source} -> {self.target}: "
            f"{self.why}"
        )


@dataclass(slots=True)
class Found:
    """What one week had."""

    moves: list[Move] = field(default_factory=list)
    endings: Mapping[str, int] = field(default_factory=dict)
    waited: list[tuple[float, float]] = field(default_factory=list)  # network and work, ms
    faults: Counter[str] = field(default_factory=Counter)
    placed: int = 0

    def returns(self, within_s: float = RETURN_S) -> Iterator[tuple[Move, Move]]:
        """Pairs of moves of one workload, of which the second goes back to the node that the first
        has left, no later than so."""
        for at, move in enumerate(self.moves):
            for earlier in self.moves[:at]:
                is_back = (earlier.workload, earlier.source) == (move.workload, move.target)
                if is_back and move.at_s - earlier.at_s <= within_s:
                    yield earlier, move

    @property
    def network_ms(self) -> float:
        """The mean of a request over the whole time."""
        return fmean(each for each, _ in self.waited)

    @property
    def work_ms(self) -> float:
        """As network_ms."""
        return fmean(each for _, each in self.waited)


class MovesServer(SimulatedApiServer):
    """Sees the moves by their events."""

    def __init__(self, book: Bookkeeper, loop: SimulatedLoop) -> None:
        super().__init__(book, loop)
        self.moves: list[Move] = []

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        if isinstance(about, Pod) and event.reason == "Rescheduling":
            ways, _, why = event.message.removeprefix("Moving from ").partition(": ")
            source, _, target = ways.partition(" to ")
            owner = about.labels.get("app", about.name)
            self.moves.append(Move(self.loop.now_s, owner, source, target, why))


class Week:
    """One run of one strategy."""

    def __init__(self, run: Run, loop: SimulatedLoop) -> None:
        seed = run.seed
        self._run, self._loop = run, loop
        self.found = Found()
        self._random = Random(seed)
        book = Bookkeeper()
        self.boards = WeekBoards(plan(run.boards, run.hours, seed), loop, book)
        self.server = MovesServer(book, loop)
        self._members = WeekMembers(self.server, self.boards, Random(f"{seed} members"))
        self.workloads = Workloads(
            *(self.server, self.boards, self._members, Random(f"{seed} pods"), _FIRST_UNIX_S)
        )
        self._weather = Weather(self.boards, Random(f"{seed} weather"))
        self._clock = Clock(loop, 20.0)
        self._settings = Settings(
            cluster=CLUSTER,
            seed=seed,
            strategy=run.strategy,
            warm_up_s=15.0,
            limits=self.boards.plan.limits,
            ttl=self.boards.plan.ttl,
            rescheduling=ReschedulingSettings(mode="automatic"),
        )

    async def run(self) -> Found:
        """Let the time pass."""
        run = self._run
        with ExitStack() as stack:
            stack.enter_context(self.boards.agents_clock())
            for each in _PATCHES:
                stack.enter_context(patch.object(*each))
            controller = self._controller(stack)
            for board in self.boards.boards:
                self._members.join(board)
                self.boards.at(self._random.uniform(0.0, 120.0), partial(self.boards.report, board))
            async with controller.storing_decisions(), running(*self._work(controller)):
                await asyncio.sleep(_LOOK_S)  # for the first measurements
                self._begin()
                await asyncio.sleep(run.hours * HOUR_S)
            found = self.found
            found.moves, found.placed = self.server.moves, self.server.book.counts["bound"]
            found.endings = dict(controller.rescheduler.endings.items())
        return found

    def _controller(self, stack: ExitStack) -> Controller:
        wiring = "leadline_controller.wiring.controller"
        stack.enter_context(patch(f"{wiring}.Recorder", CountingRecorder))
        stack.enter_context(patch(f"{wiring}.BrokerSession", self._session))
        controller = Controller(self._settings, self.server, clock=self._clock, now=self._moment)
        history = controller.history
        assert isinstance(history, CountingRecorder)
        self._loop.is_awaited = history.is_behind
        return controller

    def _work(self, controller: Controller) -> tuple[Work, ...]:
        """That of a controller which places and moves pods by what it measures; the rest would only
        take time."""
        assert controller.scheduler is not None
        return (
            controller.scheduler.run(),
            controller.rescheduler.run(),
            controller.measure(),
            loops.learn_use(controller.state, controller.telemetry, controller.clock),
        )

    def _session(
        self, _settings: object, ingestor: TelemetryIngestor, handler: object = None
    ) -> Session:
        return Session(self.boards, ingestor, self._clock.now_s)

    def _moment(self) -> Moment:
        return Moment("boot", self._clock.now_s(), _FIRST_UNIX_S - 20.0)

    def _begin(self) -> None:
        self._again("turns", lambda: _TURN_S, self.workloads.turn)
        self._again("looks", lambda: _LOOK_S, self._look)
        jobs = Random(f"{self._run.seed} jobs")
        self._again("jobs", lambda: jobs.expovariate(1 / _JOBS_GAP_S), self.workloads.start_job)
        happens: dict[str, tuple[float, Callable[..., None]]] = dict(self._weather.rates)
        happens |= {
            name: (rate, self._members.faults[name]) for name, rate in _MEMBERS_RATES.items()
        }
        for name, (rate, event) in happens.items():
            gap_s = DAY_S / (rate * self._run.eventful * len(self.boards.boards))
            # Numbers of its own for each: what comes, and where, depends on nothing else.
            random = Random(f"{self._run.seed} {name}")
            self._again(
                *(name, partial(random.expovariate, 1 / gap_s)),
                partial(self._happen, random, event),
            )

    def _happen(self, random: Random, event: Callable[..., None]) -> None:
        board = random.choice(self.boards.boards)
        self.boards.now_s = self._loop.now_s
        if board.is_member and board.is_running:
            event(board)

    def _look(self) -> None:
        waited: list[Waited] = list(self.workloads.waited())
        if waited:
            self.found.waited.append(mean_ms(waited))

    def _again(self, what: str, gap_s: Callable[[], float], event: Callable[[], None]) -> None:
        def turn() -> None:
            self.found.faults[what] += 1
            event()
            self._loop.call_later(gap_s(), turn)

        self._loop.call_later(gap_s(), turn)


def simulate(run: Run) -> Found:
    """Let a whole run pass."""
    logging.disable(logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, SimulatedLoop)
            return runner.run(Week(run, loop).run())
    finally:
        logging.disable(logging.NOTSET)
