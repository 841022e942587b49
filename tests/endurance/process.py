"""One controller in a simulated run: the real parts, as wiring/daemon.py joins them, on simulated
clocks and connections. It can be killed, or lose power, and another one goes on with its files."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from leadline_controller.history.recorder import Recorder
from leadline_controller.history.store import HistorySettings, Store
from leadline_controller.history.times import Moment
from leadline_controller.leaderelection.elector import LeaderElector
from leadline_controller.notify import Heartbeats
from leadline_controller.serve.settings import MetricsSettings
from leadline_controller.settings import Settings
from leadline_controller.telemetry.ingestor import TelemetryIngestor
from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.work import running

from tests.endurance.api_server import Connection, SimulatedApiServer
from tests.endurance.boards import EnduringBoards, Session
from tests.endurance.loop import SimulatedLoop

# The database's thread writes about as fast as the loop decides; beyond this the loop waits.
_BEHIND_BYTES = 16 << 20
_FIRST_UP_S, _LEAST_S = 20.0, 1e-6
_JOURNAL = "decisions.db-wal"


class Clock:
    """A machine's monotonic clock. up_s: at the loop's time 0."""

    def __init__(self, loop: SimulatedLoop, up_s: float) -> None:
        self._loop, self._up_s = loop, up_s

    def now_s(self) -> float:
        return self._loop.now_s + self._up_s

    async def sleep(self, duration_s: float) -> None:
        # What rounding leaves until something is due would pass on a real clock meanwhile.
        await asyncio.sleep(max(duration_s, _LEAST_S) if duration_s > 0 else 0)


class CountingRecorder(Recorder):
    """asked: how many wait for its thread, for whom the simulated clock must wait."""

    asked = 0

    async def _query(self, query: Callable[[Store], Any]) -> Any:
        self.asked += 1
        try:
            return await super()._query(query)
        finally:
            self.asked -= 1

    def is_behind(self) -> bool:
        """Whether the clock must not go on."""
        return self.asked > 0 or self.waiting_bytes() > _BEHIND_BYTES

    def wait_idle(self) -> None:
        """Wait until the thread does nothing, so that its files can be copied."""
        while self._busy_s is not None:
            time.sleep(0.001)


class Machine:
    """The server's machine over its boots. unix_s: reads its wall clock."""

    def __init__(self, loop: SimulatedLoop, unix_s: Callable[[], float]) -> None:
        self.loop, self.unix_s, self._boots = loop, unix_s, 0
        self.boot()

    def boot(self) -> None:
        """The machine starts."""
        self._boots += 1
        self.boot_id = f"boot-{self._boots}"
        self.clock = Clock(self.loop, _FIRST_UP_S - self.loop.now_s)


class Process:
    """A controller's process, with its files in `folder`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: Settings,
        machine: Machine,
        server: SimulatedApiServer,
        boards: EnduringBoards,
        random: Random,
    ) -> None:
        self.name, self.folder = name, folder
        self.path = folder / "decisions.db"
        history = HistorySettings(self.path, settings.decisions.max_mb)
        # Only so that its counters count; nothing listens.
        metrics = MetricsSettings("127.0.0.1:0")
        self._settings = replace(settings, decisions=history, metrics=metrics)
        self.clock, self._boot_id, self._unix_s = machine.clock, machine.boot_id, machine.unix_s
        self.connection = Connection(server, name, random)
        self.elector = LeaderElector(self.connection, name, self.clock)
        self.connection.fence = self.elector
        self.recorder = CountingRecorder(history, self.moment)
        self._boards = boards
        self._session: Session | None = None
        wiring = "leadline_controller.wiring.controller"
        with (
            patch(f"{wiring}.Recorder", lambda *_: self.recorder),
            patch(f"{wiring}.BrokerSession", self._connected),
        ):
            self.controller = Controller(
                self._settings,
                self.connection,
                leadership=self.elector,
                clock=self.clock,
                heartbeats=Heartbeats(self.clock.now_s),
                now=self.moment,
            )
        self._stop = asyncio.Event()
        self.begun_s = server.loop.now_s
        self.task = asyncio.create_task(self._run(), name=name)

    def moment(self) -> Moment:
        """In place of history.times.now."""
        up_s = self.clock.now_s()
        return Moment(self._boot_id, up_s, self._unix_s() - up_s)

    def _connected(
        self, _settings: object, ingestor: TelemetryIngestor, handler: object = None
    ) -> Session:
        """In place of BrokerSession."""
        self._session = Session(self._boards, ingestor, self.clock.now_s)
        return self._session

    def is_able(self) -> bool:
        """Whether it leads and knows the cluster."""
        return not self.task.done() and self.controller.state.listed and self.elector.leads()

    async def _run(self) -> None:
        controller = self.controller
        async with (
            controller.storing_decisions(),
            running(self._stop.wait()) as stopping,
            running(self.elector.run()) as electing,
            running(*controller.work()) as working,
        ):
            ends = (electing, working, stopping)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def end(self) -> None:
        """End it as systemd does."""
        self._stop.set()
        await asyncio.wait((self.task,))

    def kill(self, to: Path | None, random: Random | None = None) -> None:
        """End it as SIGKILL does, and copy its files as they are, unless nobody needs them. random:
        as a power cut does, which may also lose the end of the journal."""
        self.connection.cut()
        if self._session is not None:
            self._session.stop()
        self.task.cancel()
        if to is None:
            return
        self.recorder.wait_idle()
        to.mkdir()
        for name in (self.path.name, _JOURNAL):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, to / name)
        if random is not None and (to / _JOURNAL).exists():
            size = (to / _JOURNAL).stat().st_size
            with (to / _JOURNAL).open("r+b") as file:
                file.truncate(random.randint(min(self._synced_bytes(), size), size))

    def _synced_bytes(self) -> int:
        """What a power cut leaves of the journal at least: SQLite has it synchronized before it
        copies it into the file (see sqlite.org/walformat.html, 4.2: nBackfill)."""
        with self.path.open("rb") as file:
            page_bytes = int.from_bytes(file.read(18)[16:])
        with self.path.with_name(f"{self.path.name}-shm").open("rb") as file:
            copied = int.from_bytes(file.read(100)[96:], sys.byteorder)
        return 32 + copied * (24 + page_bytes)


def write_older_version(path: Path) -> None:
    """A database as the version before wrote it."""
    path.parent.mkdir(parents=True)
    older = Path(__file__).parents[1] / "controller/history/decisions-version-2.db.gz"
    path.write_bytes(gzip.decompress(older.read_bytes()))
