"""Twenty minutes of 200 boards that report each second: what the controller's process needs.

A real controller with its account's rights, a real mosquitto and a real API server. Boards go and
come back, pods come and go, a client asks all the time; in the middle the broker is restarted and
the API server is away. `SOAK_S` is the time in seconds and `SOAK_BOARDS` the number of boards.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from tests.attack.check import Check
from tests.attack.soak_clients import POLL_S, Client, Pods
from tests.attack.units import TRACEBACK
from tests.bench.boards import CLUSTER, Pace, reporting
from tests.kube.account import applied, login, wait_allowed
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.kwok import side_by_side
from tests.kube.objects import node
from tests.support.mosquitto import Broker
from tests.support.ports import free_port
from tests.system.daemons import Daemon, RestartableBroker, eventually

FULL_S, BOARDS = 1200.0, 200
MB = 1_000_000
REPORT_S = 1.0
BOARD_LIFE_S, BOARD_AWAY_S = 120.0, 3.0
POD_EVERY_S, POD_LIFE_S = 2.0, 60.0
DECISIONS_MB, JOURNAL_MB = 1, 4
BROKER_AWAY_S, API_AWAY_S = 5.0, 20.0
# The controller tries at most 15 s apart.
SETTLED_S = 60.0
HEARD_S = 30.0
FLAT_SHARE, FLAT_BYTES = 0.1, 10 * MB
# Connections that are kept for the next pods; what leaks, leaks more in ten minutes.
MORE = 2
LINES_A_MINUTE = 6
# A decision whose pod was deleted since is still one.
SETTLED = ("bound", "gone", "deleted")
CONNECTED = "connected to the broker"
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The process, `at_s` after the begin. sent: reports that boards sent; lost: those that never
    came, by the gaps in their numbers; online: boards that the controller knows to be so."""

    at_s: float
    rss_bytes: int
    descriptors: int
    threads: int
    database_bytes: int
    lines: int
    sent: int
    lost: int
    online: int
    slowest_ms: float
    pods: int
    bound: int

    def __str__(self) -> str:
        return (
            f"{self.at_s / 60:>6.1f}{self.rss_bytes / MB:>9.1f}{self.descriptors:>7}"
            f"{self.threads:>9}{self.database_bytes / 1024:>9.0f}{self.lines:>7}{self.sent:>9}"
            f"{self.lost:>7}{self.online:>8}{self.slowest_ms:>10.0f}{self.pods:>7}{self.bound:>7}"
        )


HEAD = (
    f"{'min':>6}{'RSS MB':>9}{'files':>7}{'threads':>9}{'db KiB':>9}{'lines':>7}{'sent':>9}"
    f"{'lost':>7}{'online':>8}{'slowest ms':>11}{'pods':>6}{'bound':>7}"
)


@dataclass
class Soak:
    """What a soak acts on, and what it has found."""

    plane: ControlPlane
    broker: RestartableBroker
    controller: Daemon
    log: Path
    pods: Pods
    client: Client
    sent: Callable[[], int]
    boards: int
    begin_s: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    decided: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    lost_outside: int = 0
    lost_before: int = 0
    tracebacks: int = 0
    code: int | None = None

    def count_lost(self) -> None:
        """Take what was lost until now as lost outside of an outage."""
        self.lost_outside += self.client.lost - self.lost_before
        self.lost_before = self.client.lost

    def sample(self) -> Sample:
        """Look at everything now, and keep it."""
        assert self.controller.pid is not None
        process = psutil.Process(self.controller.pid)
        files = self.log.with_suffix(".state").glob("decisions.db*")
        with process.oneshot():
            found = Sample(
                at_s=time.monotonic() - self.begin_s,
                rss_bytes=process.memory_info().rss,
                descriptors=process.num_fds(),
                threads=process.num_threads(),
                database_bytes=sum(each.stat().st_size for each in files),
                lines=len(self.controller.lines()),
                sent=self.sent(),
                lost=self.client.lost,
                online=self.client.online,
                slowest_ms=self.client.slowest_ms,
                pods=len(self.pods.created),
                bound=len(self.pods.bound),
            )
        self.client.slowest_ms = 0.0
        self.samples.append(found)
        return found


