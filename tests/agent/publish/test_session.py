"""The session's rules: when to reconnect, and the order in which messages are sent."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from leadline_agent.config import Broker, Probe, Settings, Tls
from leadline_agent.lease import Lease, PingLease
from leadline_agent.publish import session as session_module
from leadline_agent.publish.connection import (
    Acknowledged,
    Connected,
    Disconnected,
    Endpoint,
    Event,
    MessageReceived,
    PahoConnection,
)
from leadline_agent.publish.session import MAX_BACK_OFF_S, MAX_IN_FLIGHT, Session, back_off_s
from leadline_wire import codec, topics
from leadline_wire.broker_limits import MQTT_DEFAULTS, BrokerLimits
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.certificates import Authority

BOARD = pb.Birth(hardware_model="Pi", address="10.0.0.1", interval_s=10, probes=["icmp"])
BROKER = Broker("broker", 8883, None)


class FakeConnection(PahoConnection):
    """Records what is sent; a test acknowledges it."""

    def __init__(self) -> None:
        self.sent: list[tuple[topics.Kind, codec.TelemetryMessage]] = []
        self.attempt, self.endpoint = 0, Endpoint("broker", 8883, None)
        self.confirmed = 0

    def connect(self, attempt: int, endpoint: Endpoint, *_: object) -> "FakeConnection":
        self.attempt, self.endpoint = attempt, endpoint
        return self

    def publish(self, topic: str, payload: bytes) -> int:
        parsed = topics.parse(topic)
        self.sent.append((parsed.kind, codec.decode(parsed, payload, topics.SCHEMA)))
        return len(self.sent)

    def close(self, *, with_will: bool = True) -> None:
        pass

    def sequences(self) -> list[int]:
        return [
            message.origin.sequence
            for _, message in self.sent
            if not isinstance(message, pb.Lease | pb.Status)
        ]

    def kinds(self) -> list[topics.Kind]:
        return [kind for kind, _ in self.sent]


def report(measured_boot_ms: int = 1) -> pb.Report:
    return pb.Report(timing=pb.Timing(measured_boot_ms=measured_boot_ms))


class Agent:
    """A session, and the connection that it has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.broker, self.endpoint = BROKER, Endpoint("broker", 8883, None)
        self.connection = FakeConnection()
        self.session = self._opened()

    def _opened(self) -> Session:
        limits = Probe("", 8, 1 << 28, 5000)
        return Session(
            self.endpoint,
            Settings("pi-1", "home", self._folder, 10, 1 << 20, self.broker, limits),
            board=BOARD,
            post=lambda _: None,
            connect=self.connection.connect,
        )

    def restart(self) -> None:
        self.close()
        self.session = self._opened()

    def close(self) -> None:
        self.session.close(lambda _: None, 0.0)

    def connect(self, limits: BrokerLimits = MQTT_DEFAULTS) -> None:
        self.connection.sent.clear()
        self.session.tick(1e9)
        self.session.handle(Connected(self.connection.attempt, "10.0.0.9", limits))

    def disconnect(self) -> None:
        self.session.handle(Disconnected(self.connection.attempt, "gone"))

    def acknowledge(self, message_id: int, refusal: str = "") -> None:
        self.session.handle(
            Acknowledged(self.connection.attempt, message_id, at_s=0.0, refusal=refusal)
        )

    def confirm_all(self) -> None:
        while self.connection.confirmed < len(self.connection.sent):
            self.connection.confirmed += 1
            self.acknowledge(self.connection.confirmed)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    agent.close()


@pytest.mark.parametrize("failures", [0, 1, 5, 1000])
def test_the_back_off_is_jittered_in_full_and_bounded(failures: int) -> None:
    assert back_off_s(failures, lambda: 0.0) == 0.0
    bound_s = back_off_s(failures, lambda: 1.0)
    assert bound_s <= MAX_BACK_OFF_S
    assert back_off_s(failures, lambda: 0.5) == bound_s / 2
    assert back_off_s(failures + 1, lambda: 1.0) >= bound_s


def test_a_connection_begins_with_status_and_birth(agent: Agent) -> None:
    agent.connect()
    assert agent.connection.kinds() == [topics.Kind.STATUS, topics.Kind.BIRTH]
    birth = agent.connection.sent[1][1]
    assert isinstance(birth, pb.Birth)
    assert birth.address == "10.0.0.1"  # the settings know better than the route
    assert (birth.hardware_model, birth.interval_s, list(birth.probes)) == ("Pi", 10, ["icmp"])
    assert birth.timing.measured_boot_ms > 0
    assert BOARD.origin.sequence == 0  # the birth is a copy


def test_a_birth_says_how_many_messages_were_dropped(agent: Agent) -> None:
    agent.session._buffer.max_bytes = 150
    for _ in range(5):
        agent.session.publish(report())
    agent.connect()
    birth = agent.connection.sent[-1][1]
    assert isinstance(birth, pb.Birth)
    assert birth.dropped_messages > 0


def test_measurements_of_an_outage_are_sent_in_order_before_the_birth(agent: Agent) -> None:
    for _ in range(3):
        agent.session.publish(report())
    agent.connect()
    agent.session.publish(report())
    agent.confirm_all()
    assert agent.connection.sequences() == [1, 2, 3, 4, 5]
    assert agent.connection.kinds()[1:] == ["report", "report", "report", "birth", "report"]


