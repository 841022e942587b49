"""A session keeps within the limits of a broker that ends the connection otherwise."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from leadline_agent.config import Broker, Probe, Settings
from leadline_agent.publish import session as session_module
from leadline_agent.publish.connection import Endpoint, Event
from leadline_agent.publish.session import MAX_IN_FLIGHT, Session, forget
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.ports import wait_until
from tests.support.strict_broker import (
    DISCONNECT,
    KEEPALIVE,
    MAXIMUM_QOS,
    PACKET_SIZE,
    PINGREQ,
    RECEIVE_MAXIMUM,
    RETAIN,
    Published,
    StrictBroker,
    Will,
    four,
    serving,
    two,
)

BACKLOG = 30
NO_RETAIN = bytes([RETAIN, 0])


class Agent:
    """The session of an agent, and its loop."""

    def __init__(self, folder: Path, broker: StrictBroker) -> None:
        self.inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.session = Session(
            Endpoint("127.0.0.1", broker.port, None),
            settings(folder, broker),
            board=pb.Birth(hardware_model="Pi", interval_s=10),
            post=self.inbox.put,
        )

    def wait(self, timeout_s: float) -> Event | None:
        try:
            return self.inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def run_until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline_s
            if event := self.wait(0.01):
                self.session.handle(event)
            self.session.tick(time.monotonic())

    def report(self, interfaces: int = 0) -> None:
        network = [pb.NetworkInterface(name=f"interface-{i}") for i in range(interfaces)]
        timing = pb.Timing(measured_boot_ms=1)
        self.session.publish(pb.Report(timing=timing, network=network))

    def all_confirmed(self) -> bool:
        return not len(self.session._buffer)


def settings(folder: Path, broker: StrictBroker) -> Settings:
    where = Broker("127.0.0.1", broker.port, None)
    return Settings("pi-1", "home", folder, 10, 1 << 20, where, Probe("", 8, 1 << 28, 5000))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waits between attempts, or between buffered messages."""
    monkeypatch.setattr(session_module, "back_off_s", lambda _: 0.0)
    monkeypatch.setattr(session_module, "DRAIN_PER_S", 1e6)


@contextmanager
def agent_of(broker: StrictBroker, folder: Path, backlog: int = BACKLOG) -> Iterator[Agent]:
    with serving(broker):
        agent = Agent(folder, broker)
        for _ in range(backlog):
            agent.report()
        try:
            yield agent
        finally:
            agent.session.close(agent.wait, 10)


def sequences(published: list[Published]) -> list[int]:
    """Of all that have a number, in order."""
    decoded = [
        codec.decode(topics.parse(each.topic), each.payload, topics.SCHEMA) for each in published
    ]
    return [
        message.origin.sequence for message in decoded if isinstance(message, pb.Report | pb.Birth)
    ]


@pytest.mark.parametrize("allowed", [1, 2, 5, MAX_IN_FLIGHT, 65_535])
def test_no_more_publishes_are_unacknowledged_than_the_broker_allows(
    tmp_path: Path, allowed: int
) -> None:
    said = bytes([RECEIVE_MAXIMUM]) + two(allowed)
    broker = StrictBroker(allowed, said=said, ack_after_s=0.005, ends_after=BACKLOG // 2)
    with agent_of(broker, tmp_path) as agent:
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
    assert broker.breaches == []
    assert 1 <= broker.most_unacknowledged <= min(allowed, MAX_IN_FLIGHT)
    assert len(broker.wills) == 2  # the broker ended the first connection with messages under way
    numbers = sequences(broker.acknowledged)
    assert list(dict.fromkeys(numbers)) == list(range(1, BACKLOG + 2))


def test_a_receive_maximum_that_is_not_said_is_learned(tmp_path: Path) -> None:
    broker = StrictBroker(3, ack_after_s=0.005)
    with agent_of(broker, tmp_path) as agent:
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
    assert set(broker.breaches) == {0x93}
    assert set(sequences(broker.acknowledged)) == set(range(1, BACKLOG + 2))


@pytest.mark.parametrize(
    "said", [bytes([PACKET_SIZE]) + four(500), b""], ids=["announced", "learned"]
)
def test_a_message_that_is_too_large_is_dropped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    broker = StrictBroker(max_packet_bytes=500, said=said)
    with agent_of(broker, tmp_path, backlog=2) as agent:
        agent.report(interfaces=50)
        agent.report()
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
    assert broker.breaches == ([] if said else [0x95])
    assert list(dict.fromkeys(sequences(broker.acknowledged))) == [1, 2, 4, 5]
    assert agent.session.dropped_messages == 1
    assert caplog.text.count("dropped leadline/v1/home/pi-1/report: a packet of ") == 1


def test_a_message_of_the_largest_size_is_sent(tmp_path: Path) -> None:
    broker = StrictBroker()
    with agent_of(broker, tmp_path, backlog=1) as agent:
        agent.report(interfaces=50)
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
        largest = max(each.size_bytes for each in broker.published)
        broker.max_packet_bytes = largest
        broker.said = bytes([PACKET_SIZE]) + four(largest)
        before = len(broker.published)
        broker.ends_after = before + 1
        agent.report()
        agent.run_until(lambda: len(broker.wills) == 2)
        agent.report(interfaces=50)
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
    assert broker.breaches == []
    assert agent.session.dropped_messages == 0
    assert max(each.size_bytes for each in broker.published[before:]) == largest


def test_a_broker_of_qos_0_gets_everything_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = StrictBroker(max_qos=0, said=bytes([MAXIMUM_QOS, 0]))
    with agent_of(broker, tmp_path) as agent:
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
        agent.run_until(lambda: len(broker.published) >= BACKLOG + 2)
        assert agent.session.broker_rtts_ms() == []  # nothing comes back
    assert broker.wills == [Will(1, True), Will(0, True)]
    assert broker.breaches == [0x9B]
    assert {each.qos for each in broker.published} == {0}
    assert caplog.text.count("it takes QoS 0 only") == 1


def test_a_broker_that_retains_nothing_gets_the_birth_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "REPEAT_S", 0.05)
    broker = StrictBroker(retains=False, said=NO_RETAIN)
    births: list[Published] = []

    def has_births() -> bool:
        births[:] = [each for each in broker.published if each.topic.endswith("/birth")]
        return len(births) >= 3

    with agent_of(broker, tmp_path, backlog=0) as agent:
        agent.run_until(has_births)
    assert broker.wills == [Will(1, True), Will(1, False)]
    assert broker.breaches == [0x9A]
    assert not any(each.retained for each in broker.published)
    assert sequences(births)[:3] == [1, 2, 3]
    assert caplog.text.count("it retains nothing") == 1