@contextmanager
def soaking(folder: Path, nodes: Sequence[str]) -> Iterator[Soak]:
    """A running controller with these boards."""
    with ExitStack() as cleanup:
        broker = RestartableBroker(None)
        cleanup.callback(broker.kill)
        broker.start()
        (folder / "plane").mkdir()
        plane = cleanup.enter_context(control_plane(folder / "plane"))
        # The plane writes its own file again at each start.
        admins = Path(shutil.copy(plane.kubeconfig, folder / "admin"))
        admin = Api(admins)
        cleanup.enter_context(applied(admin))
        kubeconfig = login(admin, admins, folder / "login")
        wait_allowed(Api(kubeconfig), True, group="", resource="pods", verb="watch")
        side_by_side(lambda name: admin.add_node(node(name, "4", pods=110)), nodes)
        address, log = f"127.0.0.1:{free_port()}", folder / "controller.log"
        config = folder / "controller.toml"
        config.write_text(
            f'cluster = "{CLUSTER}"\nwarm_up_s = 3\n'
            f'[broker]\nhost = "127.0.0.1"\nport = {broker.port}\n'
            f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n[grpc]\naddress = "{address}"\n'
            f"[decisions]\nmax_mb = {DECISIONS_MB}\n"
        )
        controller = Daemon("leadline_controller", config, log)
        cleanup.callback(controller.stop)
        controller.start()
        # The controller does not get what a board sends before that.
        eventually(lambda: controller.said(CONNECTED), bool, CONNECTED, START_S)
        time.sleep(1)
        pace = Pace(REPORT_S, BOARD_LIFE_S, BOARD_AWAY_S)
        sent = cleanup.enter_context(reporting(Broker("127.0.0.1", broker.port, 0), nodes, pace))
        client = Client(address)
        cleanup.enter_context(client.asking())
        eventually(
            lambda: client.online, lambda online: online >= len(nodes) / 2, "boards", START_S
        )
        pods = Pods(admins, POD_EVERY_S, POD_LIFE_S)
        cleanup.enter_context(pods.coming())
        yield Soak(plane, broker, controller, log, pods, client, sent, len(nodes))


def soak(
    folder: Path, duration_s: float, boards: int, show: Callable[[object], None] = lambda _: None
) -> Soak:
    """Soak for that long; `show` gets each line of the table. In the third of four quarters the
    broker is restarted and then the API server is away, both for less where the time is short."""
    nodes = [f"soak-{number:03}" for number in range(boards)]
    share = min(1.0, duration_s / FULL_S)
    show(HEAD)
    with soaking(folder, nodes) as found:
        every_s = min(5.0, duration_s / 80)
        table_s = min(60.0, duration_s / 20)
        outages = [
            (0.5 * duration_s, partial(broker_away, found, max(1.0, share * BROKER_AWAY_S))),
            (0.6 * duration_s, partial(api_away, found, max(1.0, share * API_AWAY_S))),
        ]
        shown_s = -table_s
        while (at_s := time.monotonic() - found.begin_s) < duration_s:
            if outages and at_s >= outages[0][0]:
                show(outages.pop(0)[1]())
            sample = found.sample()
            if at_s >= shown_s + table_s:
                shown_s = at_s
                show(sample)
            time.sleep(every_s)
        found.pods.stop()
        found.pods.wait_bound()
        show(found.sample())
        found.count_lost()
        found.silent = found.client.silent(HEARD_S)
        found.decided = found.client.placements()
        found.client.stop()
        found.code = found.controller.stop()
        found.tracebacks = found.controller.said(TRACEBACK)
    return found


def broker_away(found: Soak, away_s: float) -> str:
    """Kill the broker and start it again. What is lost meanwhile is lost in an outage."""
    found.count_lost()
    connected = found.controller.said(CONNECTED)
    found.broker.kill()
    time.sleep(away_s)
    found.broker.start()
    found.controller.wait_said(CONNECTED, connected + 1)
    back_s = time.monotonic()
    # What each board sent while the controller was not subscribed, its next report shows.
    eventually(
        lambda: found.client.silent(time.monotonic() - back_s - 2 * POLL_S),
        lambda silent: not silent,
        "every board is heard again",
        SETTLED_S,
    )
    finding = (
        f"the broker was away for {away_s:.0f} s: {found.client.lost - found.lost_before} lost"
    )
    found.lost_before = found.client.lost
    return finding


