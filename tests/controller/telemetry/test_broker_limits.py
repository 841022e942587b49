"""The controller's session keeps within the limits of its broker, and its status tells them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from leadline_controller.telemetry.session import BrokerSession
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.controller.telemetry.board_builder import BoardMessages
from tests.controller.telemetry.running_session import session_with
from tests.controller.telemetry.wire_client import connected
from tests.support.mosquitto import mosquitto
from tests.support.ports import wait_until
from tests.support.strict_broker import (
    MAXIMUM_QOS,
    PACKET_SIZE,
    RECEIVE_MAXIMUM,
    RETAIN,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WILDCARDS,
    StrictBroker,
    Will,
    four,
    serving,
    two,
)

NODES = [f"node-{number:03}" for number in range(100)]


@contextmanager
def session_of(broker: StrictBroker) -> Iterator[BrokerSession]:
    with serving(broker), session_with("127.0.0.1", broker.port) as session:
        yield session


def test_a_broker_that_retains_nothing_gets_nothing_to_retain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = StrictBroker(retains=False, max_qos=0, said=bytes([RETAIN, 0, MAXIMUM_QOS, 0]))
    with session_of(broker) as session:
        wait_until(session.is_connected, "it connects without a will that is retained")
        session.retain("elsewhere/x", b"x", 60, 1)
        wait_until(lambda: broker.published, "it publishes")
        limits = session.status().limits
    assert broker.wills == [Will(0, True), Will(0, False)]
    assert broker.breaches == [0x9A]
    assert [(each.qos, each.retained) for each in broker.published] == [(0, False)]
    assert [text.partition(",")[0] for text in limits] == [
        "it takes QoS 0 only",
        "it retains nothing",
    ]
    assert caplog.text.count("it retains nothing") == 1


def test_one_publish_is_unacknowledged_at_a_time_also_after_it_has_reconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    said = bytes([RECEIVE_MAXIMUM]) + two(1)
    broker = StrictBroker(1, said=said, ack_after_s=0.01, ends_after=3)
    with session_of(broker) as session:
        wait_until(session.is_connected, "it connects")
        for number in range(10):
            session.retain(f"elsewhere/{number}", b"x", 60, 1)
        # The broker ended the first connection.
        wait_until(lambda: caplog.text.count("connected to the broker at") == 2, "it comes back")
        session.retain("elsewhere/last", b"x", 60, 1)
        wait_until(
            lambda: any(each.topic == "elsewhere/last" for each in broker.acknowledged),
            "it goes on",
        )
    assert broker.breaches == []
    assert broker.most_unacknowledged == 1


def test_packets_are_no_larger_than_the_broker_takes(caplog: pytest.LogCaptureFixture) -> None:
    broker = StrictBroker(max_packet_bytes=300, said=bytes([PACKET_SIZE]) + four(300))
    peers = [pb.Peer(node=node, address="192.0.2.1") for node in NODES]
    with session_of(broker) as session:
        wait_until(session.is_connected, "it connects")
        session.request_retained(NODES)
        session.retain("elsewhere/large", bytes(300))
        session.send(pb.Lease(node="n1", ping=pb.PingLease(peers=peers)))
        session.send(pb.Lease(node="n1", ping=pb.PingLease(peers=peers[:1])))
        wait_until(lambda: broker.published, "the small lease comes")
        wait_until(lambda: broker.kinds().count(UNSUBSCRIBE) > 10, "the requests come")
        assert "2 messages were larger than it takes" in session.status().limits
    assert broker.breaches == []
    assert len(broker.published) == 1
    topics = b"".join(body for kind, body in broker.packets if kind == UNSUBSCRIBE)
    assert all(f"/{node}/status".encode() in topics for node in NODES)
    assert caplog.text.count("dropped elsewhere/large") == 1


def test_a_packet_size_that_is_not_said_is_learned() -> None:
    broker = StrictBroker(max_packet_bytes=2000)
    with session_of(broker) as session:
        wait_until(session.is_connected, "it connects")
        session.request_retained(NODES)
        wait_until(lambda: len(broker.wills) == 2 and session.is_connected(), "it comes back")
        session.request_retained(NODES[:1])
        session.retain("elsewhere/large", bytes(10_000))
        session.retain("elsewhere/small", b"x")
        wait_until(lambda: broker.published, "the session goes on")
        assert len(broker.wills) == 2
    assert broker.breaches == [0x95]


def test_a_broker_without_wildcards_is_not_asked_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = StrictBroker(said=bytes([WILDCARDS, 0]))
    with session_of(broker) as session:
        wait_until(session.is_connected, "it connects")
        session.retain("elsewhere/x", b"x")
        wait_until(lambda: broker.published, "it publishes")
        status = session.status()
    assert SUBSCRIBE not in broker.kinds()
    assert "report" in status.refused
    assert "ACL" not in caplog.text
    assert status.limits == (
        "it takes no wildcards in subscriptions, so nothing is heard of the boards",
    )


@pytest.mark.parametrize(
    "said",
    [bytes([RECEIVE_MAXIMUM]) + two(0), bytes([PACKET_SIZE]) + four(0), b"\x99\x01"],
    ids=["no publishes", "no bytes", "unknown"],
)
def test_an_answer_that_cannot_be_read_is_told_and_the_thread_goes_on(
    caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    broker = StrictBroker(said=said)
    with session_of(broker) as session:
        wait_until(lambda: "cannot be read" in session.status().why, "it tells why")
        broker.said = bytes([PACKET_SIZE]) + b"\xff\xff\xff\xff"
        wait_until(session.is_connected, "it connects when the broker is mended")
        assert session.status().limits == ()
    assert caplog.text.count("cannot be read") == 1


@pytest.mark.broker
def test_mosquitto_that_allows_little(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    board = BoardMessages("n1")
    lines = ["retain_available false", "max_packet_size 400", "max_keepalive 10"]
    with mosquitto(lines) as broker, session_with(broker.host, broker.port) as session:
        wait_until(session.is_connected, "it connects")
        with connected(broker) as client:
            client.listen(board)
            session.request_retained(NODES)
            session.send(pb.Lease(node="n1", ping=pb.PingLease(count=1)))
            wait_until(lambda: client.leases, "a lease arrives")
        assert session.is_connected()
    assert caplog.text.count("connected to the broker at") == 1
