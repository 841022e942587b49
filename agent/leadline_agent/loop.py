"""The agent's main loop: runs the collectors on a schedule and dispatches events.

One thread decides. All others (MQTT, ping, iperf3, signal handlers) put their events into one
queue, the inbox. Reports follow a monotonic schedule, so a slow one delays none of those after it.
"""

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from leadline_wire.sd_notify import Notifier
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import __version__, textfile
from leadline_agent.collectors import SYS_ROOT, Collectors
from leadline_agent.collectors.board import read_board
from leadline_agent.collectors.cpu import watch_hindrances
from leadline_agent.collectors.load import LoadReader, load_of
from leadline_agent.config import ConfigError, Settings
from leadline_agent.jumps import WATCH_S, JumpDetector
from leadline_agent.lease import BandwidthLease, Result
from leadline_agent.probes import ProbeContext, Probes
from leadline_agent.publish.connection import Endpoint, Event, MessageReceived
from leadline_agent.publish.session import Session, StateError
from leadline_agent.text import one_line
from leadline_agent.traffic import TrafficReader

LOG = logging.getLogger(__name__)
FLUSH_S = 30.0
READ_FLOWS_S = 10.0  # what leadline-flows writes once a minute is not missed
FIRST_REPORT_S = (1.0, 10.0)  # drawn at random: boards that start together must not report together
DISCONNECT_TIMEOUT_S = 2.0
MAX_WAITING = 256  # messages in the inbox; further leases are dropped
RETRY_S = 1.0
LEAST_RATE_S = 1.0  # packets of a shorter time say nothing
# A signal stops the loop or, if it is SIGHUP, reloads the settings.
InboxItem = Event | Result | signal.Signals


