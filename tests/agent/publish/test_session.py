"""The session's rules: when to reconnect, and the order in which messages are sent."""

from collections.abc import Callable
from pathlib import Path

import pytest
from leadline_agent.config import Broker, Probe, Settings
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
from leadline_wire.broker_limits import BrokerLimits
from leadline_wire.v1 import telemetry_pb2 as pb

BOARD = pb.Birth(hardware_model="Pi", address="10.0.0.1", interval_s=10, probes=["icmp"])
BROKER = Broker("broker", 8883, None)


class FakeConnection(PahoConnection):
    """Records what is sent; a test acknowledges it."""

    def __init__(self) -> None:
        self.sent: list[tuple[topics.Kind, codec.TelemetryMessage]] = []
        self.attempt = 0
        self.confirmed = 0

    def connect(self, attempt: int, *_: object) -> "FakeConnection":
        self.attempt = attempt
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


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def open_session(tmp_path: Path, connection: FakeConnection) -> Callable[[], Session]:
    def open_() -> Session:
        return Session(
            Endpoint("broker", 8883, None),
            Settings("pi-1", "home", tmp_path, 10, 1 << 20, BROKER, Probe("", 8, 1 << 28, 5000)),
            board=BOARD,
            post=lambda _: None,
            connect=connection.connect,
        )

    return open_


def report(measured_boot_ms: int = 1) -> pb.Report:
    return pb.Report(timing=pb.Timing(measured_boot_ms=measured_boot_ms))


def confirm_all(session: Session, connection: FakeConnection) -> None:
    while connection.confirmed < len(connection.sent):
        connection.confirmed += 1
        session.handle(Acknowledged(connection.attempt, connection.confirmed, at_s=0.0))


def connect(session: Session, connection: FakeConnection, now_s: float = 1e9) -> None:
    session.tick(now_s)
    session.handle(Connected(connection.attempt, "10.0.0.9"))


def close(session: Session) -> None:
    session.close(lambda _: None, 0.0)


@pytest.mark.parametrize("failures", [0, 1, 5, 1000])
def test_the_back_off_is_jittered_in_full_and_bounded(failures: int) -> None:
    assert back_off_s(failures, lambda: 0.0) == 0.0
    bound_s = back_off_s(failures, lambda: 1.0)
    assert bound_s <= MAX_BACK_OFF_S
    assert back_off_s(failures, lambda: 0.5) == bound_s / 2
    assert back_off_s(failures + 1, lambda: 1.0) >= bound_s