def api_away(found: Soak, away_s: float) -> str:
    """Stop the API server and start it again; boards go on reporting."""
    found.plane.stop()
    time.sleep(away_s)
    found.plane.start()
    return f"the API server was away for {away_s:.0f} s"


# What must hold.


def quarter(samples: Sequence[Sample], number: int) -> list[Sample]:
    """The samples of the first, second, third or last quarter of the time."""
    whole_s = samples[-1].at_s
    return [each for each in samples if number - 1 <= 4 * each.at_s / whole_s <= number]


def flat(samples: Sequence[Sample]) -> Iterator[Check]:
    """The last quarter needs what the second one needed; outages are in the third."""
    second, last = quarter(samples, 2), quarter(samples, 4)
    before_bytes, after_bytes = (median(x.rss_bytes for x in each) for each in (second, last))
    yield Check(
        "memory",
        f"at most {FLAT_SHARE:.0%} or {FLAT_BYTES / MB:.0f} MB above the second quarter's median",
        f"{before_bytes / MB:.1f} MB in the second quarter, {after_bytes / MB:.1f} MB in the last",
        after_bytes - before_bytes <= max(FLAT_BYTES, FLAT_SHARE * before_bytes),
    )
    for what, counted in (
        ("descriptors", lambda each: each.descriptors),
        ("threads", lambda each: each.threads),
    ):
        before, after = (median(map(counted, each)) for each in (second, last))
        yield Check(
            what,
            f"at most {MORE} more in the last quarter than in the second, by the median",
            f"{before:g} in the second quarter, {after:g} in the last",
            after - before <= MORE,
        )
    lines, minutes = last[-1].lines - last[0].lines, (last[-1].at_s - last[0].at_s) / 60
    yield Check(
        "log",
        f"at most {LINES_A_MINUTE} lines a minute in the last quarter",
        f"{lines} lines in {minutes:.1f} min",
        lines <= max(1.0, minutes) * LINES_A_MINUTE,
    )


def accounted(found: Soak) -> Iterator[Check]:
    """Nothing was lost, nobody was left out, and the controller ended as it should."""
    samples, pods = found.samples, found.pods
    database_bytes = max(each.database_bytes for each in samples)
    yield Check(
        "decisions on disk",
        f"at most {DECISIONS_MB} MiB and a journal of {JOURNAL_MB} MiB",
        f"{database_bytes / 1024:.0f} KiB at most",
        database_bytes <= (DECISIONS_MB + JOURNAL_MB) << 20,
    )
    yield Check(
        "reports",
        "none lost outside of the broker's outage",
        f"{found.lost_outside} lost of {samples[-1].sent}",
        found.lost_outside == 0,
    )
    yield Check(
        "boards",
        f"each was heard in the last {HEARD_S:.0f} s",
        f"{len(found.silent)} of {found.boards} silent",
        not found.silent and len(found.client.nodes) == found.boards,
    )
    unbound = [name for name in pods.created if name not in pods.bound]
    unknown = [x for x in pods.created if found.decided.get(f"default/{x}") not in SETTLED]
    yield Check(
        "pods",
        "each is bound, and its decision is known",
        f"{len(pods.created)} created, {len(unbound)} not bound, {len(unknown)} without a decision",
        bool(pods.created) and not unbound and not unknown,
    )
    failures = found.client.failures
    yield Check(
        "inspection",
        "every question is answered, outages or not",
        f"{len(failures)} failed {failures[:1]}",
        not failures,
    )
    yield Check(
        "the controller",
        "no traceback, and it ends with 0 on SIGTERM",
        f"{found.tracebacks} tracebacks, ended with {found.code}",
        not found.tracebacks and found.code == 0,
    )


def main() -> Iterator[Check]:
    """Soak in full length, or as SOAK_S and SOAK_BOARDS say."""
    duration_s = float(os.environ.get("SOAK_S") or FULL_S)
    boards = int(os.environ.get("SOAK_BOARDS") or BOARDS)
    print(f"{boards} boards at {REPORT_S:g} s for {duration_s / 60:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="leadline-soak-") as folder:
        found = soak(Path(folder), duration_s, boards, partial(print, flush=True))
    yield from flat(found.samples)
    yield from accounted(found)