class PeriodicTimer:
    """Fires on a fixed grid of times, so that one late run delays none of those after it."""

    def __init__(self, period_s: float, first_s: float) -> None:
        self.period_s, self.due_s = period_s, first_s

    def fire_if_due(self, now_s: float) -> bool:
        """Whether it is due. If so, it is next due at the first point of the grid after now."""
        if now_s < self.due_s:
            return False
        self.due_s += self.period_s * ((now_s - self.due_s) // self.period_s + 1)
        return True


class Agent:
    """Everything that depends on the settings; a reload makes a new one."""

    def __init__(
        self,
        settings: Settings,
        endpoint: Endpoint,
        inbox: SimpleQueue[InboxItem],
        notify: Notifier,
    ) -> None:
        """Start to measure. Raises StateError."""
        self._settings, self._endpoint = settings, endpoint
        self._inbox = inbox
        self._notify = notify
        self._collectors = Collectors()
        self._collectors.collect()  # the first rates count from here
        context = ProbeContext(
            limits=settings.probe,
            own_address=lambda: self._session.address,
            broker_rtts_ms=lambda: self._session.broker_rtts_ms(),
            report=inbox.put,
            watch_hindrances=partial(watch_hindrances, SYS_ROOT),
        )
        self._probes = Probes(context)
        try:
            board = read_board(SYS_ROOT, __version__, settings, self._probes.capabilities)
            self._session = Session(endpoint, settings, board, self._post)
        except Exception:
            self._probes.stop()
            raise
        now_s = time.monotonic()
        first_s = random.uniform(*(min(bound, settings.interval_s) for bound in FIRST_REPORT_S))  # noqa: S311 - a jitter, no secret
        self._report = PeriodicTimer(settings.interval_s, now_s + first_s)
        self._flush = PeriodicTimer(FLUSH_S, now_s + FLUSH_S)
        self._traffic = TrafficReader(settings.flows) if settings.flows else None
        self._read_flows = PeriodicTimer(
            READ_FLOWS_S, now_s + READ_FLOWS_S if settings.flows else float("inf")
        )
        watches = settings.early_reports and settings.interval_s > WATCH_S
        self._watch_due_s = now_s + WATCH_S if watches else float("inf")
        self._load, self._jumps = LoadReader(), JumpDetector()
        self._interfaces: tuple[str, ...] = ()  # of the last report
        self._watched_s = self._reported_s = now_s
        period_s = (notify.watchdog_s or float("inf")) / 2
        self._watchdog = PeriodicTimer(period_s, now_s + period_s)
        self._network_s = self._progress_s = now_s  # when the rates of the network began
        self._network_before_test: Sequence[pb.NetworkInterface] = ()
        self._is_ready = False
        self._has_failed = False  # the last tick
        self._retry_s = now_s
        self._signals: list[signal.Signals] = []

    def due_s(self) -> float:
        """When to call `tick` again, on the monotonic clock."""
        own = min(self._report.due_s, self._flush.due_s, self._watchdog.due_s)
        own = min(own, self._read_flows.due_s, self._watch_due_s)
        return max(self._retry_s, min(own, self._session.due_s()))

    def tick(self, now_s: float) -> None:
        """Do what is due. A failure is logged; the watchdog is fed only after a tick without."""
        try:
            if (
                self._watchdog.fire_if_due(now_s)
                and not self._has_failed
                and self._has_progressed(now_s)
            ):
                self._notify.send("WATCHDOG=1")
            if self._flush.fire_if_due(now_s):
                self._session.flush()
            if self._report.fire_if_due(now_s):
                self._publish_report(now_s)
            if self._traffic and self._read_flows.fire_if_due(now_s):
                self._publish_traffic(self._traffic)
            if now_s >= self._watch_due_s:
                self._watch_load(now_s)
            self._session.tick(now_s)
        except Exception as error:  # noqa: BLE001 - one bad value must not end the agent
            self._has_failed, self._retry_s = True, now_s + RETRY_S
            _log_failure("what was due", error)
        else:
            self._has_failed = False

    def handle(self, message: Event | Result) -> None:
        """Handle an event of the connection or a probe's result. A failure is logged."""
        try:
            if isinstance(message, Result):
                self._session.publish(message)
            elif lease := self._session.handle(message):
                if isinstance(lease, BandwidthLease):
                    self._read_network_before_test(time.monotonic())
                self._probes.start_lease(lease)
        except Exception as error:  # noqa: BLE001 - one bad message must not end the agent
            _log_failure(type(message).__name__, error)

    def close(self) -> None:
        """Stop the probes, disconnect, and keep the messages that are not acknowledged."""
        self._probes.stop()
        if self._settings.textfile is not None:
            with suppress(OSError):
                self._settings.textfile.unlink()  # what it says will not be true
        try:
            self._session.close(self._next_event, DISCONNECT_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - a failed goodbye must not keep the agent up
            _log_failure("the goodbye", error)
        for number in self._signals:
            self._inbox.put(number)

    def with_new_settings(self, reload: Callable[[], Settings] | None) -> "Agent":
        """An agent with new settings, or with the old ones if the new ones are invalid.

        Raises StateError when neither the new state folder nor the old one can be used.
        """
        try:
            wanted = reload() if reload else self._settings
            endpoint = Endpoint.of(wanted.broker)
        except Exception as error:  # noqa: BLE001 - any fault leaves the old settings in force
            _log_reload_failure(error)
            return self
        self.close()
        try:
            agent = Agent(wanted, endpoint, self._inbox, self._notify)
        except Exception as error:  # noqa: BLE001 - any fault starts the old ones again
            _log_reload_failure(error)
            return Agent(self._settings, self._endpoint, self._inbox, self._notify)
        LOG.info("reload: node %s: a report every %g s", wanted.node, wanted.interval_s)
        return agent

    def _watch_load(self, now_s: float) -> None:
        """Publish a report before its time if the load has jumped and the broker takes it."""
        before_s, self._watched_s, self._watch_due_s = self._watched_s, now_s, now_s + WATCH_S
        load = self._load.read(self._interfaces)
        # A test of our own is not the load of this board's users.
        if self._probes.has_loaded_since(before_s) or not self._jumps.is_due(load):
            return
        nearest_s = min(now_s - self._reported_s, self._report.due_s - now_s)
        if nearest_s >= LEAST_RATE_S and self._session.is_connected:
            self._publish_report(now_s, is_early=True)

    def _publish_report(self, now_s: float, *, is_early: bool = False) -> None:
        report = self._collectors.collect()
        if self._probes.has_loaded_since(self._network_s):
            # The packets of our own test are not the load of this board's users.
            report.ClearField("network")
            report.network.extend(self._network_before_test)
        self._network_s, self._network_before_test = now_s, ()
        has_progressed = any(run.outcome == pb.CollectorRun.OK for run in report.collectors)
        for name in self._probes.take_failed():
            report.collectors.add(
                name=name, outcome=pb.CollectorRun.FAILED, why="its thread failed and restarts"
            )
        self._jumps.reported(load_of(report), is_early=is_early)
        self._reported_s = now_s
        self._interfaces = tuple(each.name for each in report.network) or self._interfaces
        if not is_early:  # which may be on an SD card
            self._write_textfile(report)
        # Each byte counts over mobile networks: that a collector is well needs no words.
        failed = [run for run in report.collectors if run.outcome == pb.CollectorRun.FAILED]
        report.ClearField("collectors")
        for run in failed:
            report.collectors.add(name=run.name, outcome=run.outcome, why=run.why)
        self._session.publish(report)
        if has_progressed:
            self._progress_s = now_s
            if not self._is_ready:
                self._is_ready = True
                self._notify.send("READY=1")

    def _publish_traffic(self, reader: TrafficReader) -> None:
        if traffic := reader.read():
            self._session.publish(traffic)

    def _write_textfile(self, report: pb.Report) -> None:
        """Write the file for node_exporter, if there is to be one. Reports matter more than it."""
        path, certificate = self._settings.textfile, self._endpoint.certificate
        if path is None:
            return
        status = textfile.Status(
            node=self._settings.node,
            version=__version__,
            interval_s=self._settings.interval_s,
            is_connected=self._session.is_connected,
            dropped_messages=self._session.dropped_messages,
            certificate_ends_s=certificate.not_after.timestamp() if certificate else None,
        )
        try:
            textfile.write(path, textfile.text_of(report, status, time.time()))
        except OSError as error:
            LOG.warning("textfile %s: cannot be written: %s", path, error.strerror or error)

    def _read_network_before_test(self, now_s: float) -> None:
        """Keep the rates up to a bandwidth test for the next report. Tests may be as frequent as
        reports, and then no report would have any."""
        if now_s - self._network_s < LEAST_RATE_S:
            return
        is_undisturbed = not self._probes.has_loaded_since(self._network_s)
        network = self._collectors.read_network()
        self._network_s = now_s
        if is_undisturbed:
            self._network_before_test = network

    def _has_progressed(self, now_s: float) -> bool:
        if reason := self._probes.unhealthy_reason(now_s):
            LOG.error("watchdog: not fed, because %s", reason)
            return False
        return now_s - self._progress_s < 1.5 * self._settings.interval_s + FIRST_REPORT_S[1]

    def _post(self, event: Event) -> None:
        """Queue an event of the connection. Leases beyond MAX_WAITING are dropped."""
        if isinstance(event, MessageReceived) and self._inbox.qsize() >= MAX_WAITING:
            LOG.warning("lease: refused: %d messages are queued already", MAX_WAITING)
            return
        self._inbox.put(event)

    def _next_event(self, timeout_s: float) -> Event | None:
        try:
            message = self._inbox.get(timeout=timeout_s)
        except Empty:
            return None
        if isinstance(message, signal.Signals):
            self._signals.append(message)  # a signal during the goodbye must not be lost
        return None if isinstance(message, Result | signal.Signals) else message


def _log_failure(what: str, error: Exception) -> None:
    reason = one_line(f"{type(error).__name__}: {error}")
    LOG.error("agent: %s failed and is left out, please report it: %s", what, reason)


def _log_reload_failure(error: Exception) -> None:
    is_expected = isinstance(error, ConfigError | StateError)
    kind = "" if is_expected else f"{type(error).__name__}: "
    LOG.error("reload: the settings stay as they were: %s", one_line(f"{kind}{error}", 400))


def run(settings: Settings, reload: Callable[[], Settings] | None = None) -> int:
    """Measure and report until SIGTERM or SIGINT; SIGHUP takes new settings from `reload`.

    Returns the exit code. Raises ConfigError or StateError before it starts to measure.
    """
    inbox: SimpleQueue[InboxItem] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: inbox.put(signal.Signals(number)))
    notify = Notifier(os.environ)
    agent = Agent(settings, Endpoint.of(settings.broker), inbox, notify)
    LOG.info("node %s: a report every %g s", settings.node, settings.interval_s)
    while True:
        with suppress(Empty):
            message = inbox.get(timeout=max(0.0, agent.due_s() - time.monotonic()))
            if not isinstance(message, signal.Signals):
                agent.handle(message)
            elif message is signal.SIGHUP:
                notify.send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
                agent = agent.with_new_settings(reload)
                notify.send("READY=1")
            else:
                break
        agent.tick(time.monotonic())
    notify.send("STOPPING=1")
    agent.close()
    return 0