def test_a_message_over_a_quota_is_kept_and_sent_again_in_its_order(tmp_path: Path) -> None:
    refused: list[Published] = []

    def once(published: Published) -> int:
        if published.topic.endswith("/report") and not refused:
            refused.append(published)
            return 0x97
        return 0

    broker = StrictBroker(answer=once)
    with agent_of(broker, tmp_path, backlog=3) as agent:
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
    assert len(broker.wills) == 2
    assert sequences(broker.acknowledged)[-4:] == [1, 2, 3, 4]


def test_forget_keeps_within_the_limits_too(tmp_path: Path) -> None:
    broker = StrictBroker(1, said=bytes([RECEIVE_MAXIMUM]) + two(1), ack_after_s=0.01)
    with serving(broker):
        forget(settings(tmp_path, broker))
    assert [each.payload for each in broker.published] == [b"", b""]
    assert broker.breaches == []
    unsafe = StrictBroker(max_qos=0, said=bytes([MAXIMUM_QOS, 0]))
    with serving(unsafe):
        forget(settings(tmp_path, unsafe))
        wait_until(lambda: DISCONNECT in unsafe.kinds(), "all is read")
    assert [(each.qos, each.retained) for each in unsafe.published] == [(0, True), (0, True)]
    without = StrictBroker(retains=False, said=NO_RETAIN)
    with serving(without):
        forget(settings(tmp_path, without))
    assert without.published == []


def test_a_shorter_keepalive_of_the_broker_is_kept(tmp_path: Path) -> None:
    broker = StrictBroker(said=bytes([KEEPALIVE]) + two(1))
    with agent_of(broker, tmp_path, backlog=0) as agent:
        agent.run_until(lambda: PINGREQ in broker.kinds())


@pytest.mark.parametrize(
    "said",
    [
        bytes([RECEIVE_MAXIMUM]) + two(0),
        bytes([PACKET_SIZE]) + four(0),
        (bytes([RECEIVE_MAXIMUM]) + two(3)) * 2,
        b"\x99\x01",
        b"\x01\x01",
        bytes([PACKET_SIZE]),
    ],
    ids=["no publishes", "no bytes", "twice", "unknown", "of a PUBLISH", "cut off"],
)
def test_an_answer_that_cannot_be_read_is_one_line_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    broker = StrictBroker(said=said)
    with agent_of(broker, tmp_path, backlog=1) as agent:
        agent.run_until(lambda: len(broker.wills) >= 3)
        assert "the broker's answer cannot be read: " in caplog.text
        assert all("\n" not in record.getMessage() for record in caplog.records)
        broker.said = b""
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
    assert "please report it" not in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        bytes([PACKET_SIZE]) + b"\xff\xff\xff\xff",
        bytes([RECEIVE_MAXIMUM]) + b"\xff\xff",
        bytes([MAXIMUM_QOS, 255]),
        bytes([RETAIN, 255]),
        bytes([KEEPALIVE]) + b"\xff\xff",
        bytes([KEEPALIVE]) + two(0),
        b"\x22\xff\xff\x11\xff\xff\xff\xff\x12\0\x05other\x29\0\x2a\0\x28\0",
    ],
    ids=["bytes", "publishes", "qos", "retain", "keepalive", "no keepalive", "the others"],
)
def test_odd_limits_do_no_harm(tmp_path: Path, said: bytes) -> None:
    broker = StrictBroker(said=said)
    with agent_of(broker, tmp_path) as agent:
        agent.run_until(lambda: agent.session.is_connected and agent.all_confirmed())
        assert agent.session._connection is not None
        assert agent.session._connection._client.keepalive == 30
    assert len(broker.wills) == 1


def test_offline_is_left_to_the_will_which_needs_no_room_in_flight(tmp_path: Path) -> None:
    broker = StrictBroker(1, said=bytes([RECEIVE_MAXIMUM]) + two(1), ack_after_s=0.02)
    with serving(broker):
        agent = Agent(tmp_path, broker)
        for _ in range(BACKLOG):
            agent.report()
        agent.run_until(lambda: broker.published)
        agent.session.close(agent.wait, 10)
        wait_until(lambda: DISCONNECT in broker.kinds(), "it disconnects")
    assert broker.breaches == []
    assert broker.packets[-1] == (DISCONNECT, b"\x04")
