"""Hours on real parts: a controller's process with its account's rights, mosquitto, a real API
server, 200 boards that report each second over MQTT, pods that come and go, and a client that asks
all the time, while everything goes away in turn. The same bookkeeper as in the simulation, over a
watch of the API server.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from tests.attack.units import TRACEBACK
from tests.endurance.bookkeeper import NodeFacts
from tests.endurance.decisions import compare
from tests.endurance.real_users import PODS, Cluster
from tests.endurance.samples import HEAD, Sample, database_bytes, flat, process_now
from tests.kube.account import applied, login, wait_allowed
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, control_plane
from tests.kube.kwok import side_by_side
from tests.kube.objects import node
from tests.support.boards import CLUSTER, Pace, reporting
from tests.support.check import Check
from tests.support.inspection_client import ANSWER_S, POLL_S, Client
from tests.support.mosquitto import Broker
from tests.support.ports import free_port
from tests.system.daemons import Daemon, RestartableBroker, eventually

BOARDS, CHURN_PER_S, LIFE_S = 200, 10.0, 90.0
DECISIONS_MB, JOURNAL_MB = 16, 8
REPORT_S, BOARD_LIFE_S = 1.0, 120.0
CPU_M, MEMORY_MIB, PODS_MOST = 1000, 2048, 30
BROKER_AWAY_S, API_AWAY_S, DOWN_S = 15.0, 20.0, 3.0
# One in so many minutes, but each kind once.
MINUTES_AN_OUTAGE, LEAST_OUTAGES = 8.5, 2
HEARD_S, HEARD_AGAIN_S = 30.0, 60.0
# Of the time: so many restarts are over, so that the last two thirds are of one process.
KILLED_AT, UPGRADED_AT = (0.08, 0.17), 0.27
SETTLED_S, RESTED_S, LOOK_S = 60.0, 150.0, 10.0
CONNECTED, START_S = "connected to the broker", 120.0
# Connections and buffers for the backlog of one outage stay for minutes.
FLAT_MINUTES = 60
LAST_S, SCRAPE_S = 90.0, 5.0


@dataclass
class Real:
    """What a run acts on."""

    plane: ControlPlane
    broker: RestartableBroker
    controller: Daemon
    log: Path
    cluster: Cluster
    client: Client
    metrics: str
    samples: list[Sample] = field(default_factory=list)
    restarts: list[tuple[float, float]] = field(default_factory=list)  # the monotonic clock
    compared: int = 0
    disturbed_s: float = 0.0
    lost: int = 0  # reports, while neither broker nor controller was away
    lost_before: int = 0

    @property
    def database(self) -> Path:
        """The controller's."""
        return self.log.with_suffix(".state") / "decisions.db"

    def sample(self) -> Sample:
        """Look at the process now, and keep it."""
        cluster, book = self.cluster, self.cluster.book
        rss, descriptors, threads = process_now(self.controller.pid)
        now_s = cluster.now_s()
        with cluster.lock:
            self.compare_decisions(now_s)
            found = Sample(
                now_s,
                rss,
                descriptors,
                threads,
                database_bytes(self.database),
                self.log.stat().st_size,
                book.counts["created"],
                book.counts["bound"],
                book.counts["gone, bound"] + book.counts["gone, pending"],
                len(book.pending),
                len(self.restarts),
                sum(book.violations.values()),
            )
        self.samples.append(found)
        return found

    def look(self) -> None:
        """Let the bookkeeper look at the pending pods, and Prometheus at the controller."""
        cluster = self.cluster
        with suppress(OSError), urlopen(self.metrics, timeout=SCRAPE_S) as answer:  # noqa: S310  # our own server
            answer.read()
        with cluster.lock:
            cluster.book.look(cluster.now_s(), self.disturbed_s + SETTLED_S)

    # What goes wrong.

    def broker_away(self) -> str:
        """Kill the broker, and start it again, which has forgotten all."""
        self.count_lost()
        connected = self.controller.said(CONNECTED)
        self.broker.kill()
        time.sleep(BROKER_AWAY_S)
        self.broker.start()
        self._heard_again(connected)
        return f"the broker was away for {BROKER_AWAY_S:.0f} s"

    def api_away(self) -> str:
        """Stop the API server and its store, and start them again."""
        self.plane.stop()
        time.sleep(API_AWAY_S)
        self.plane.start()
        self.disturbed_s = self.cluster.now_s()
        return f"the API server was away for {API_AWAY_S:.0f} s"

    def restart(self, number: signal.Signals) -> str:
        """End the controller, and start it again."""
        self.count_lost()
        begin_s = time.monotonic()
        self.controller.stop(number)
        time.sleep(DOWN_S)
        connected = self.controller.said(CONNECTED)
        self.controller.start()
        self._heard_again(connected)
        self.restarts.append((begin_s, time.monotonic()))
        return f"the controller was ended with {number.name}, and started again"

    def compare_decisions(self, now_s: float) -> None:
        """Compare with the database, unless a kill lately took decisions that were not written."""
        if now_s - self.disturbed_s > RESTED_S:
            self.compared += compare(self.database, self.cluster.book, now_s)

    def count_lost(self) -> None:
        """What was lost since the last disturbance, by the gaps that the controller has seen."""
        self.lost += self.client.lost - self.lost_before
        self.lost_before = self.client.lost

    def _heard_again(self, connected: int) -> None:
        """What each board sent while the controller was not subscribed, its next report shows."""
        self.controller.wait_said(CONNECTED, connected + 1)
        back_s = time.monotonic()
        # After a refused connection, gRPC waits a while before it tries again.
        eventually(
            lambda: (
                self.client.answered_s > back_s
                and not self.client.silent(time.monotonic() - back_s - 2 * POLL_S)
            ),
            bool,
            "every board is heard again",
            HEARD_AGAIN_S,
        )
        self.lost_before = self.client.lost
        self.disturbed_s = self.cluster.now_s()


