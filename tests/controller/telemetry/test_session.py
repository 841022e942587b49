"""The controller's session with a real mosquitto."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.telemetry.session import SILENT_S, BrokerTls
from leadline_wire import topics
from leadline_wire.v1 import telemetry_pb2 as pb
from paho.mqtt.client import Client, DisconnectFlags
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from tests.controller.telemetry.board_builder import BoardMessages
from tests.controller.telemetry.running_session import RunningSession, listening, session_with
from tests.controller.telemetry.wire_client import connected, properties_of
from tests.support.certificates import Authority, Certificate
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port, wait_until

pytestmark = pytest.mark.broker


def test_retained_messages_of_a_node_can_be_requested_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    n1 = BoardMessages("n1")
    with mosquitto() as broker, connected(broker) as client:
        client.send(n1, n1.status(online=True))
        client.send(n1, n1.birth())
        with connected_ears(broker, caplog) as ears:
            wait_until(lambda: ears.state.agents().get("n1"), "it comes with the connection")
            ears.state.set_members(frozenset({"n2"}), 1000.0)
            ears.state.set_members(frozenset({"n2"}), 2000.0)  # it was silent for long
            assert ears.state.agents() == {}
            assert ears.state.set_members(frozenset({"n1", "n2"}), 2001.0) == ["n1"]
            ears.session.request_retained(["n1", "never-heard"])
            wait_until(lambda: ears.state.agents().get("n1"), "it is sent again")
            wait_until(lambda: ears.state.agents()["n1"].address, "with its address")
            assert ears.online() is True
            client.send(n1, n1.report())
            wait_until(lambda: ears.cpu(), "what it says later comes")
            time.sleep(0.2)
            assert ears.state.refused == {}  # nothing comes twice


def test_a_broker_that_refuses_what_is_published_is_told_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read elsewhere/#\n")
    with (
        mosquitto([f"acl_file {rules}"]) as broker,
        session_with(broker.host, broker.port) as session,
    ):
        wait_until(session.is_connected, "a will that is refused ends no session")
        for _ in range(3):
            session.retain("elsewhere/x", b"x", 60, 1)
        said = "takes no states of boards (Not authorized); allow them in its ACL"
        wait_until(lambda: said in caplog.text, "the log tells")
    assert caplog.text.count(said) == 1


@contextmanager
def connected_ears(
    broker: Broker, caplog: pytest.LogCaptureFixture, tls: BrokerTls | None = None
) -> Iterator[RunningSession]:
    caplog.set_level(logging.INFO)
    with listening(broker.host, broker.port, tls) as ears:
        wait_until(lambda: "connected to the broker" in caplog.text, "the session connects")
        yield ears


def down(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if message.startswith("no broker at")]


def keep_sending(
    client: Any, board: BoardMessages, ears: RunningSession, busy_percent: float
) -> None:
    """Send reports until one has arrived: who subscribes late misses what went before."""

    def arrived() -> bool:
        client.send(board, board.report(cpu=pb.Cpu(busy_percent=busy_percent)))
        known = ears.cpu(board.node)
        return known is not None and known[0] == busy_percent

    wait_until(arrived, "a report arrives")


@pytest.mark.smoke
def test_reports_arrive_with_their_properties(caplog: pytest.LogCaptureFixture) -> None:
    board = BoardMessages("n1")
    with mosquitto() as broker, connected_ears(broker, caplog) as ears, connected(broker) as client:
        keep_sending(client, board, ears, 12.5)
        client.send(board, board.report(age_ms=3000, cpu=pb.Cpu(busy_percent=25)))
        wait_until(lambda: ears.cpu() == (25.0, 3.0), "the report's age arrives")
        client.send(board, board.report(), schema="leadline.v2")
        wait_until(lambda: ears.state.refused == {"unknown_schema": 1}, "another schema is refused")
        client.publish(board.topic(topics.Kind.REPORT), b"\xff", topics.Kind.REPORT)
        wait_until(lambda: ears.state.refused["broken"] == 1, "broken bytes are refused")
        client.publish(board.topic(topics.Kind.REPORT), b"x" * 70_000, topics.Kind.REPORT)
        wait_until(lambda: ears.state.refused["oversized"] == 1, "big ones are refused")
        client.publish(board.topic(topics.Kind.REPORT), b"x" * 500_000, topics.Kind.REPORT)
        keep_sending(client, board, ears, 50.0)
    assert down(caplog) == []


def test_the_time_at_the_broker_is_part_of_a_messages_age(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A retained report is held; agents do not retain them, but this shows what is counted."""
    kept, endless = BoardMessages("n1"), BoardMessages("n2")
    with mosquitto() as broker, connected(broker) as client:
        client.send(kept, kept.report(age_ms=5000), retain=True, expiry_s=3580)
        how = topics.Delivery(qos=1, retain=True)
        client._client.publish(
            endless.topic(topics.Kind.REPORT),
            endless.report().SerializeToString(),
            *(how.qos, how.retain, properties_of(how)),
        ).wait_for_publish(20)
        with connected_ears(broker, caplog) as ears:
            wait_until(lambda: ears.cpu("n1"), "the report that was kept arrives")
            wait_until(lambda: "n2" in ears.state.agents(), "and the one without an expiry")
            known = ears.cpu("n1")
            assert known is not None
            # 20 s of its 3600 are gone, or one or two more on a slow machine.
            assert 25.0 <= known[1] <= 40.0
            assert ears.cpu("n2") is None  # nobody knows for how long it was held


