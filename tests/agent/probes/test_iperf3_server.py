"""The server: it serves iperf3's clients within the lease and cuts off all others."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from leadline_agent.lease import BandwidthLease, Peer
from leadline_agent.probes import iperf3_server
from leadline_agent.probes.iperf3_server import (
    ALLOWANCE_BYTES,
    IperfError,
    LeaseExceededError,
    lease_violation,
    results,
    serve,
)
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.ports import free_port, wait_until

HONEST: dict[str, Any] = {"tcp": True, "omit": 0, "time": 2, "parallel": 1, "num": 0}
COOKIE = b"c" * 37


def bandwidth_lease(port: int, peer: str = "127.0.0.1", ttl_s: float = 20.0) -> BandwidthLease:
    return BandwidthLease(
        lease_id="L1",
        role=pb.BandwidthLease.SERVER,
        peer=Peer("pi-2", peer),
        port=port,
        duration_ms=2000,
        max_bytes=1_000_000,
        expires_s=time.monotonic() + ttl_s,
    )


class RunningServer:
    """A server in a thread, and its exception."""

    def __init__(self, lease: BandwidthLease) -> None:
        self.lease = lease
        self.error: Exception | None = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            serve(self.lease, "127.0.0.1", self.stopped)
        except (IperfError, OSError) as error:
            self.error = error

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        connected: list[socket.socket] = []

        def attempt() -> bool:
            with suppress(ConnectionRefusedError):
                where = ("127.0.0.1", self.lease.port)
                connected.append(socket.create_connection(where, 10, (source, 0)))
            return bool(connected)

        wait_until(attempt, "the server listens")
        return connected[0]

    def unmeasured(self) -> Exception | None:
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.error


@contextmanager
def serving(**kwargs: Any) -> Iterator[RunningServer]:
    server = RunningServer(bandwidth_lease(free_port(), **kwargs))
    try:
        yield server
    finally:
        server.stopped.set()
        server.thread.join(10)


def send_parameters(control: socket.socket, parameters: object) -> None:
    control.sendall(COOKIE)
    assert control.recv(1) == iperf3_server.PARAM_EXCHANGE
    body = json.dumps(parameters).encode()
    control.sendall(struct.pack(">I", len(body)) + body)


def begin(server: RunningServer) -> tuple[socket.socket, socket.socket]:
    """A test under way: its control connection and its stream."""
    control = server.connect()
    send_parameters(control, HONEST)
    assert control.recv(1) == iperf3_server.CREATE_STREAMS
    stream = server.connect()
    stream.sendall(COOKIE)
    assert control.recv(2) == iperf3_server.TEST_START + iperf3_server.TEST_RUNNING
    return control, stream


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) in (b"", iperf3_server.ACCESS_DENIED)
    except ConnectionError:
        return True


def test_a_client_gets_the_number_of_bytes_that_arrived() -> None:
    with serving() as server:
        control, stream = begin(server)
        with control, stream:
            stream.sendall(bytes(50_000))  # less than the sockets' buffers, so it has arrived
            control.sendall(iperf3_server.TEST_END)
            assert control.recv(1) == iperf3_server.EXCHANGE_RESULTS
            control.sendall(struct.pack(">I", 2) + b"{}")
            (length,) = struct.unpack(">I", control.recv(4, socket.MSG_WAITALL))
            explain_failure = json.loads(control.recv(length, socket.MSG_WAITALL))
            assert control.recv(1) == iperf3_server.DISPLAY_RESULTS
            control.sendall(b"\x10")
        assert server.unmeasured() is None
    (of_stream,) = explain_failure["streams"]
    assert (of_stream["id"], of_stream["bytes"]) == (1, 50_000)
    assert 0 < of_stream["end_time"] < 30


def test_a_strangers_connection_is_closed_and_the_test_goes_on() -> None:
    with serving() as server:
        with server.connect("127.0.0.9") as stranger:
            assert is_closed(stranger)
        control, stream = begin(server)
        with control, stream:
            with server.connect("127.0.0.9") as stranger:
                assert is_closed(stranger)
            with server.connect() as another:
                assert is_closed(another)
            stream.sendall(b"x")
            control.sendall(iperf3_server.TEST_END)
            assert control.recv(1) == iperf3_server.EXCHANGE_RESULTS


def test_more_bytes_than_leased_are_cut_off() -> None:
    with serving() as server:
        control, stream = begin(server)
        with control, stream:
            sent = 0
            with suppress(OSError):
                for _ in range(1000):
                    sent += stream.send(bytes(100_000))
        error = server.unmeasured()
    assert isinstance(error, LeaseExceededError)
    assert "more came than 1000000 bytes" in str(error)
    # What was in the sockets' buffers has been sent, too, but no more.
    assert sent < 1_000_000 + ALLOWANCE_BYTES + 20_000_000


def test_more_time_than_leased_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf3_server, "GRACE_S", -1.5)
    with serving() as server:
        control, stream = begin(server)
        with control, stream:
            assert is_closed(control)
        assert "took longer than was leased" in str(server.unmeasured())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time": 3}, "3 s of 2000 ms"),
        ({"time": 0}, "0 s of 2000 ms"),
        ({"time": 1e308}, "s of 2000 ms"),
        ({"time": "\n" * 500}, "s of 2000 ms"),
        ({"time": None}, "s of 2000 ms"),
        ({"tcp": False, "udp": True}, "another protocol"),
        ({"tcp": None, "sctp": True}, "another protocol"),
        ({"parallel": 128}, "more than one stream"),
        ({"reverse": True}, "to receive"),
        ({"bidirectional": True}, "to receive"),
        ({"num": 10**12}, "an end by bytes"),
        ({"blockcount": 1}, "an end by bytes"),
        ({"omit": 10}, "time that does not count"),
    ],
)
def test_parameters_beyond_the_lease_are_named(change: dict[str, Any], reason: str) -> None:
    assert lease_violation(HONEST, 2000) == ""
    assert reason in lease_violation({**HONEST, **change}, 2000)
    assert lease_violation({**HONEST, **change}, 2000).isprintable()


def test_a_client_that_asks_for_more_is_cut_off() -> None:
    with serving() as server:
        with server.connect() as control:
            send_parameters(control, {**HONEST, "parallel": 128})
            assert control.recv(1) == iperf3_server.SERVER_ERROR
        assert isinstance(server.unmeasured(), LeaseExceededError)


@pytest.mark.parametrize(
    "first",
    [b"", COOKIE + struct.pack(">I", 2**32 - 1), COOKIE + struct.pack(">I", 5000) + b"[" * 5000],
    ids=["nothing", "4 GB of parameters", "deep parameters"],
)
def test_a_connection_without_data_does_not_end_the_lease(first: bytes) -> None:
    with serving() as server:
        with server.connect() as looked:
            looked.sendall(first)
        control, stream = begin(server)
        control.close()
        stream.close()
        assert "gave the test up" in str(server.unmeasured())


def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf3_server, "SETUP_S", 0.3)
    with serving() as server, server.connect() as silent:
        assert is_closed(silent)


def test_a_stream_of_another_test_is_refused() -> None:
    with serving() as server, server.connect() as control:
        send_parameters(control, HONEST)
        assert control.recv(1) == iperf3_server.CREATE_STREAMS
        with server.connect() as wrong:
            wrong.sendall(b"d" * 37)
            assert is_closed(wrong)
        with server.connect() as right:
            right.sendall(COOKIE)
            assert control.recv(1) == iperf3_server.TEST_START


def test_an_expired_lease_and_a_stop_are_failures() -> None:
    with serving(ttl_s=0.3) as server:
        assert "did not come before the lease expired" in str(server.unmeasured())
    with serving() as server:
        server.connect("127.0.0.9").close()
        server.stopped.set()
        assert str(server.unmeasured()) == "the agent is stopping"


def test_it_listens_on_the_peers_address_family() -> None:
    server = RunningServer(bandwidth_lease(free_port("::1"), peer="::1"))
    server.stopped.set()
    # 127.0.0.1 is no address of that family: the lease fails, and nothing listens elsewhere.
    assert isinstance(server.unmeasured(), OSError)


def test_the_results_have_every_key_that_iperf3_requires() -> None:
    explain_failure = results(5, 1.5)
    assert explain_failure["sender_has_retransmits"] == -1
    needed = {"id", "bytes", "retransmits", "jitter", "errors", "packets"}
    assert needed <= explain_failure["streams"][0].keys()
