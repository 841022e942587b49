"""Real agents and a real mosquitto: what the controller receives, through every failure."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest
from leadline_wire import topics
from leadline_wire.topics import Kind
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.agents import AgentProcess, Listener, agent_config, listening, running_agent
from tests.support.certificates import Authority
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port, listens, wait_until
from tests.support.processes import frozen

pytestmark = pytest.mark.broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with mosquitto() as broker:
        yield broker


@pytest.fixture
def listener(broker: Broker) -> Iterator[Listener]:
    with listening(broker.port, broker.host) as listener:
        yield listener


@pytest.fixture
def agent(broker: Broker, listener: Listener, tmp_path: Path) -> Iterator[AgentProcess]:
    with running_agent(agent_config(tmp_path, broker.port)) as agent:
        yield agent


@contextmanager
def listening_broker(agent: AgentProcess, port: int) -> Iterator[tuple[Broker, Listener]]:
    """A broker that comes while the agent runs, and one who hears its first word."""
    with ExitStack() as stack:
        with frozen(agent.process):
            broker = stack.enter_context(mosquitto(port=port))
            listener = stack.enter_context(listening(port, broker.host))
        yield broker, listener


def numbered(listener: Listener) -> list[tuple[int, int]]:
    """(session, sequence) of everything that has a number, in the order of arrival."""
    return [
        (heard.message.origin.session, heard.message.origin.sequence)
        for heard in listener.heard
        if heard.topic.kind != Kind.STATUS
    ]


def test_birth_and_reports_come_in_order_with_their_properties(
    agent: AgentProcess, listener: Listener
) -> None:
    listener.wait_for(Kind.REPORT, 3)
    assert numbered(listener)[:4] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    kinds = [heard.topic.kind for heard in listener.heard]
    assert kinds[:3] == [Kind.STATUS, Kind.BIRTH, Kind.REPORT]
    (status, *_), (birth, *_) = listener.of(Kind.STATUS), listener.of(Kind.BIRTH)
    assert status.online
    assert birth.address == "127.0.0.1"
    report = next(heard for heard in listener.heard if heard.topic.kind == Kind.REPORT)
    properties = report.properties.json()
    assert properties["MessageExpiryInterval"] == topics.DELIVERY[Kind.REPORT].expiry_s
    assert properties["ContentType"] == topics.CONTENT_TYPE
    assert report.message.cpu.HasField("busy_percent")  # even the first report knows rates
    timing = report.message.timing
    assert 0 <= timing.sent_boot_ms - timing.measured_boot_ms < 60_000
    assert listener.faults == []


def test_birth_and_status_are_retained(
    agent: AgentProcess, listener: Listener, broker: Broker
) -> None:
    listener.wait_for(Kind.BIRTH)
    with listening(broker.port, broker.host) as late:
        late.wait_for(Kind.BIRTH)
        late.wait_for(Kind.STATUS)
        kept = {heard.topic.kind for heard in late.heard if heard.retained}
    assert kept == {Kind.BIRTH, Kind.STATUS}


def test_a_killed_agent_leaves_its_will_with_its_session(
    agent: AgentProcess, listener: Listener
) -> None:
    listener.wait_for(Kind.BIRTH)
    agent.end(signal.SIGKILL)
    _, will = listener.wait_for(Kind.STATUS, 2)
    assert not will.online
    assert will.origin == pb.Origin(node="pi-1", boot_id=will.origin.boot_id, session=1)


def test_sigterm_ends_cleanly_and_says_offline(
    agent: AgentProcess, listener: Listener, tmp_path: Path
) -> None:
    listener.wait_for(Kind.REPORT)
    assert agent.end(signal.SIGTERM) == 0
    statuses = listener.wait_for(Kind.STATUS, 2)
    assert [status.online for status in statuses] == [True, False]
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["session"]


def test_an_agent_waits_for_a_broker_that_starts_later(tmp_path: Path) -> None:
    port = free_port()
    with running_agent(agent_config(tmp_path, port)) as agent:
        wait_until(lambda: (tmp_path / "state/buffer").exists(), "messages are kept on disk")
        assert agent.log.count("Connection refused") >= 1
        with listening_broker(agent, port) as (_, listener):
            listener.wait_for(Kind.BIRTH)
            assert numbered(listener)[0] == (1, 1)  # measured before there was a broker
            assert listener.faults == []


def test_an_outage_loses_nothing_and_keeps_the_order(tmp_path: Path) -> None:
    port = free_port()
    with running_agent(agent_config(tmp_path, port)) as agent:
        with listening_broker(agent, port) as (broker, before):
            before.wait_for(Kind.REPORT, 2)
            os.kill(broker.pid, signal.SIGKILL)
            wait_until(lambda: buffered(tmp_path) > 500, "reports are kept on disk")
        with listening_broker(agent, port) as (_, after):
            birth = after.wait_for(Kind.BIRTH)[0].origin.sequence
            assert numbered(after) == sorted(numbered(after))
            wait_until(lambda: buffered(tmp_path) == 0, "the buffer is empty again")
    heard = {sequence for _, sequence in numbered(before) + numbered(after)}
    assert set(range(1, birth + 1)) <= heard


def test_a_killed_agents_messages_are_sent_by_the_next_session(tmp_path: Path) -> None:
    port = free_port()
    config = agent_config(tmp_path, port)
    with running_agent(config) as agent:
        wait_until(lambda: buffered(tmp_path) > 500, "reports are kept on disk")
        agent.end(signal.SIGKILL)
    with (
        mosquitto(port=port) as broker,
        listening(port, broker.host) as listener,
        running_agent(config),
    ):
        birth = listener.wait_for(Kind.BIRTH)[0]
        assert birth.origin.session == 2
        assert numbered(listener)[:2] == [(1, 1), (1, 2)]
        assert numbered(listener) == sorted(numbered(listener))
        assert all(report.timing.HasField("sent_boot_ms") for report in listener.of(Kind.REPORT))


@contextmanager
def played_cpu(folder: Path) -> Iterator[Callable[[float], None]]:
    """A /proc whose one core is as busy as it is told, per cent, for an agent with this folder in
    its PYTHONPATH."""
    (folder / "proc").mkdir()
    code = f"import psutil; psutil.PROCFS_PATH = {str(folder / 'proc')!r}"
    (folder / "sitecustomize.py").write_text(code)
    ended, now = Event(), [0.0]

    def play() -> None:
        busy = idle = 0.0
        while not ended.wait(0.1):
            busy, idle = busy + now[0], idle + 100 - now[0]
            line = f"cpu {busy:.0f} 0 0 {idle:.0f} 0 0 0 0 0 0\n"
            (folder / "stat").write_text(line)
            (folder / "stat").replace(folder / "proc/stat")

    thread = Thread(target=play)
    thread.start()
    try:
        yield lambda percent: now.__setitem__(0, percent)
    finally:
        ended.set()
        thread.join()


def test_a_load_that_jumps_is_reported_before_its_time(
    broker: Broker, listener: Listener, tmp_path: Path
) -> None:
    """Rates are over the time since the last report, and numbers go on."""
    config = agent_config(tmp_path, broker.port, interval_s=30)
    environ = {"PYTHONPATH": str(tmp_path)}
    with played_cpu(tmp_path) as play, running_agent(config, environ):
        play(10.0)
        listener.wait_for(Kind.REPORT)
        play(90.0)
        wait_until(lambda: busy(listener) > 85, "the new load is known", 90)
        play(10.0)
        wait_until(lambda: busy(listener) < 15, "it is known that it has ended", 90)
    reports = listener.of(Kind.REPORT)
    assert [each.origin.sequence for each in reports] == [*range(2, 2 + len(reports))]
    measured_ms = [each.timing.measured_boot_ms for each in reports]
    assert all(later - at >= 1000 for at, later in pairwise(measured_ms))
    assert measured_ms[1] - measured_ms[0] < 29_000


def busy(listener: Listener) -> float:
    return float(listener.of(Kind.REPORT)[-1].cpu.busy_percent)


def buffered(folder: Path) -> int:
    path = folder / "state/buffer"
    return path.stat().st_size if path.exists() else 0


def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate = authority.client("pi-1")
    with mosquitto(tls=authority.server("localhost")) as broker:
        config = agent_config(tmp_path, broker.port, tls=certificate)
        with (
            listening(broker.port, tls=authority.client("controller")) as listener,
            running_agent(config),
        ):
            listener.wait_for(Kind.REPORT)


@pytest.mark.parametrize(
    ("mishap", "reason"),
    [
        ("its certificate is of another authority", "certificate is not valid"),
        ("its certificate has another name", "certificate is not valid"),
        (
            "it does not know ours",
            "does not know the authority that signed this node's certificate",
        ),
        ("it expects TLS", "does it expect TLS?"),
    ],
)
def test_a_broker_that_cannot_be_trusted_gets_nothing(
    tmp_path: Path, mishap: str, reason: str
) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "Other CA")
    server = authority.server("elsewhere" if "another name" in mishap else "localhost")
    tls = (other if "authority" in mishap or "ours" in mishap else authority).client("pi-1")
    if "ours" in mishap:
        tls = replace(tls, ca_file=authority.ca_file)
    with mosquitto(tls=server) as broker:
        config = agent_config(tmp_path, broker.port, tls=None if "expects" in mishap else tls)
        with running_agent(config) as agent:
            wait_until(lambda: "trying again" in agent.log, "the agent gives up for now")
            assert reason in agent.log
            assert "connected," not in agent.log
            assert "Traceback" not in agent.log


def test_sighup_takes_new_settings_and_refuses_bad_ones(
    agent: AgentProcess, listener: Listener, broker: Broker, tmp_path: Path
) -> None:
    listener.wait_for(Kind.REPORT)
    config = tmp_path / "agent.toml"
    good = config.read_text()
    config.write_text(good + "[nonsense]\n")
    agent.signal(signal.SIGHUP)
    wait_until(lambda: "the settings stay as they were" in agent.log, "the bad file is refused")
    assert f"{config}: nonsense" in agent.log
    assert len(listener.of(Kind.BIRTH)) == 1
    config.write_text(good.replace("interval_s = 1", "interval_s = 2"))
    agent.signal(signal.SIGHUP)
    birth = listener.wait_for(Kind.BIRTH, 2)[-1]
    assert (birth.origin.session, birth.interval_s) == (2, 2)
    reports = len(listener.of(Kind.REPORT))
    listener.wait_for(Kind.REPORT, reports + 1)
    assert agent.end() == 0


def test_sigterm_during_a_reload_is_not_lost(agent: AgentProcess, listener: Listener) -> None:
    listener.wait_for(Kind.REPORT)
    agent.signal(signal.SIGHUP)
    assert agent.end(signal.SIGTERM) == 0


def test_systemd_is_notified_of_readiness_watchdog_reload_and_stop(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(20)
        environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}
        with running_agent(agent_config(tmp_path, broker.port), environ) as agent:
            states = notifications(systemd, until="READY=1")
            assert states == ["READY=1"] or set(states[:-1]) == {"WATCHDOG=1"}
            assert notifications(systemd, until="WATCHDOG=1")[-1] == "WATCHDOG=1"
            agent.signal(signal.SIGHUP)
            reload = notifications(systemd, until="RELOADING=1")[-1]
            assert "MONOTONIC_USEC=" in reload
            notifications(systemd, until="READY=1")
            assert agent.end() == 0
            notifications(systemd, until="STOPPING=1")


def notifications(systemd: socket.socket, until: str) -> list[str]:
    states: list[str] = []
    while not (states and states[-1].startswith(until)):
        states.append(systemd.recv(200).decode())
    return states


def test_a_ping_lease_is_followed(agent: AgentProcess, listener: Listener) -> None:
    listener.wait_for(Kind.BIRTH)
    peers = [pb.Peer(node="pi-2", address="127.0.0.1")]
    ping = pb.PingLease(peers=peers, interval_s=1, count=3, ttl_s=60)
    listener.lease(pb.Lease(node="pi-1", ping=ping))
    rtt = listener.wait_for(Kind.RTT)[0].peers[0]
    if rtt.method == pb.Rtt.ICMP:
        assert (rtt.peer, rtt.sent, rtt.received) == ("pi-2", 3, 3)
    else:  # where the tests may not send ICMP either
        assert (rtt.peer, rtt.method) == ("@broker", pb.Rtt.MQTT)
    assert rtt.rtt_ms > 0


@pytest.mark.network
def test_without_icmp_the_round_trip_to_the_broker_is_measured(
    broker: Broker, listener: Listener, tmp_path: Path
) -> None:
    groups = Path("/proc/sys/net/ipv4/ping_group_range")
    before = groups.read_text()
    groups.write_text("1 0")
    without_raw_sockets = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw")
    try:
        with running_agent(
            agent_config(tmp_path, broker.port), prefix=without_raw_sockets
        ) as agent:
            assert listener.wait_for(Kind.BIRTH)[0].probes[0] == "mqtt"
            listener.wait_for(Kind.REPORT)
            peers = [pb.Peer(node="pi-2", address="127.0.0.1")]
            ping = pb.PingLease(peers=peers, interval_s=1, count=3, ttl_s=60)
            listener.lease(pb.Lease(node="pi-1", ping=ping))
            (leg,) = listener.wait_for(Kind.RTT)[0].peers
            assert agent.log.count("ICMP is not permitted") == 1
    finally:
        groups.write_text(before)
    assert (leg.peer, leg.method) == ("@broker", pb.Rtt.MQTT)
    assert leg.sent == leg.received > 0
    assert leg.rtt_ms > 0


def test_a_bandwidth_lease_over_the_limits_is_answered_with_a_refusal(
    agent: AgentProcess, listener: Listener
) -> None:
    listener.wait_for(Kind.BIRTH)
    bandwidth = pb.BandwidthLease(
        lease_id="L1",
        role=pb.BandwidthLease.CLIENT,
        peer=pb.Peer(node="pi-2", address="127.0.0.1"),
        port=5201,
        duration_ms=60_000,
        max_bytes=1 << 20,
        ttl_ms=5000,
    )
    listener.lease(pb.Lease(node="pi-1", bandwidth=bandwidth))
    answer = listener.wait_for(Kind.BANDWIDTH)[0]
    assert (answer.lease_id, answer.outcome) == ("L1", pb.BandwidthReport.REFUSED)
    assert "60000 ms are asked" in answer.detail


@pytest.mark.network
def test_two_agents_measure_the_bandwidth_between_them(
    agent: AgentProcess, listener: Listener, broker: Broker, tmp_path: Path
) -> None:
    with running_agent(agent_config(tmp_path / "two", broker.port, node="pi-2")):
        listener.wait_for(Kind.BIRTH, 2)
        port = free_port()
        for node, peer, role in (
            ("pi-2", "pi-1", pb.BandwidthLease.SERVER),
            ("pi-1", "pi-2", pb.BandwidthLease.CLIENT),
        ):
            bandwidth = pb.BandwidthLease(
                lease_id="L7",
                role=role,
                peer=pb.Peer(node=peer, address="127.0.0.1"),
                port=port,
                duration_ms=1000,
                max_bytes=10_000_000,
                ttl_ms=10_000,
            )
            listener.lease(pb.Lease(node=node, bandwidth=bandwidth))
        answers = {answer.origin.node: answer for answer in listener.wait_for(Kind.BANDWIDTH, 2)}
    client, server = answers["pi-1"], answers["pi-2"]
    assert (client.peer, server.peer) == ("pi-2", "pi-1")
    for answer in (client, server):
        assert (answer.lease_id, answer.outcome) == ("L7", pb.BandwidthReport.DONE)
        assert 9_900_000 < answer.transferred_bytes <= 10_000_000
    assert server.bandwidth_mbps > 0
    assert not client.HasField("bandwidth_mbps")
    assert not listens("127.0.0.1", port)


@pytest.mark.parametrize(
    "config_lines",
    [
        ("max_inflight_messages 1",),
        ("max_packet_size 1000",),
        ("retain_available false",),
        ("max_qos 0",),
        ("max_qos 0", "retain_available false", "max_keepalive 10", "max_topic_alias 0"),
    ],
    ids=["in flight", "size", "retain", "qos", "all"],
)
def test_a_broker_that_allows_little_gets_what_it_allows(
    tmp_path: Path, config_lines: tuple[str, ...]
) -> None:
    with mosquitto(config_lines) as broker, listening(broker.port, broker.host) as listener:
        with running_agent(agent_config(tmp_path, broker.port)) as agent:
            listener.wait_for(Kind.BIRTH)
            listener.wait_for(Kind.REPORT, 2)
            agent.end(signal.SIGKILL)
            assert [status.online for status in listener.wait_for(Kind.STATUS, 2)] == [True, False]
        assert numbered(listener) == sorted(set(numbered(listener)))
        assert "connection lost" not in agent.log