@pytest.mark.parametrize("allowed", [1, 3, MAX_IN_FLIGHT, 65_535])
def test_the_number_of_messages_in_flight_is_bounded(agent: Agent, allowed: int) -> None:
    for _ in range(3 * MAX_IN_FLIGHT):
        agent.session.publish(report())
    agent.connect(BrokerLimits(receive_maximum=allowed))
    for confirmed in (1, 2):
        assert len(agent.connection.sent) == min(allowed, MAX_IN_FLIGHT) + confirmed - 1
        agent.acknowledge(confirmed)


def test_buffered_messages_are_sent_at_a_limited_rate(agent: Agent) -> None:
    for _ in range(20 * MAX_IN_FLIGHT):
        agent.session.publish(report())
    agent.connect()
    agent.confirm_all()
    sent = len(agent.connection.sequences())
    assert sent < 5 * MAX_IN_FLIGHT
    assert agent.session.due_s() < float("inf")
    agent.session.tick(agent.session.due_s() + 1.0)
    assert len(agent.connection.sequences()) > sent


def test_unacknowledged_messages_are_sent_again_after_a_reconnection(agent: Agent) -> None:
    agent.connect()
    agent.confirm_all()
    agent.session.publish(report())
    agent.session.publish(report())
    agent.disconnect()
    agent.connect()
    assert agent.connection.sequences() == [2, 3, 4]
    assert agent.connection.kinds() == ["status", "report", "report", "birth"]


def test_a_queued_birth_is_not_duplicated(agent: Agent) -> None:
    agent.connect()
    agent.disconnect()
    agent.connect()
    assert agent.connection.kinds() == ["status", "birth"]
    assert agent.connection.sequences() == [1]


def test_the_next_session_sends_the_messages_of_the_last_one(agent: Agent) -> None:
    agent.session.publish(report(measured_boot_ms=7))
    agent.restart()
    agent.connect()
    (_, old), (_, birth) = agent.connection.sent[1:]
    assert isinstance(old, pb.Report)
    assert isinstance(birth, pb.Birth)
    assert (old.origin.session, birth.origin.session) == (1, 2)
    assert old.timing.HasField("sent_boot_ms")  # same boot: its age is known


def test_a_message_of_an_earlier_boot_has_no_time_of_sending(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "boot_id", lambda: b"B" * 16)
    agent.restart()
    agent.session.publish(report())
    monkeypatch.undo()
    agent.restart()
    agent.connect()
    old = agent.connection.sent[1][1]
    assert isinstance(old, pb.Report)
    assert old.origin.boot_id == b"B" * 16
    assert not old.timing.HasField("sent_boot_ms")


def test_events_of_an_earlier_connection_are_ignored(agent: Agent) -> None:
    agent.connect()
    old = agent.connection.attempt
    agent.disconnect()
    agent.connect()
    sent = len(agent.connection.sent)
    late: tuple[Event, ...] = (
        Disconnected(old, "gone"),
        Connected(old, ""),
        Acknowledged(old, 1, 0.0),
    )
    for event in late:
        agent.session.handle(event)
    agent.session.publish(report())
    assert len(agent.connection.sent) == sent + 1


def test_only_a_message_that_is_alone_in_flight_gives_a_round_trip(agent: Agent) -> None:
    agent.connect()
    agent.session.publish(report())
    agent.confirm_all()
    assert len(agent.session.broker_rtts_ms()) == 1
    assert agent.session.broker_rtts_ms() == []


def test_a_refused_message_is_dropped(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    agent.connect()
    agent.acknowledge(2, refusal="Not authorized")
    assert "Not authorized" in caplog.text
    agent.disconnect()
    agent.connect()
    assert agent.connection.sequences() == [2]  # a new birth, and not the refused one


@pytest.mark.parametrize("payload", [b"\xff", pb.Lease(node="pi-2").SerializeToString()])
def test_an_invalid_lease_is_logged_and_refused(
    agent: Agent, caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    topic = "leadline/v1/home/pi-1/lease"
    assert agent.session.handle(MessageReceived(topic, payload, topics.SCHEMA, 0.0)) is None
    assert "lease: refused" in caplog.text


def test_a_valid_lease_is_returned(agent: Agent) -> None:
    payload = pb.Lease(node="pi-1", ping=pb.PingLease(count=1, ttl_s=5)).SerializeToString()
    event = MessageReceived("leadline/v1/home/pi-1/lease", payload, topics.SCHEMA, 10.0)
    work: Lease | None = agent.session.handle(event)
    assert work == PingLease((), 0, 1, expires_s=15.0)


def test_a_connection_reads_the_certificate_again(agent: Agent, tmp_path: Path) -> None:
    """As where another process renews it: with its key in one file, or not there for a moment."""
    authority, file = Authority(tmp_path / "authority"), tmp_path / "agent.pem"

    def renew(name: str) -> None:
        own = authority.client(name)
        file.write_bytes(own.cert_file.read_bytes() + own.key_file.read_bytes())

    def shown() -> str:
        agent.connect()
        found = agent.connection.endpoint.certificate
        agent.session.handle(Disconnected(agent.connection.attempt, "lost"))
        return found.common_name if found else ""

    renew("first")
    agent.broker = Broker("broker", 8883, Tls(authority.ca_file, file, file))
    agent.endpoint = Endpoint.of(agent.broker)
    agent.restart()
    assert shown() == "first"
    renew("second")
    assert shown() == "second"
    file.unlink()
    assert shown() == "second"
