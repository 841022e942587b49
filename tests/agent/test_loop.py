"""The main loop: its schedule, its watchdog, reloads, and invalid files."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_agent import loop
from leadline_agent.clock import boot_ms
from leadline_agent.collectors import Collectors
from leadline_agent.collectors.load import LoadReader
from leadline_agent.config import Broker, ConfigError, Probe, Settings, Tls
from leadline_agent.jumps import WATCH_S, Load
from leadline_agent.lease import BandwidthLease, Peer, Result
from leadline_agent.loop import LEAST_RATE_S, MAX_WAITING, Agent, InboxItem, PeriodicTimer
from leadline_agent.probes import Probes
from leadline_agent.publish.connection import Endpoint, MessageReceived
from leadline_agent.publish.session import Session
from leadline_wire.sd_notify import Notifier
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.certificates import Authority, Certificate
from tests.support.ports import free_port, wait_until


def test_nothing_is_due_before_its_time() -> None:
    every = PeriodicTimer(period_s=10.0, first_s=103.0)
    assert not every.fire_if_due(102.9)
    assert every.fire_if_due(103.0)
    assert every.due_s == 113.0


def test_a_late_run_neither_shifts_nor_repeats_the_next() -> None:
    every = PeriodicTimer(period_s=10.0, first_s=100.0)
    assert every.fire_if_due(137.0)
    assert every.due_s == 140.0
    assert not every.fire_if_due(137.0)


def test_an_infinite_period_is_never_due() -> None:
    assert not PeriodicTimer(float("inf"), float("inf")).fire_if_due(1e12)


def tls(certificate: Certificate) -> Broker:
    files = Tls(certificate.ca_file, certificate.cert_file, certificate.key_file)
    return Broker("broker", 8883, files)


def test_tls_checks_the_broker_and_shows_a_certificate(tmp_path: Path) -> None:
    context = Endpoint.of(tls(Authority(tmp_path).client("pi-1"))).tls
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.minimum_version.name == "TLSv1_2"
    assert len(context.get_ca_certs()) == 1  # this authority and no other


@pytest.mark.parametrize("broken", ["ca_file", "cert_file", "key_file", "another key"])
def test_a_key_that_does_not_match_its_certificate_is_refused(tmp_path: Path, broken: str) -> None:
    authority = Authority(tmp_path)
    certificate = authority.client("pi-1")
    if broken == "another key":
        certificate.key_file.write_bytes(authority.client("pi-2").key_file.read_bytes())
    else:
        Path(getattr(certificate, broken)).write_text("no PEM")
    with pytest.raises(ConfigError, match=r"broker\.tls: expected PEM files"):
        Endpoint.of(tls(certificate))


class CountingNotifier(Notifier):
    """Counts how often the watchdog of one second is fed."""

    def __init__(self) -> None:
        super().__init__({"WATCHDOG_USEC": "1000000"})
        self.fed = 0

    def send(self, state: str) -> None:
        self.fed += state == "WATCHDOG=1"


def made(folder: Path) -> Settings:
    broker = Broker("127.0.0.1", free_port(), None)  # where nobody listens
    return Settings("pi-1", "default", folder, 1, 1 << 20, broker, Probe("", 8, 1 << 28, 5000))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return made(tmp_path)


@pytest.fixture
def systemd() -> CountingNotifier:
    return CountingNotifier()


@pytest.fixture
def agent(settings: Settings, systemd: CountingNotifier) -> Iterator[Agent]:
    agent = Agent(settings, Endpoint.of(settings.broker), SimpleQueue(), systemd)
    yield agent
    agent.close()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[pb.Report | Result]:
    published: list[pb.Report | Result] = []
    monkeypatch.setattr(Session, "publish", lambda _, sample: published.append(sample))
    return published


def test_a_result_that_cannot_be_encoded_is_dropped_alone(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encoded: list[str] = []

    def encode(_: Session, sample: pb.BandwidthReport) -> None:
        if sample.lease_id != "L3":
            raise ValueError("a bug")
        encoded.append(sample.lease_id)

    monkeypatch.setattr(Session, "publish", encode)
    for lease_id in ("L1", "L2", "L3"):
        agent.handle(pb.BandwidthReport(lease_id=lease_id))
    lines = [record.getMessage() for record in caplog.records if "left out" in record.message]
    assert len(lines) == 2
    assert all("BandwidthReport failed and is left out" in line for line in lines)
    assert encoded == ["L3"]


def test_the_watchdog_is_fed_while_the_agent_is_healthy(
    agent: Agent, systemd: CountingNotifier
) -> None:
    agent.tick(time.monotonic() + 1)
    assert systemd.fed == 1


def test_the_watchdog_is_not_fed_while_a_probe_hangs_or_keeps_failing(
    agent: Agent,
    systemd: CountingNotifier,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reasons = ["ping is late by 12 s", ""]
    monkeypatch.setattr(Probes, "unhealthy_reason", lambda *_: reasons.pop(0))
    now_s = time.monotonic()
    agent.tick(now_s + 1)
    assert systemd.fed == 0
    assert "watchdog: not fed, because ping is late by 12 s" in caplog.text
    agent.tick(now_s + 2)
    assert systemd.fed == 1


def test_the_watchdog_is_not_fed_while_ticks_fail(
    agent: Agent, systemd: CountingNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    now_s = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(Session, "tick", fail)
        agent.tick(now_s)
        assert agent.due_s() > now_s  # not at once, for ever
        agent.tick(now_s + 1)
    assert systemd.fed == 0
    agent.tick(now_s + 2)
    agent.tick(now_s + 3)
    assert systemd.fed == 1


def test_a_probe_that_failed_is_in_the_next_report(
    agent: Agent,
    published: list[pb.Report | Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = [["ping"], []]
    monkeypatch.setattr(Probes, "take_failed", lambda _: failed.pop(0))
    now_s = time.monotonic()
    agent.tick(now_s + 5)
    agent.tick(now_s + 10)
    first, second = (sample for sample in published if isinstance(sample, pb.Report))
    why = "its thread failed and restarts"
    told = pb.CollectorRun(name="ping", outcome=pb.CollectorRun.FAILED, why=why)
    assert told in first.collectors
    assert told not in second.collectors


def test_a_report_says_which_collectors_failed_and_no_more(
    agent: Agent, published: list[pb.Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        pb.CollectorRun(name="cpu", outcome=pb.CollectorRun.OK, duration_us=300),
        pb.CollectorRun(name="disk", outcome=pb.CollectorRun.FAILED, duration_us=3, why="EIO"),
        pb.CollectorRun(name="temperature", outcome=pb.CollectorRun.ABSENT, duration_us=3),
    ]
    monkeypatch.setattr(Collectors, "collect", lambda _: pb.Report(collectors=runs))
    agent.tick(time.monotonic() + 5)
    (report,) = (sample for sample in published if isinstance(sample, pb.Report))
    failed = pb.CollectorRun(name="disk", outcome=pb.CollectorRun.FAILED, why="EIO")
    assert list(report.collectors) == [failed]


class CountedNetwork:
    """Counts one packet each second, and reads the rate since the last reading."""

    def __init__(self) -> None:
        self.packets = 0.0
        self.begins_s = 0.0

    def rates(self, now_s: float) -> list[pb.NetworkInterface]:
        rate, self.packets = self.packets / (now_s - self.begins_s), 0.0
        self.begins_s = now_s
        return [pb.NetworkInterface(name="eth0", packets_sent_per_s=rate)]


def test_a_report_has_the_traffic_before_a_bandwidth_test_and_none_of_the_test(
    agent: Agent, published: list[pb.Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, tested_s = time.monotonic() + 100.0, float("-inf")
    network = CountedNetwork()
    network.begins_s = now_s
    lease = BandwidthLease(
        "L1", pb.BandwidthLease.CLIENT, Peer("pi-2", "192.0.2.2"), 5201, 500, 1 << 17, now_s + 99
    )
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(Session, "handle", lambda *_: lease)
    monkeypatch.setattr(Collectors, "read_network", lambda _: network.rates(now_s))
    monkeypatch.setattr(Collectors, "collect", lambda _: pb.Report(network=network.rates(now_s)))
    monkeypatch.setattr(Probes, "start_lease", lambda *_: None)
    monkeypatch.setattr(Probes, "has_loaded_since", lambda _, since_s: tested_s >= since_s)

    def passed(seconds: float, packets: float) -> None:
        nonlocal now_s
        now_s += seconds
        network.packets += packets

    def reported() -> list[float]:
        agent._publish_report(now_s)
        return [each.packets_sent_per_s for each in published.pop().network]

    passed(4.0, 40.0)
    assert reported() == [10.0]
    for _ in range(3):
        passed(4.0, 80.0)
        agent.handle(MessageReceived("", b"", None, now_s))
        passed(1.0, 100_000.0)
        tested_s = now_s
        passed(5.0, 100.0)
        assert reported() == [20.0]
    passed(0.5, 5.0)
    agent.handle(MessageReceived("", b"", None, now_s))  # too early for a rate
    tested_s = now_s
    passed(5.0, 100_000.0)
    assert reported() == []
    passed(5.0, 100.0)
    assert reported() == [20.0]


@given(
    st.booleans(),
    st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 100), st.booleans()), max_size=60),
)
def test_early_reports_are_apart_and_only_for_a_broker_that_listens_and_a_load_of_users(
    is_on: bool, steps: list[tuple[float, float, bool]]
) -> None:
    """steps: until the next tick, s; the load read then, per cent; whether the broker is there and
    no test of our own runs."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        settings = replace(made(Path(folder)), interval_s=10, early_reports=is_on)
        agent = Agent(settings, Endpoint.of(settings.broker), SimpleQueue(), Notifier({}))
        now_s, load, is_quiet = time.monotonic(), 0.0, True
        reported: list[tuple[float, bool, float]] = []

        def publish(_: Agent, at_s: float, *, is_early: bool = False) -> None:
            reported.append((at_s, is_early, agent._report.due_s))
            assert is_quiet or not is_early
            agent._jumps.reported(Load(load), is_early=is_early)
            agent._reported_s = at_s

        patch.setattr(Agent, "_publish_report", publish)
        patch.setattr(Session, "tick", lambda *_: None)
        # What keeps it from being quiet is the broker if the load is high, else a test.
        patch.setattr(Session, "is_connected", property(lambda _: is_quiet or load < 50))
        patch.setattr(Probes, "has_loaded_since", lambda *_: not is_quiet and load < 50)
        patch.setattr(LoadReader, "read", lambda *_: Load(load))
        for wait_s, load, is_quiet in steps:  # noqa: B007 - the functions above read them
            now_s += wait_s
            agent.tick(now_s)
            assert not agent._has_failed
        agent.close()
    early_s = [at_s for at_s, is_early, _ in reported if is_early]
    assert is_on or not early_s
    assert all(later_s - at_s >= WATCH_S for at_s, later_s in pairwise(early_s))
    for (before_s, _, _), (at_s, is_early, due_s) in pairwise(reported):
        assert not is_early or min(at_s - before_s, due_s - at_s) >= LEAST_RATE_S


