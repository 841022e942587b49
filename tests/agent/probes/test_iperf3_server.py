"""The server: it serves iperf3's clients within the lease and cuts off all others."""

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from leadline_agent.lease import BandwidthLease, Peer
from leadline_agent.probes import iperf3_server
from leadline_agent.probes.iperf3_server import (
    ALLOWANCE_BYTES,
    Arrivals,
    IperfError,
    LeaseExceededError,
    QueueReader,
    lease_violation,
    results,
    serve,
)
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.support.ports import free_port, wait_until

BYTES = 61 * 16 * 1024  # the whole blocks of 1,000,000 bytes
HONEST: dict[str, Any] = {"tcp": True, "omit": 0, "parallel": 1, "num": BYTES, "len": 16 * 1024}
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
    """A server in a thread, and its report or exception."""

    def __init__(self, lease: BandwidthLease) -> None:
        self.lease = lease
        self.report: pb.BandwidthReport | None = None
        self.error: Exception | None = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.report = serve(self.lease, "127.0.0.1", self.stopped)
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
        self.thread.join(90)
        assert not self.thread.is_alive()
        return self.error

    def measured(self) -> pb.BandwidthReport:
        assert self.unmeasured() is None
        assert self.report is not None
        return self.report


@contextmanager
def serving(duration_ms: int = 2000, **kwargs: Any) -> Iterator[RunningServer]:
    lease = replace(bandwidth_lease(free_port(), **kwargs), duration_ms=duration_ms)
    server = RunningServer(lease)
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


@contextmanager
def under_way(
    duration_ms: int = 2000,
) -> Iterator[tuple[RunningServer, socket.socket, socket.socket]]:
    """A server, and the control connection and the stream of a test with it."""
    with serving(duration_ms) as server:
        control, stream = begin(server)
        with control, stream:
            yield server, control, stream


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) in (b"", iperf3_server.ACCESS_DENIED)
    except ConnectionError:
        return True


def exchange(control: socket.socket) -> dict[str, Any]:
    """The end of a test: the results that the server sends."""
    assert control.recv(1) == iperf3_server.EXCHANGE_RESULTS
    control.sendall(struct.pack(">I", 2) + b"{}")
    (length,) = struct.unpack(">I", control.recv(4, socket.MSG_WAITALL))
    said: dict[str, Any] = json.loads(control.recv(length, socket.MSG_WAITALL))
    assert control.recv(1) == iperf3_server.DISPLAY_RESULTS
    control.sendall(b"\x10")
    return said


def test_a_client_gets_the_number_of_bytes_that_arrived() -> None:
    with under_way() as (server, control, stream):
        stream.sendall(bytes(BYTES))
        control.sendall(iperf3_server.TEST_END)
        said = exchange(control)
        report = server.measured()
    (of_stream,) = said["streams"]
    assert (of_stream["id"], of_stream["bytes"]) == (1, BYTES)
    assert 0 < of_stream["end_time"] < 30
    assert report.transferred_bytes == BYTES
    assert report.bandwidth_mbps > 0
    assert report.measured_us > 0