@contextmanager
def parts(folder: Path, hours: float, boards: int) -> Iterator[Real]:
    """All parts at work."""
    names = [f"board-{number:03}" for number in range(boards)]
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
        kubeconfig = login(admin, admins, folder / "login", lasts_s=round(3600 * (hours + 1)))
        wait_allowed(Api(kubeconfig), True, group="", resource="pods", verb="watch")
        room = (f"{CPU_M}m", f"{MEMORY_MIB}Mi", PODS_MOST)
        side_by_side(lambda name: admin.add_node(node(name, *room)), names)
        log, config = folder / "controller.log", folder / "controller.toml"
        address, scraped = (f"127.0.0.1:{free_port()}" for _ in range(2))
        config.write_text(
            f'cluster = "{CLUSTER}"\nwarm_up_s = 3\n'
            f'[broker]\nhost = "127.0.0.1"\nport = {broker.port}\n'
            f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n'
            f'[grpc]\naddress = "{address}"\n[web]\naddress = "127.0.0.1:{free_port()}"\n'
            f'[metrics]\naddress = "{scraped}"\n[publish]\nhome_assistant = true\n'
            f"[decisions]\nmax_mb = {DECISIONS_MB}\n[images]\nenabled = false\n"
        )
        controller = Daemon("leadline_controller", config, log)
        cleanup.callback(controller.stop)
        controller.start()
        eventually(lambda: controller.said(CONNECTED), bool, CONNECTED, START_S)
        pace = Pace(REPORT_S, BOARD_LIFE_S)
        cleanup.enter_context(reporting(Broker("127.0.0.1", broker.port, 0), names, pace))
        cluster = Cluster(admins, CHURN_PER_S, LIFE_S, seed=0)
        for name in names:
            facts = {"cpu": CPU_M, "memory": MEMORY_MIB << 20, "pods": PODS_MOST}
            cluster.book.node_is(name, NodeFacts(facts))
        cleanup.enter_context(cluster.living())
        client = Client(address)
        cleanup.enter_context(client.asking())
        eventually(lambda: client.silent(HEARD_S), lambda silent: not silent, "boards", START_S)
        client.failures.clear()  # it asked before anybody answered
        yield Real(plane, broker, controller, log, cluster, client, f"http://{scraped}/metrics")


def schedule(real: Real, whole_s: float) -> list[tuple[float, Callable[[], str]]]:
    """What goes wrong and when, the next last."""
    count = max(LEAST_OUTAGES, round(whole_s / 60 / MINUTES_AN_OUTAGE))
    due: list[tuple[float, Callable[[], str]]] = [
        ((number + 0.5) / count, real.broker_away if number % 2 else real.api_away)
        for number in range(count)
    ]
    due += [(share, partial(real.restart, signal.SIGKILL)) for share in KILLED_AT]
    due.append((UPGRADED_AT, partial(real.restart, signal.SIGTERM)))
    return sorted(((share * whole_s, act) for share, act in due), key=lambda each: -each[0])