def test_a_flood_of_leases_does_not_fill_the_memory(settings: Settings) -> None:
    inbox: SimpleQueue[InboxItem] = SimpleQueue()
    agent = Agent(settings, Endpoint.of(settings.broker), inbox, Notifier({}))
    for _ in range(10 * MAX_WAITING):
        agent._post(MessageReceived("leadline/v1/default/pi-1/lease", b"x", None, 0.0))
    assert inbox.qsize() <= MAX_WAITING
    agent.close()


def refuse_to_load() -> Settings:
    raise RecursionError("maximum recursion depth exceeded")


def vanish_to_load() -> Settings:
    raise MemoryError


@pytest.mark.parametrize("reload", [refuse_to_load, vanish_to_load])
def test_a_reload_that_fails_for_any_reason_changes_nothing(
    agent: Agent, reload: Callable[[], Settings], caplog: pytest.LogCaptureFixture
) -> None:
    assert agent.with_new_settings(reload) is agent
    assert "the settings stay as they were" in caplog.text
    wait_until(
        lambda: agent._probes.unhealthy_reason(time.monotonic()) == "", "the probes still run"
    )


def test_a_new_state_folder_that_cannot_be_used_leaves_the_old_one(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    authority = Authority(tmp_path / "ca")
    certificate = authority.client("pi-1")
    old = Agent(settings, Endpoint.of(tls(certificate)), SimpleQueue(), Notifier({}))
    certificate.cert_file.unlink()  # what the old settings name is gone, too
    elsewhere = Settings(
        *("pi-1", "default", tmp_path / "file" / "state", 1, 1 << 20),
        *(settings.broker, settings.probe),
    )
    new = old.with_new_settings(lambda: elsewhere)
    assert "the settings stay as they were" in caplog.text
    assert new._settings is old._settings
    new.close()


def test_traffic_is_published_where_a_file_of_it_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[object] = []
    monkeypatch.setattr(Session, "publish", lambda _, sample: published.append(sample))
    file = tmp_path / "flows.json"
    named = replace(settings, flows=file)
    agent = Agent(named, Endpoint.of(named.broker), SimpleQueue(), CountingNotifier())
    try:
        row = '["10.42.1.5","10.42.2.7",80,1,2,3,4,5,null,false]'
        file.write_text(
            f'{{"version":1,"boot_ms":{boot_ms()},"duration_ms":60000,"omitted_bytes":0,'
            f'"lost_events":false,"flows":[{row}]}}'
        )
        for wait_s in (loop.READ_FLOWS_S + 1, 2 * loop.READ_FLOWS_S + 1):
            agent.tick(time.monotonic() + wait_s)
    finally:
        agent.close()
    (report,) = (each for each in published if isinstance(each, pb.TrafficReport))
    assert [flow.port for flow in report.flows] == [80]