def test_a_connection_begins_with_status_and_birth(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    connect(session, connection)
    assert connection.kinds() == [topics.Kind.STATUS, topics.Kind.BIRTH]
    birth = connection.sent[1][1]
    assert isinstance(birth, pb.Birth)
    assert birth.address == "10.0.0.1"  # the settings know better than the route
    assert (birth.hardware_model, birth.interval_s, list(birth.probes)) == ("Pi", 10, ["icmp"])
    assert birth.timing.measured_boot_ms > 0
    assert BOARD.origin.sequence == 0  # the birth is a copy
    close(session)


def test_a_birth_says_how_many_messages_were_dropped(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    session._buffer.max_bytes = 150
    for _ in range(5):
        session.publish(report())
    connect(session, connection)
    birth = connection.sent[-1][1]
    assert isinstance(birth, pb.Birth)
    assert birth.dropped_messages > 0
    close(session)


def test_measurements_of_an_outage_are_sent_in_order_before_the_birth(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    for _ in range(3):
        session.publish(report())
    connect(session, connection)
    session.publish(report())
    confirm_all(session, connection)
    assert connection.sequences() == [1, 2, 3, 4, 5]
    assert connection.kinds()[1:] == ["report", "report", "report", "birth", "report"]
    close(session)


@pytest.mark.parametrize("allowed", [1, 3, MAX_IN_FLIGHT, 65_535])
def test_the_number_of_messages_in_flight_is_bounded(
    open_session: Callable[[], Session], connection: FakeConnection, allowed: int
) -> None:
    session = open_session()
    for _ in range(3 * MAX_IN_FLIGHT):
        session.publish(report())
    session.tick(1e9)
    limits = BrokerLimits(receive_maximum=allowed)
    session.handle(Connected(connection.attempt, "10.0.0.9", limits))
    for confirmed in (1, 2):
        assert len(connection.sent) == min(allowed, MAX_IN_FLIGHT) + confirmed - 1
        session.handle(Acknowledged(connection.attempt, confirmed, at_s=0.0))
    close(session)


def test_buffered_messages_are_sent_at_a_limited_rate(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    for _ in range(20 * MAX_IN_FLIGHT):
        session.publish(report())
    connect(session, connection)
    confirm_all(session, connection)
    sent = len(connection.sequences())
    assert sent < 5 * MAX_IN_FLIGHT
    assert session.due_s() < float("inf")
    session.tick(session.due_s() + 1.0)
    assert len(connection.sequences()) > sent
    close(session)


def test_unacknowledged_messages_are_sent_again_after_a_reconnection(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    connect(session, connection)
    confirm_all(session, connection)
    session.publish(report())
    session.publish(report())
    session.handle(Disconnected(connection.attempt, "gone"))
    connection.sent.clear()
    connect(session, connection)
    assert connection.sequences() == [2, 3, 4]
    assert connection.kinds() == ["status", "report", "report", "birth"]
    close(session)


def test_a_queued_birth_is_not_duplicated(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    connect(session, connection)
    session.handle(Disconnected(connection.attempt, "gone"))
    connection.sent.clear()
    connect(session, connection)
    assert connection.kinds() == ["status", "birth"]
    assert connection.sequences() == [1]
    close(session)


def test_the_next_session_sends_the_messages_of_the_last_one(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    first = open_session()
    first.publish(report(measured_boot_ms=7))
    close(first)
    second = open_session()
    connect(second, connection)
    (_, old), (_, birth) = connection.sent[1:]
    assert isinstance(old, pb.Report)
    assert isinstance(birth, pb.Birth)
    assert (old.origin.session, birth.origin.session) == (1, 2)
    assert old.timing.HasField("sent_boot_ms")  # same boot: its age is known
    close(second)


def test_a_message_of_an_earlier_boot_has_no_time_of_sending(
    open_session: Callable[[], Session], connection: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "boot_id", lambda: b"B" * 16)
    first = open_session()
    first.publish(report())
    close(first)
    monkeypatch.undo()
    second = open_session()
    connect(second, connection)
    old = connection.sent[1][1]
    assert isinstance(old, pb.Report)
    assert old.origin.boot_id == b"B" * 16
    assert not old.timing.HasField("sent_boot_ms")
    close(second)


def test_events_of_an_earlier_connection_are_ignored(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    connect(session, connection)
    old = connection.attempt
    session.handle(Disconnected(old, "gone"))
    connect(session, connection)
    sent = len(connection.sent)
    late: tuple[Event, ...] = (
        Disconnected(old, "gone"),
        Connected(old, ""),
        Acknowledged(old, 1, 0.0),
    )
    for event in late:
        session.handle(event)
    session.publish(report())
    assert len(connection.sent) == sent + 1
    close(session)


def test_only_a_message_that_is_alone_in_flight_gives_a_round_trip(
    open_session: Callable[[], Session], connection: FakeConnection
) -> None:
    session = open_session()
    connect(session, connection)
    session.publish(report())
    confirm_all(session, connection)
    assert len(session.broker_rtts_ms()) == 1
    assert session.broker_rtts_ms() == []
    close(session)


def test_a_refused_message_is_dropped(
    open_session: Callable[[], Session],
    connection: FakeConnection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = open_session()
    connect(session, connection)
    session.handle(Acknowledged(connection.attempt, 2, 0.0, refusal="Not authorized"))
    assert "Not authorized" in caplog.text
    session.handle(Disconnected(connection.attempt, "gone"))
    connection.sent.clear()
    connect(session, connection)
    assert connection.sequences() == [2]  # a new birth, and not the refused one
    close(session)


@pytest.mark.parametrize("payload", [b"\xff", pb.Lease(node="pi-2").SerializeToString()])
def test_an_invalid_lease_is_logged_and_refused(
    open_session: Callable[[], Session], caplog: pytest.LogCaptureFixture, payload: bytes
) -> None:
    session = open_session()
    topic = "leadline/v1/home/pi-1/lease"
    assert session.handle(MessageReceived(topic, payload, topics.SCHEMA, 0.0)) is None
    assert "lease: refused" in caplog.text
    close(session)


def test_a_valid_lease_is_returned(open_session: Callable[[], Session]) -> None:
    session = open_session()
    payload = pb.Lease(node="pi-1", ping=pb.PingLease(count=1, ttl_s=5)).SerializeToString()
    event = MessageReceived("leadline/v1/home/pi-1/lease", payload, topics.SCHEMA, 10.0)
    work: Lease | None = session.handle(event)
    assert work == PingLease((), 0, 1, expires_s=15.0)
    close(session)