def test_a_missing_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    board = BoardMessages("n1")
    with listening("127.0.0.1", port) as ears:
        wait_until(lambda: down(caplog), "it says that there is no broker")
        assert not ears.session.is_connected()
        ears.session.send(pb.Lease(node="n1"))
        with mosquitto(port=port) as broker, connected(broker) as client:
            wait_until(lambda: "connected to the broker" in caplog.text, "it connects late", 40)
            keep_sending(client, board, ears, 12.5)
            assert down(caplog) == [
                f"no broker at 127.0.0.1:{port} (Connection refused); "
                "measurements are unknown, retrying"
            ]


def test_it_reconnects_when_the_broker_returns(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    board = BoardMessages("n1")
    with mosquitto(port=port) as broker:
        ears = RunningSession(broker.host, broker.port)
        caplog.set_level(logging.INFO)
        ears.session.start()
        with connected(broker) as client:
            keep_sending(client, board, ears, 12.5)
    try:
        wait_until(lambda: len(down(caplog)) == 1, "it says that the broker is gone")
        with mosquitto(port=port) as broker, connected(broker) as client:
            keep_sending(client, board, ears, 25.0)
            ears.session.stop()
    finally:
        ears.session.stop()
    assert len(down(caplog)) == 1
    assert "the connection was lost" in down(caplog)[0]
    assert caplog.text.count("connected to the broker") == 2


def test_any_number_of_retained_births_arrives(caplog: pytest.LogCaptureFixture) -> None:
    """mosquitto with its defaults delivers 1,020 of them to a subscriber of QoS 1."""
    count = 2000
    how = topics.DELIVERY[topics.Kind.BIRTH]
    with mosquitto(["max_queued_messages 1000"]) as broker, connected(broker) as client:
        births = []
        for i in range(count):
            board = BoardMessages(f"n{i:04}")
            births.append(
                client._client.publish(
                    board.topic(topics.Kind.BIRTH),
                    board.birth().SerializeToString(),
                    *(how.qos, how.retain, properties_of(how)),
                )
            )
        for birth in births:
            birth.wait_for_publish(20)
        with connected_ears(broker, caplog) as ears:
            wait_until(lambda: len(ears.state.agents()) == count, "all births arrive")
            assert len(ears.births) == count
            # A copy that the broker kept does not say that the agent lives.
            assert {agent.online for agent in ears.state.agents().values()} == {None}


def test_a_boards_status_follows_its_session_and_its_will(caplog: pytest.LogCaptureFixture) -> None:
    board = BoardMessages("n1")
    with mosquitto() as broker, connected_ears(broker, caplog) as ears:
        with connected(broker, will=board) as client:
            client.send(board, board.status(online=True))
            client.send(board, board.birth())
            wait_until(lambda: ears.online() is True, "the board is born")
            client.drop()
            wait_until(lambda: ears.online() is False, "its last will is seen")
        with listening(broker.host, broker.port) as later:
            wait_until(lambda: later.online() is False, "who comes later sees it too")
            # The retained messages come one after the other.
            wait_until(lambda: later.state.agents()["n1"].address, "its birth comes as well")
            assert later.state.agents()["n1"].address == "192.0.2.1"


def test_clearing_a_retained_message_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    board = BoardMessages("n1")
    with mosquitto() as broker, connected_ears(broker, caplog) as ears, connected(broker) as client:
        client.send(board, board.birth())
        keep_sending(client, board, ears, 12.5)
        for kind in (topics.Kind.BIRTH, topics.Kind.STATUS):
            client.publish(board.topic(kind), b"", kind)
        keep_sending(client, board, ears, 25.0)
        assert ears.state.refused == {}


def test_an_invalid_retained_message_does_not_disconnect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """paho drops the connection over a byte order mark that mosquitto lets pass, and a
    retained message comes again with every connection."""
    poisoned, board = BoardMessages("n1"), BoardMessages("n2")
    how = topics.Delivery(qos=1, retain=True)
    properties = properties_of(how)
    properties.UserProperty = ("poisoned", "\ufeff")
    with mosquitto() as broker, connected(broker) as client:
        client._client.publish(
            poisoned.topic(topics.Kind.BIRTH),
            poisoned.birth().SerializeToString(),
            *(how.qos, how.retain, properties),
        ).wait_for_publish(20)
        with connected_ears(broker, caplog) as ears:
            wait_until(lambda: ears.state.refused == {"unknown_schema": 1}, "it is refused")
            keep_sending(client, board, ears, 12.5)
        assert down(caplog) == []


def test_leases_reach_their_board(caplog: pytest.LogCaptureFixture) -> None:
    board, other = BoardMessages("n1"), BoardMessages("n2")
    peer = pb.Peer(node="n2", address="192.0.2.2")
    ping = pb.PingLease(peers=[peer], interval_s=10, count=3, ttl_s=60)
    test = pb.BandwidthLease(
        lease_id="x-1",
        role=pb.BandwidthLease.CLIENT,
        peer=peer,
        port=5201,
        duration_ms=2000,
        max_bytes=30_000_000,
        ttl_ms=5000,
    )
    with mosquitto() as broker, connected_ears(broker, caplog) as ears, connected(broker) as client:
        client.listen(board)
        assert ears.session.is_connected()
        ears.session.send(pb.Lease(node=other.node, ping=ping))
        ears.session.send(pb.Lease(node=board.node, ping=ping))
        ears.session.send(pb.Lease(node=board.node, bandwidth=test))
        wait_until(lambda: len(client.leases) == 2, "both leases arrive")
    first, second = client.leases
    assert first.ping == ping
    assert second.bandwidth == test


def test_a_refused_subscription_is_logged_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """Called by hand: mosquitto's ACL file refuses no subscription, it only delivers nothing."""
    session = RunningSession("broker.example", 8883).session
    refused = ReasonCode(PacketTypes.SUBACK, "Not authorized")
    granted = ReasonCode(PacketTypes.SUBACK, "Granted QoS 0")
    session._subscribed(Client(CallbackAPIVersion.VERSION2), None, 1, [granted] * 6, None)
    assert caplog.text == ""
    reasons = [granted, refused, refused, granted, granted, granted]
    session._subscribed(Client(CallbackAPIVersion.VERSION2), None, 1, reasons, None)
    (record,) = caplog.records
    assert record.getMessage() == (
        "the broker at broker.example:8883 does not let us read birth, report of cluster lab; "
        "allow it in its ACL"
    )


def test_attempts_that_fail_change_neither_why_nor_since_when_there_is_no_session() -> None:
    """Called by hand: paho says that the connection ended after each attempt, refused or not."""
    ears = RunningSession("broker.example", 8883)
    session, client = ears.session, ears.session._client
    ended = (DisconnectFlags(False), ReasonCode(PacketTypes.DISCONNECT, "Unspecified error"), None)
    began_s = ears.now_s
    for _ in range(3):
        ears.now_s += 60
        session._client.begun_s = ears.now_s
        no = ReasonCode(PacketTypes.CONNACK, "Not authorized")
        session._connected(client, None, None, no, None)
        session._disconnected(client, None, *ended)
        assert (session.status().why, session.status().since_s) == ("Not authorized", began_s)
    session._disconnected(client, None, *ended)  # closed before any answer, as with TLS 1.3
    assert session.status().why == "the connection was lost"
    session._connected(client, None, None, ReasonCode(PacketTypes.CONNACK, "Success"), None)
    ears.now_s += 5
    session._disconnected(client, None, *ended)
    assert session.status().since_s == ears.now_s


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def shown(certificate: Certificate) -> BrokerTls:
    return BrokerTls(certificate.ca_file, certificate.cert_file, certificate.key_file)


@pytest.mark.smoke
def test_tls_with_client_certificates(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    board = BoardMessages("n1")
    with (
        mosquitto(tls=authority.server("127.0.0.1")) as broker,
        connected_ears(broker, caplog, shown(authority.client("controller"))) as ears,
        connected(broker, tls=authority.client("n1")) as client,
    ):
        keep_sending(client, board, ears, 12.5)
        # More than one TLS record at once, so that some of it waits inside the TLS layer.
        client.publish(board.topic(topics.Kind.REPORT), b"\xff" * 60_000, topics.Kind.REPORT)
        keep_sending(client, board, ears, 25.0)
        assert ears.state.refused == {"broken": 1}


def test_a_broker_of_another_authority_is_refused(
    authority: Authority, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    ours, theirs = authority.client("controller"), Authority(tmp_path, "Another CA")
    with (
        mosquitto(tls=theirs.server("127.0.0.1")) as broker,
        listening(broker.host, broker.port, shown(ours)),
    ):
        wait_until(lambda: down(caplog), "the broker is refused")
    assert "self-signed certificate in certificate chain" in down(caplog)[0]
    assert "connected to the broker" not in caplog.text


def test_a_broker_of_another_name_is_refused(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        mosquitto(tls=authority.server("broker.example")) as broker,
        listening(broker.host, broker.port, shown(authority.client("controller"))),
    ):
        wait_until(lambda: down(caplog), "the broker is refused")
    assert "IP address mismatch" in down(caplog)[0]


def test_a_broker_that_does_not_know_our_authority_refuses_us(
    authority: Authority, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "Another CA").client("controller")
    mixed = BrokerTls(authority.ca_file, stranger.cert_file, stranger.key_file)
    with (
        mosquitto(tls=authority.server("127.0.0.1")) as broker,
        listening(broker.host, broker.port, mixed),
    ):
        wait_until(lambda: down(caplog), "we are refused")
    assert "connected to the broker" not in caplog.text


def test_a_key_with_a_passphrase_fails_at_once(authority: Authority, tmp_path: Path) -> None:
    ours = authority.client("controller")
    locked = tmp_path / "locked.key"
    subprocess.run(
        [
            *("openssl", "pkcs8", "-topk8", "-in", str(ours.key_file), "-out", str(locked)),
            *("-passout", "pass:secret"),
        ],
        check=True,
    )
    with pytest.raises(OSError, match=r".+"):
        RunningSession("127.0.0.1", 1, BrokerTls(ours.ca_file, ours.cert_file, locked))


def test_a_session_knows_whether_its_thread_is_running() -> None:
    ears = RunningSession("127.0.0.1", free_port())
    assert not ears.session.is_running()
    ears.session.start()
    assert ears.session.is_running()
    ears.session.stop()
    assert not ears.session.is_running()


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """Stop the broker without ending its connections."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_the_round_trip_to_the_broker_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    with mosquitto() as broker, connected_ears(broker, caplog) as ears:

        def measured() -> float | None:
            ears.now_s += 1.0  # so that it is time for a ping, which seems to take long
            ears.session.check()
            return ears.session.status().rtt_ms

        wait_until(lambda: measured() is not None, "a ping is answered", 60)
        status = ears.session.status()
        assert status.connected
        assert status.address == f"{broker.host}:{broker.port}"
        assert status.answers(ears.now_s)
        assert (status.why, status.refused) == ("", ())


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_a_session_with_a_frozen_broker_is_left_and_another_begins(
    is_secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = server = None
    if is_secure:
        authority = Authority(tmp_path)
        server = authority.server("127.0.0.1")
        own = authority.client("controller")
        tls = BrokerTls(own.ca_file, own.cert_file, own.key_file)
    with mosquitto(tls=server) as broker, connected_ears(broker, caplog, tls) as ears:
        wait_until(lambda: ears.session.status().answers(ears.now_s), "the broker answers", 60)
        with frozen(broker):
            for _ in range(int(SILENT_S)):
                ears.session.check()
                ears.now_s += 1
            assert ears.session.status().connected  # not yet
            assert not ears.session.status().answers(ears.now_s)
            ears.session.check()
            wait_until(lambda: not ears.session.is_connected(), "the session is left", 60)
            assert "did not answer" in ears.session.status().why or is_secure
            assert "did not answer" in caplog.text
        wait_until(lambda: ears.session.status().answers(ears.now_s), "it answers again", 90)


def test_a_controller_that_slept_first_reads_what_came(caplog: pytest.LogCaptureFixture) -> None:
    with mosquitto() as broker, connected_ears(broker, caplog) as ears, frozen(broker):
        ears.session.check()
        ears.now_s += 3600
        ears.session.check()
        time.sleep(0.2)
        assert ears.session.is_connected()
    assert down(caplog) == []


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "refused"), ("x" * 70 + ".invalid", "label")]
)
def test_why_there_is_no_session_is_kept(host: str, why: str) -> None:
    with listening(host, free_port()) as ears:
        wait_until(lambda: why in ears.session.status().why, "it is told", 60)
        status = ears.session.status()
    assert not status.connected
    assert not status.answers(ears.now_s)
    assert status.heard_s is None