def endure(
    minutes: float, show: Callable[[str], object] = print, boards: int = BOARDS
) -> list[Check]:
    """Run for so long, with a table of each minute, and return what held."""
    whole_s = 60.0 * minutes
    show(f"{boards} boards, {CHURN_PER_S:g} pods a second, for {minutes:g} minutes")
    show(HEAD)
    with tempfile.TemporaryDirectory(prefix="leadline-endurance-") as name:
        with parts(Path(name), minutes / 60, boards) as real:
            cluster, due, shown_s = real.cluster, schedule(real, whole_s), 0.0
            while (now_s := cluster.now_s()) < whole_s:
                if due and now_s >= due[-1][0]:
                    show(f"{now_s / 60:7.1f} min: {due.pop()[1]()}")
                real.look()
                if now_s >= shown_s:
                    shown_s = now_s + min(60.0, whole_s / 20)
                    show(str(real.sample()))
                time.sleep(min(LOOK_S, whole_s / 100))
            cluster.stop_churn()
            checks = list(finished(real))
            if minutes >= FLAT_MINUTES:
                checks += flat(real.samples, (DECISIONS_MB + JOURNAL_MB) << 20)
            else:
                show(f"too short to say what is flat, for which it takes {FLAT_MINUTES} minutes")
        if keep := os.environ.get("ENDURANCE_LOG"):
            shutil.copy(real.log, keep)
    return checks


def finished(real: Real) -> Iterator[Check]:
    """After the last pod: what is there, and that the controller ends."""
    cluster, book = real.cluster, real.cluster.book

    def unplaced() -> int:
        with cluster.lock:
            room = [x for x in book.pending.values() if x.facts.requests["cpu"] <= CPU_M]
            return len(room)

    deadline_s = time.monotonic() + LAST_S
    while unplaced() and time.monotonic() < deadline_s:
        time.sleep(1.0)
    time.sleep(2.0)
    real.sample()
    with cluster.lock:
        there = {x["metadata"]["uid"] for x in Api(cluster.kubeconfig).get(PODS)["items"]}
        counts, missing = book.counts, there ^ book.pods.keys()
        gone = counts["gone, bound"] + counts["gone, pending"]
        try:
            real.compare_decisions(cluster.now_s())
        except sqlite3.Error as error:
            book.violated("the database cannot be read", cluster.now_s(), str(error))
    yield Check(
        "pods",
        "each that was created is bound, gone, or pending for a reason",
        f"{counts['created']} created, {counts['bound']} bound, {gone} gone, {len(there)} there, "
        f"{unplaced()} not placed, {len(missing)} not accounted for",
        not missing and not unplaced() and counts["created"] == gone + len(there),
    )
    found = ", ".join(f"{count} {what}" for what, count in book.violations.items())
    yield Check(
        "bookkeeper",
        "nothing that must not happen",
        f"{found or 'nothing'}; {real.compared} decisions compared with the database, "
        f"{cluster.listings} lists; {'; '.join((*book.lines[:5], *cluster.faults))}",
        not book.violations and not cluster.faults,
    )
    real.count_lost()
    yield Check(
        "reports",
        "none lost while broker and controller are there",
        f"{real.lost} lost",
        real.lost == 0,
    )
    client = real.client
    silent = client.silent(HEARD_S)
    yield Check(
        "boards",
        f"each was heard in the last {HEARD_S:.0f} s",
        f"{len(silent)} of {len(client.nodes)} silent",
        not silent and len(client.nodes) == len(cluster.book.nodes),
    )
    failures = [
        why
        for at_s, why in client.failures
        if not any(begin_s - ANSWER_S <= at_s <= end_s for begin_s, end_s in real.restarts)
    ]
    yield Check(
        "inspection",
        "every question is answered, outages or not, while there is a controller",
        f"{len(failures)} failed {failures[:1]}",
        not failures,
    )
    client.stop()
    code = real.controller.stop()
    tracebacks = real.controller.said(TRACEBACK)
    yield Check(
        "the controller",
        "no traceback, and it ends with 0 on SIGTERM",
        f"{tracebacks} tracebacks, ended with {code}",
        not tracebacks and code == 0,
    )
