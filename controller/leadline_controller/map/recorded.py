"""A recording in place of a running controller: its entries go into the same states, and what the
page shows of the past is kept from them by the recorded clock, as the controller keeps its own.

Nobody has to trust a recording: an entry that makes no sense is left out and counted.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory

from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.cycle import Rule, Scores, Strategy
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.history.log import PENDING, DecisionLog
from leadline_controller.history.record import Change, DecisionRecord, bounded_text
from leadline_controller.history.recorded import (
    Began,
    Changed,
    Decided,
    Entry,
    Learnt,
    Missed,
    Pulled,
)
from leadline_controller.history.recorder import Recorder
from leadline_controller.history.recording_export import File, file_of
from leadline_controller.history.recording_files import (
    Damage,
    RecordingError,
    read_recording,
    recordings,
)
from leadline_controller.history.store import HistorySettings, Store
from leadline_controller.history.times import Moment
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.leaderelection.elector import SOLE_LEADER
from leadline_controller.map.feed import Recorded
from leadline_controller.map.journal import PlacementJournal
from leadline_controller.map.server import WebServer
from leadline_controller.map.settings import WebSettings
from leadline_controller.probing.addresses import AddressPolicy
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.scheduling.shadow import Shadow
from leadline_controller.telemetry.accepted import Born, Pinged, Reported, Tested
from leadline_controller.telemetry.sampler import Sampler
from leadline_controller.telemetry.series import FINE, Block
from leadline_controller.telemetry.session import BrokerStatus
from leadline_controller.telemetry.state import TelemetryState, TimesToLive
from leadline_controller.telemetry.traffic import TrafficReports
from leadline_controller.traffic.graph import TrafficGraph

# As a controller: see `loops`, and Feed for the boards' states.
_SAMPLE_EVERY_S, _LOOK_EVERY_S = 10.0, 60.0
_LATEST_UNIX_S = 1e10
_LONGEST_TTL_S = 1e7
_MOST_MOVES, _MOST_STATES = 500_000, 1024
_REPORT_EVERY = 1024
_MOST_MB = 1024
_CHANGES_AT_ONCE = 1000


@dataclass(slots=True)
class RecordedClock:
    """Stands where the recording is: at_s on the clock of its decisions, unix_s never goes back."""

    at_s: float = 0.0
    unix_s: float = 0.0

    def now_s(self) -> float:
        """On the clock of the states."""
        return self.at_s

    async def sleep(self, duration_s: float) -> None:  # noqa: ARG002  # the clock stands
        """For ever."""
        await asyncio.Event().wait()


class _Unknown(Strategy):
    """Stands for the recorded strategy, whose scores are not recorded."""

    better = "lower"
    paper = ""
    needs = ()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        raise NotImplementedError


class RecordedParts:
    """The parts of the controller that recorded, as far as the map reads them, at the time up to
    which they were fed. folder: for what is kept of the past. The methods are called in the event
    loop."""

    scheduler: Scheduler | None = None
    shadow: Shadow | None = None
    advises = False
    leadership = SOLE_LEADER
    # Which addresses the controller allowed is not recorded.
    address_policy = AddressPolicy((ip_network("0.0.0.0/0"), ip_network("::/0")))

    def __init__(self, folder: Path) -> None:
        settings = HistorySettings(folder / "map.db", max_mb=_MOST_MB, max_age_days=36_500)
        self.clock = RecordedClock()
        self.history = Recorder(settings, self._now)
        self._store = Store(settings, self._now)
        self._changes: list[Change] = []
        self.decisions = DecisionLog(sink=self._changes.append, now=self._now)
        self.missed = self.refused = 0  # entries that are missing, and that make no sense
        self.from_unix_s: float | None = None  # None before the first entry
        self._begin(Began(None, "", "", "unknown", {}, 0))
        self.traffic_graph = TrafficGraph(TrafficReports())  # of it nothing is recorded
        self.journal = PlacementJournal(
            *(lambda: self.clock.unix_s, self.scheduler_name),
            most_moves=_MOST_MOVES,
            most_states=_MOST_STATES,
        )

    @property
    def session(self) -> "RecordedParts":
        """As far as nodes are read from it."""
        return self

    def status(self) -> BrokerStatus:
        """Of the session: what was recorded came through it."""
        return BrokerStatus("", connected=True, since_s=0.0, heard_s=self.clock.at_s)

    async def feed(self, entries: Iterator[Entry], unix_offset_s: float) -> AsyncIterator[int]:
        """Apply the entries. unix_offset_s: from their clock to the wall clock where they do not
        say. Yields how many, from time to time. Raises what the iterator raises."""
        self._offset_s = unix_offset_s
        for number, (at_s, what) in enumerate(entries):
            if number % _REPORT_EVERY == 0:
                yield number
            if isinstance(what, Missed):
                self.missed += what.count
                continue
            try:
                await self._advance(at_s, what)
                self._apply(what)
            except Exception:  # noqa: BLE001  # whatever somebody wrote into it
                self.refused += 1

    async def end(self) -> None:
        """Keep what is left, and go over to reading. Raises RecordingError."""
        self._keep(self.sampler.last())
        problem = self._store.problem
        self._store.close()
        if problem:
            raise RecordingError(f"the past cannot be kept in a temporary file: {problem}")
        try:
            self.telemetry.estimate_rtts(self.clock.at_s)
            self.journal.boards.look(await NodeReader(self).statuses())
        except Exception as error:  # noqa: BLE001  # as above
            raise RecordingError(f"the recording's cluster makes no sense: {error!r}") from None

    def _now(self) -> Moment:
        return Moment("recording", self.clock.unix_s, 0.0)

    def _begin(self, began: Began) -> None:
        self.cluster_name, self.scheduler_name = began.cluster, began.scheduler_name
        strategy = type("_Recorded", (_Unknown,), {"name": began.strategy})
        self.rule = Rule(strategy(), {})
        self.state = ClusterState(assumes_load=began.assumed_load, unix_offset_s=self._ahead_s)
        self.telemetry = TelemetryState(_times_to_live(began.ttl), is_passive=began.is_passive)
        self.sampler = Sampler(self.telemetry)
        self._began_s = self._sampled_s = self._looked_s = -math.inf

    def _ahead_s(self) -> float:
        return self.clock.unix_s - self.clock.at_s

    async def _advance(self, to_s: float, what: object) -> None:
        """Let time pass up to the entry. Raises ValueError if it makes no sense."""
        clock = self.clock
        if isinstance(what, Began):
            offset_s = self._ahead_s() if self.from_unix_s is not None else self._offset_s
            self._offset_s = offset_s if what.unix_s is None else what.unix_s - to_s
        unix_s = to_s + self._offset_s
        if not 0 <= unix_s <= _LATEST_UNIX_S:
            raise ValueError("no time of ours")
        if self.from_unix_s is None:
            self.from_unix_s = clock.unix_s = unix_s
        elif isinstance(what, Began):
            self._keep(self.sampler.last())
        else:
            await self._look(to_s)
        clock.at_s, clock.unix_s = to_s, max(clock.unix_s, unix_s)

    async def _look(self, to_s: float) -> None:
        """Look at the states as they are before this time, if it is time to."""
        clock = self.clock
        if to_s - self._sampled_s >= _SAMPLE_EVERY_S:
            self._sampled_s = to_s
            self.telemetry.set_members(self.state.nodes().keys(), clock.at_s)
            blocks = self.sampler.sample(clock.at_s, clock.unix_s)
            # Each once, when it is whole.
            whole = [x for x in blocks if x[1].start_s + FINE.block_s <= clock.unix_s]
            if whole or len(self._changes) >= _CHANGES_AT_ONCE:
                self._keep(whole)
        is_new = to_s - self._began_s < _LOOK_EVERY_S
        every_s = _SAMPLE_EVERY_S if is_new else _LOOK_EVERY_S
        if self.state.listed and to_s - self._looked_s >= every_s:
            self._looked_s = to_s
            self.journal.boards.look(await NodeReader(self).statuses())

    def _keep(self, blocks: Sequence[tuple[str, Block]]) -> None:
        if self._changes:
            self._store.write(self._changes)
            self._changes.clear()
        if blocks:
            self._store.write_series(blocks)

    def _apply(self, what: object) -> None:
        match what:
            case Began():
                self._begin(what)
                self._began_s = self.clock.at_s
            case Changed(change):
                self.state.apply(change)
                self.journal.observe(change)
                self.decisions.observe(change)
            case Decided(uid, pod, node):
                self._decide(uid, pod, node)
            case _:
                self._measure(what)

    def _measure(self, what: object) -> None:
        match what:
            case Born() | Reported() | Pinged() | Tested():
                self.telemetry.take(what)
                if isinstance(what, Reported):
                    # What the broker says of agents is not recorded. One that reports is online.
                    stamp = what.stamp
                    self.telemetry.status(what.node, stamp.boot_id, stamp.session, online=True)
            case Pulled(pull):
                if (mbps := self.state.images.observe(pull)) is not None:
                    self.telemetry.pulled(pull.node, mbps, self.clock.at_s)
            case Learnt(image, digest, layers):
                self.state.images.learn(image, digest, layers)
            case _:
                pass

    def _decide(self, uid: str, pod: str, node: str | None) -> None:
        now = self._now()
        record = DecisionRecord(
            pod=bounded_text(pod),
            uid=bounded_text(uid),
            node=node,
            why="" if node is not None else "no board fits",
            strategy=self.rule.strategy.name,
            better="lower",
            options={},
            outcome=PENDING,
            first=now,
            last=now,
        )
        self.decisions.restore([record])
        self._changes.append(record)


def _times_to_live(said: Mapping[str, float]) -> TimesToLive:
    known = {each.name for each in fields(TimesToLive)}
    sound = {name: s for name, s in said.items() if name in known and 0 < s < _LONGEST_TTL_S}
    return TimesToLive(**sound)


@asynccontextmanager
async def serving(
    path: Path, port: int, report: Callable[[float], None] = lambda _: None
) -> AsyncIterator[tuple[str, Recorded]]:
    """Read a recording, a file or a folder, and serve its map on this machine during the context.
    port: 0 for a free one. report: is told the share that is read. Yields the address, and which
    hours it shows. Raises RecordingError, OSError and ServeError."""
    with TemporaryDirectory(prefix="leadline-map-") as folder:
        parts = RecordedParts(Path(folder))
        recorded = await _read(path, parts, report)
        server = WebServer(
            WebSettings(f"127.0.0.1:{port}"), parts, parts.journal, recorded=recorded
        )
        parts.history.start()
        try:
            yield await server.start(), recorded
        finally:
            await server.stop()
            await parts.history.stop()


async def _read(path: Path, parts: RecordedParts, report: Callable[[float], None]) -> Recorded:
    files = await asyncio.to_thread(_files, path)
    total, damage = sum(each.entries for each in files), Damage()
    if total:
        entries = read_recording(path, damage)
        async for count in parts.feed(entries, files[0].unix_offset_s):
            report(count / total)
            await asyncio.sleep(0)
    if parts.from_unix_s is None:
        raise RecordingError(f"{path}: nothing in it can be shown")
    await parts.end()
    missing = {
        "damaged blocks": damage.blocks,
        "torn ends": int(damage.is_torn),
        "entries that are missing": parts.missed,
        "entries that make no sense": parts.refused,
    }
    said = ", ".join(f"{what}: {count}" for what, count in missing.items() if count)
    return Recorded(parts.from_unix_s, parts.clock.unix_s, said)


def _files(path: Path) -> list[File]:
    return [file_of(each) for each in (recordings(path) if path.is_dir() else [path])]