def test_what_comes_after_the_end_of_the_test_is_received_and_measured() -> None:
    with under_way() as (server, control, stream):
        stream.sendall(bytes(BYTES // 2))
        control.sendall(iperf3_server.TEST_END)
        for _ in range(10):
            time.sleep(0.02)
            stream.sendall(bytes(BYTES // 20))
        stream.sendall(bytes(BYTES - BYTES // 2 - 10 * (BYTES // 20)))
        assert exchange(control)["streams"][0]["bytes"] == BYTES
        report = server.measured()
    assert report.transferred_bytes == BYTES
    # At most half of them are measured; less, where a busy machine did not see them one by one.
    assert 0 < report.bandwidth_mbps <= 1.01 * BYTES / 2 * 8 / report.measured_us


def test_what_comes_beyond_the_test_does_not_end_its_time_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reader(QueueReader):
        done_bytes = 0

        def read(self) -> list[tuple[float, int]]:
            pieces = super().read()
            self.end_s = time.time() + 1000.0 if self.done_bytes >= BYTES else 0.0
            self.done_bytes += sum(count for _, count in pieces)
            return pieces

    monkeypatch.setattr(iperf3_server, "QueueReader", Reader)
    with under_way() as (server, control, stream):
        stream.sendall(bytes(BYTES // 2))
        time.sleep(0.1)
        stream.sendall(bytes(BYTES - BYTES // 2))
        time.sleep(0.3)
        stream.sendall(bytes(1000))
        time.sleep(0.1)
        control.sendall(iperf3_server.TEST_END)
        exchange(control)
        report = server.measured()
    assert report.measured_us < 900_000_000


def test_the_second_half_counts_and_the_first_does_not() -> None:
    with under_way() as (server, control, stream):
        time.sleep(0.5)
        stream.sendall(bytes(BYTES // 2))
        for _ in range(10):
            time.sleep(0.01)
            stream.sendall(bytes(BYTES // 20 + 20))
        control.sendall(iperf3_server.TEST_END)
        exchange(control)
        report = server.measured()
    assert report.duration_ms >= 600
    if not report.lower_bound:  # as where a busy machine saw all of them at once
        assert report.measured_us < 1000 * report.duration_ms - 500_000


def test_bytes_behind_a_lost_packet_count_when_they_came() -> None:
    arrivals = Arrivals(0.0, 100_000)
    for number in range(50):  # 10,000 bytes a second
        arrivals.add(0.1 * (number + 1), 1000)
    # The next packet was lost and came last of all. TCP hands the others over after it.
    arrivals.add(10.0, 1000)
    for number in range(49):
        arrivals.add(0.1 * (number + 51), 1000)
    report = arrivals.report()
    assert not report.lower_bound
    assert report.bandwidth_mbps == pytest.approx(0.08, rel=0.03)
    assert report.measured_us == pytest.approx(5e6, rel=0.03)


@pytest.mark.parametrize("burst_bytes", [0, 1024, 3072])
@pytest.mark.parametrize("after", range(28, 38))
def test_the_burst_after_a_delay_makes_no_link_look_faster(after: int, burst_bytes: int) -> None:
    """64 KiB over a link of 4 Mbit/s, held up near the half. What a shaper's tokens allow comes at
    once afterwards, and belongs to the time before it."""
    arrivals, packet_s = Arrivals(0.0, 65_536), 1024 * 8e-6 / 4.0
    late_s = (after + burst_bytes // 1024) * packet_s
    for number in range(64):
        at_s = number * packet_s
        if number >= after and at_s < late_s:
            at_s = late_s + (number - after) * 1e-5
        arrivals.add(at_s, 1024)
    report = arrivals.report()
    assert not report.lower_bound
    assert 3.8 < report.bandwidth_mbps <= 4.01


class Queue:
    """A stream whose queue holds these pieces: for each read, times on the wall clock and bytes."""

    def __init__(self, *pieces: tuple[float, int]) -> None:
        self.pieces = list(pieces)

    def recvmsg_into(self, buffers: Any, _space: int) -> tuple[int, Any, int, None]:
        time_s, count = self.pieces.pop(0) if self.pieces else (0.0, 0)
        assert count <= len(buffers[0])
        stamp = struct.pack("@ll", *divmod(round(time_s * 1e6), 10**6))
        return count, [(socket.SOL_SOCKET, iperf3_server._SO_TIMESTAMP, stamp)], 0, None


def test_what_had_come_before_a_packet_joined_it_has_no_later_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iperf3_server, "_out_of_order", lambda _: 0)
    monkeypatch.setattr(iperf3_server, "_queued", lambda _: (10.0, 3000))
    # A packet came at 10.5, when a third had been read.
    reader = QueueReader(Queue((9.5, 1000), (10.5, 2000)), 2000)  # type: ignore[arg-type]
    assert reader.read() == [(9.5, 1000), (9.5, 2000)]
    reader = QueueReader(Queue((10.5, 3000)), 3000)  # type: ignore[arg-type]
    assert reader.read() == [(10.0, 3000)]
    assert reader.end_s == 0.0
    assert QueueReader(Queue(), 2000).read() == []  # type: ignore[arg-type]


def test_what_was_read_before_the_end_of_the_stream_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iperf3_server, "_out_of_order", lambda _: 0)
    monkeypatch.setattr(iperf3_server, "_queued", lambda _: (10.0, 3001))
    reader = QueueReader(Queue((9.5, 3000)), 3000)  # type: ignore[arg-type]
    assert reader.read() == [(9.5, 3000)]
    assert reader.read() == []


def test_a_lost_packet_that_joins_the_earlier_ones_behind_it_ends_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It came last, and the kernel only keeps the time of the others."""
    looks = iter([(10.0, 1000), (11.0, 3000), (12.0, 1000), (13.0, 1000)])
    counts, kept = iter([0, 0, 0, 2, 2, 2, 2, 2]), iter([True, False])
    monkeypatch.setattr(iperf3_server, "_is_anything_kept", lambda _: next(kept))
    monkeypatch.setattr(iperf3_server, "_queued", lambda _: next(looks))
    monkeypatch.setattr(iperf3_server, "_out_of_order", lambda _: next(counts))
    queue = Queue((9.5, 1000), (10.5, 3000), (9.9, 1000), (12.5, 1000))
    reader = QueueReader(queue, 3000)  # type: ignore[arg-type]
    assert (reader.read(), reader.end_s) == ([(9.5, 1000)], 0.0)
    # Others came behind a packet that was lost, so nobody knows what has come by then.
    assert (reader.read(), reader.end_s) == ([(inf, 3000)], 11.0)
    # They were there earlier, and what came first now was not.
    assert (reader.read(), reader.end_s) == ([(inf, 1000)], 12.0)
    # Now none of them is missing.
    assert (reader.read(), reader.end_s) == ([(12.5, 1000)], 0.0)


def test_what_has_no_time_counts_with_what_is_behind_it() -> None:
    arrivals = Arrivals(0.0, 20_000)
    for number in range(10):
        arrivals.add(inf if number == 4 else 0.1 * number, 2000)
    # The half is the piece without a time, which is no beginning.
    assert arrivals.report().bandwidth_mbps == pytest.approx(8000 * 8e-6 / 0.4)
    arrivals.end_s = 1.0
    assert arrivals.report().bandwidth_mbps == pytest.approx(8000 * 8e-6 / 0.5)
    nothing_known = Arrivals(0.0, 2000)
    nothing_known.add(inf, 2000)
    nothing_known.end_s = 0.5
    assert nothing_known.report().lower_bound


@pytest.mark.parametrize("burst_bytes", [0, 20_000, 50_000])
def test_the_burst_of_a_shaper_does_not_count(burst_bytes: int) -> None:
    """64 KiB over a link of 5 Mbit/s, of which the burst comes at 1 Gbit/s."""
    arrivals = Arrivals(0.0, 65_536)
    at_s = 0.0
    for number in range(64):
        at_s += 1024 * 8e-6 / (1000.0 if number * 1024 < burst_bytes else 5.0)
        arrivals.add(at_s, 1024)
    report = arrivals.report()
    assert not report.lower_bound
    assert report.bandwidth_mbps == pytest.approx(5.0, rel=0.05)


def came(*parts: tuple[float, float]) -> pb.BandwidthReport:
    """The report on bytes that came at these rates, Mbit/s, for so many seconds each."""
    pieces, at_s = [], 0.0
    for mbps, seconds in parts:
        for number in range(round(seconds / 0.0001)):
            pieces.append((at_s + 0.0001 * (number + 1), round(mbps * 1e6 / 8 * 0.0001)))
        at_s += seconds
    arrivals = Arrivals(0.0, sum(count for _, count in pieces))
    for time_s, count in pieces:
        if count:
            arrivals.add(time_s, count)
    return arrivals.report()


def test_what_came_evenly_for_long_enough_is_steady() -> None:
    assert came((100.0, 0.1)).steady
    assert came((1000.0, 0.1)).steady
    # Only the measured half counts: what came before it is TCP's slow start.
    assert came((10.0, 0.02), (0.0, 0.02), (100.0, 0.1)).steady
    assert not came((100.0, 0.07)).steady


@pytest.mark.parametrize(
    "parts",
    [
        [(100.0, 0.06), (0.0, 0.02), (100.0, 0.04)],  # one pause
        [(100.0, 0.06)] + 6 * [(0.0, 0.007), (100.0, 0.007)],  # several
        [(100.0, 0.06), (30.0, 0.06)],  # slower at the end
        [(100.0, 0.06), (0.0, 0.015), (400.0, 0.005), (100.0, 0.03)],  # a shaper's burst after it
    ],
)
def test_what_paused_or_changed_its_rate_is_not_steady(parts: list[tuple[float, float]]) -> None:
    report = came(*parts)
    assert not report.lower_bound
    assert not report.steady


def test_packets_that_come_in_batches_are_steady() -> None:
    arrivals = Arrivals(0.0, 1_200_000)
    for number in range(16):  # as a network card or a shaper passes them on: 100 Mbit/s
        arrivals.add(0.004 * number, 50_000)
    assert arrivals.report().bandwidth_mbps == pytest.approx(100.0)
    assert not arrivals.report().steady  # it is not long enough
    for number in range(16, 24):
        arrivals.add(0.004 * number, 50_000)
    assert arrivals.report().steady


def test_what_came_too_fast_to_be_timed_is_a_lower_bound() -> None:
    at_once = Arrivals(0.0, 100_000)
    at_once.add(0.01, 100_000)
    fast = Arrivals(0.0, 100_000)
    for number in range(100):
        fast.add(0.01 + number * 1e-6, 1000)
    for arrivals in (at_once, fast):
        report = arrivals.report()
        assert report.lower_bound
        assert not report.steady
        assert report.bandwidth_mbps == pytest.approx(40, rel=0.01)  # half of it, in 10 ms


def test_what_is_kept_of_a_test_is_bounded() -> None:
    arrivals = Arrivals(0.0, 1 << 34)
    for number in range(50_000):
        arrivals.add(float(-number % 7), 3000)
    assert len(arrivals._pieces) <= iperf3_server.MAX_PIECES
    assert arrivals.total_bytes == 50_000 * 3000
    assert arrivals.report().bandwidth_mbps > 0


def test_a_kernel_that_keeps_no_times_leaves_that_of_the_reading() -> None:
    stamp = struct.pack("@ll", 1_700_000_000, 250_000)
    kind = iperf3_server._SO_TIMESTAMP
    assert iperf3_server._arrival_s([(socket.SOL_SOCKET, kind, stamp)]) == 1_700_000_000.25
    assert iperf3_server._arrival_s([]) == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_bytes_that_are_read_late_have_the_time_at_which_they_came(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, iperf3_server._SO_TIMESTAMP, 1)
        with socket.create_connection(listener.getsockname()[:2]) as sender:
            receiver, _ = listener.accept()
            with receiver:
                sender.sendall(b"first")
                first_s = time.time()
                time.sleep(0.2)
                sender.sendall(b"second")
                wait_until(lambda: iperf3_server._queued(receiver)[1] == 11, "both have come")
                both_s = time.time()
                time.sleep(0.2)
                _, ancillary, *_ = receiver.recvmsg(100, 100)
    came_s = iperf3_server._arrival_s(ancillary)
    assert first_s + 0.1 < came_s <= both_s


def test_a_clock_that_is_set_during_the_test_makes_it_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offsets_s = iter((0.0, 0.5))
    monkeypatch.setattr(iperf3_server, "_wall_offset_s", lambda: next(offsets_s))
    with under_way() as (server, control, stream):
        stream.sendall(bytes(BYTES))
        control.sendall(iperf3_server.TEST_END)
        exchange(control)
        assert "the clock was set" in str(server.unmeasured())


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
            stream.sendall(bytes(BYTES))
            control.sendall(iperf3_server.TEST_END)
            assert control.recv(1) == iperf3_server.EXCHANGE_RESULTS


def test_more_bytes_than_leased_are_cut_off() -> None:
    with under_way() as (server, _, stream):
        sent = 0
        with suppress(OSError):
            for _ in range(1000):
                sent += stream.send(bytes(100_000))
        error = server.unmeasured()
    assert isinstance(error, LeaseExceededError)
    assert "more came than 1000000 bytes" in str(error)
    # What was in the sockets' buffers has been sent, too, but no more.
    assert sent < 1_000_000 + ALLOWANCE_BYTES + 20_000_000


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.3])
def test_more_time_than_leased_is_cut_off(share: float, has_ended: bool) -> None:
    with serving(duration_ms=1500) as server:
        start_s = time.monotonic()
        control, stream = begin(server)
        with control, stream:
            stream.sendall(bytes(int(share * BYTES)))
            if has_ended:
                control.sendall(iperf3_server.TEST_END)
                assert exchange(control)["streams"][0]["bytes"] == int(share * BYTES)
            else:
                assert is_closed(control)
            assert time.monotonic() - start_s >= 1.5
            with pytest.raises(ConnectionError):
                stream.sendall(bytes(50_000_000))
        if share < 0.25:
            assert f"of {BYTES} bytes came in " in str(server.unmeasured())
        else:
            assert server.measured().transferred_bytes == int(share * BYTES)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num": BYTES + 1}, f"{BYTES + 1} bytes instead of {BYTES}"),
        ({"num": BYTES - 1}, f"{BYTES - 1} bytes instead of {BYTES}"),
        ({"num": 0}, "0 bytes instead of"),
        ({"num": 10**12}, "1000000000000 bytes instead of"),
        ({"num": float(BYTES)}, ".0 bytes instead of"),
        ({"num": 1e308}, "bytes instead of"),
        ({"num": True}, "True bytes instead of"),
        ({"num": "\n" * 500}, "bytes instead of"),
        ({"num": None}, "None bytes instead of"),
        ({"tcp": False, "udp": True}, "another protocol"),
        ({"tcp": None, "sctp": True}, "another protocol"),
        ({"parallel": 128}, "more than one stream"),
        ({"reverse": True}, "to receive"),
        ({"bidirectional": True}, "to receive"),
        ({"blockcount": 1}, "an end by time or blocks"),
        ({"time": 10}, "an end by time or blocks"),
        ({"omit": 10}, "time that does not count"),
    ],
)
def test_parameters_beyond_the_lease_are_named(change: dict[str, Any], reason: str) -> None:
    assert lease_violation(HONEST, BYTES) == ""
    assert reason in lease_violation({**HONEST, **change}, BYTES)
    assert lease_violation({**HONEST, **change}, BYTES).isprintable()


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
