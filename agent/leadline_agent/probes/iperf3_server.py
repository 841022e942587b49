"""The server of a bandwidth lease: the part of iperf3's protocol that one client test needs.

iperf3's own server accepts any client, direction, number of streams, bytes and seconds, and knows
no lease. Monitoring it from outside stops it too late, and a stranger who connects first prevents
the test. This server speaks the protocol of iperf3 3.1 and later: one control connection, one
stream that it receives. It answers only the leased peer's address and stops at the lease's bytes
and time.

It also measures, because a sender only knows what it gave to TCP. The kernel notes when each packet
came, so that a busy processor does not falsify tests of a few milliseconds.
"""

import fcntl
import ipaddress
import json
import logging
import math
import select
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any

from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.lease import BandwidthLease
from leadline_agent.probes.base import WatchHindrances
from leadline_agent.probes.processor_wait import ProcessorWait
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
# States of iperf3's control connection, one byte each.
TEST_START, TEST_RUNNING, TEST_END = b"\x01", b"\x02", b"\x04"
PARAM_EXCHANGE, CREATE_STREAMS = b"\x09", b"\x0a"
EXCHANGE_RESULTS, DISPLAY_RESULTS = b"\x0d", b"\x0e"
ACCESS_DENIED, SERVER_ERROR = b"\xff", b"\xfe"
COOKIE_BYTES = 37
MAX_JSON_BYTES = 16 * 1024
# The client sends in whole blocks: the size holds for both ends.
BLOCK_BYTES = 16 * 1024
ALLOWANCE_BYTES = 16 * BLOCK_BYTES  # a client may send some blocks more before it counts them
LEAST_SHARE = 0.25  # of the bytes of a lease: fewer are no measurement
# A test is read in so many pieces, and more of them are kept where packets were lost.
PIECES, MAX_PIECES = 256, 4096
LEAST_READ_BYTES = 2048
BURST_S = 0.005  # a shaper lets so much of its rate pass at once
MOST_BEFORE = 0.95  # of the bytes before the measurement; the rest may be one late packet
LEAST_MEASURED_S = 0.001  # packets come in batches, about every 0.1 ms
# While a thread waits for a processor, the transfer pauses for some milliseconds, unless buffers
# keep the link busy. So bytes were not held up if they came for STEADY_S, with few pauses that no
# batch of bytes made up for, and in no window much faster than in all the time. Of 52 tests over
# links of 0.1 and 1 Gbit/s, beside up to 6 busy processes, all that passed were right within 5 %.
STEADY_S, WINDOW_S, STEADY_SHARE = 0.035, 0.008, 0.8
CLOCK_SET_S = 0.005
SETUP_S = 5.0  # from a connection to the first byte of the test
RESULTS_S = 2.0  # for the results, over a link that the test has filled
GRACE_S = 10.0  # for the end of a process or thread
# sys/socket.h on all architectures that Leadline supports; Python does not name it. The option with
# nanoseconds shows no more here, and an emulated board does not have it.
_SO_TIMESTAMP = 29
_TIMEVAL = struct.Struct("@ll")
POLL_S = 0.1
_LOOKS, _LOOK_S = 5, 0.0002
_SO_MEMINFO = 55  # its first number is of the bytes that wait
_OUT_OF_ORDER_AT = 224  # linux/tcp.h: tcpi_rcv_ooopack


class IperfError(Exception):
    """A bandwidth test failed; str() says why in one sentence."""


class LeaseExceededError(IperfError):
    """The other end exceeded the lease and was cut off."""


def leased_bytes(lease: BandwidthLease) -> int:
    """What the client sends: whole blocks."""
    return lease.max_bytes // BLOCK_BYTES * BLOCK_BYTES


def serve(
    lease: BandwidthLease,
    own_address: str,
    stopped: threading.Event,
    watch_hindrances: WatchHindrances = lambda: list,
) -> pb.BandwidthReport:
    """Serve one test of the peer. What was measured; IperfError if it violates the lease; OSError.

    `own_address`: where to listen; "" is everywhere.
    """
    family = socket.AF_INET6 if ":" in lease.peer.address else socket.AF_INET
    with socket.create_server((own_address, lease.port), family=family) as listener:
        listener.setblocking(False)
        # The connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)
        return _TestServer(lease, listener, stopped, watch_hindrances).run()


class Arrivals:
    """How many bytes came when, on the wall clock.

    TCP hands bytes over in order, so those behind a lost packet are read late, but with the times
    at which they came. A piece counts from the first time on that it or one behind it has: rather
    too early, so that no link looks faster than it is.
    """

    def __init__(self, start_s: float, expected_bytes: int) -> None:
        self.total_bytes = self.extra_bytes = 0
        self.end_s = 0.0  # when all had come, if that was later than the last of its times
        self.read_bytes = max(expected_bytes // PIECES, LEAST_READ_BYTES)
        self._start_s = start_s
        self._expected_bytes = expected_bytes
        self._pieces: list[tuple[float, int]] = []

    def add(self, time_s: float, count: int) -> None:
        """Note that so many bytes were read, and that the last of them came then, inf: no later
        than those behind them. What comes after the expected bytes is extra, and not measured."""
        if self.total_bytes >= self._expected_bytes:
            self.extra_bytes += count
            return
        self.total_bytes += count
        if self._pieces:
            last_s, last_count = self._pieces[-1]
            is_small = time_s >= last_s and last_count + count <= self.read_bytes
            if is_small or len(self._pieces) >= MAX_PIECES:
                self._pieces[-1] = (max(time_s, last_s), last_count + count)
                return
        self._pieces.append((time_s, count))

    def add_read(self, pieces: Sequence[tuple[float, int]], end_s: float) -> None:
        """Note all pieces of one read. end_s: when it had come, 0 if that is its last time."""
        if self.total_bytes < self._expected_bytes:
            self.end_s = end_s
        for time_s, count in pieces:
            self.add(time_s, count)

    def report(self) -> pb.BandwidthReport:
        """The rate of the second half of the bytes, or of those that came after a shaper's burst,
        if that let more than half of the bytes pass at once.

        After a delay, a shaper lets a burst pass, of which a part would count for no time if the
        measurement began within it. So of the moments in its first BURST_S, it begins at the one
        from which on the rate is the lowest.

        If they came too fast to be timed, it is a lower bound: half of the bytes in all the time.
        """
        half = self.total_bytes / 2
        known_s = [time_s for time_s, _ in self._pieces if time_s < math.inf]
        end_s = latest_s = max([self.end_s, *known_s])
        times_s = accumulate((min(time_s, end_s) for time_s, _ in reversed(self._pieces)), min)
        counts = (count for _, count in self._pieces)
        pieces = list(zip(reversed(list(times_s)), counts, strict=True))
        burst_end_s = pieces[0][0] + BURST_S
        before, counted, measured_s, start_s = 0, half, 0.0, end_s
        for time_s, at_once in groupby(pieces, key=itemgetter(0)):
            before += sum(count for _, count in at_once)
            if before < half or time_s < burst_end_s:
                continue
            left_s, is_first = end_s - time_s, not measured_s
            is_timed = before <= MOST_BEFORE * self.total_bytes and left_s >= LEAST_MEASURED_S
            if not is_timed or time_s > latest_s:
                break
            if is_first:
                latest_s = time_s + min(BURST_S, left_s / 4)
            if is_first or (self.total_bytes - before) / left_s < counted / measured_s:
                counted, measured_s, start_s = self.total_bytes - before, left_s, time_s
        is_timed = measured_s > 0
        measured_s = measured_s or max(end_s - self._start_s, 1e-6)
        return pb.BandwidthReport(
            bandwidth_mbps=counted * 8e-6 / measured_s,
            lower_bound=not is_timed,
            measured_us=round(measured_s * 1e6),
            steady=is_timed and _is_steady([each for each in pieces if each[0] >= start_s]),
        )


def _is_steady(pieces: Sequence[tuple[float, int]]) -> bool:
    """Whether the bytes that came after the first of these times came evenly, for STEADY_S at
    least. pieces: when each of them came, in order, and how many bytes it has."""
    times_s: list[float] = []
    until: list[int] = []
    total = 0
    for time_s, at_once in groupby(pieces, key=itemgetter(0)):
        total += sum(count for _, count in at_once)
        times_s.append(time_s)
        until.append(total)
    measured_s = times_s[-1] - times_s[0]
    if measured_s < STEADY_S:
        return False
    byte_s, idle_s = measured_s / (total - until[0]), 0.0
    for (begin_s, end_s), (before, now) in zip(pairwise(times_s), pairwise(until), strict=True):
        idle_s += max(0.0, end_s - begin_s - (now - before) * byte_s)
    if idle_s > (1 - STEADY_SHARE) * measured_s:
        return False
    fastest, last = 0.0, 0
    for first, begin_s in enumerate(times_s):
        while times_s[last] - begin_s < WINDOW_S:
            last += 1
            if last == len(times_s):
                return STEADY_SHARE * fastest <= (total - until[0]) / measured_s
        fastest = max(fastest, (until[last] - until[first]) / (times_s[last] - begin_s))
    return False


class _UnrelatedConnectionError(Exception):
    """A connection of the peer that does not belong to the test; the next one may."""


class _TestServer:
    """The listener of one lease and its connections."""

    def __init__(
        self,
        lease: BandwidthLease,
        listener: socket.socket,
        stopped: threading.Event,
        watch_hindrances: WatchHindrances,
    ) -> None:
        self._lease = lease
        self._expected_bytes = leased_bytes(lease)
        self._listener = listener
        self._stopped = stopped
        self._watch_hindrances = watch_hindrances
        self._peer = ipaddress.ip_address(lease.peer.address)

    def run(self) -> pb.BandwidthReport:
        while True:
            control = self._accept(self._lease.expires_s)
            if control is None:
                raise IperfError("the other end did not come before the lease expired")
            with control:
                until_s = time.monotonic() + SETUP_S
                try:
                    cookie = self._exactly(control, COOKIE_BYTES, until_s)
                    control.sendall(PARAM_EXCHANGE)
                    parameters = self._message(control, until_s)
                    if reason := lease_violation(parameters, self._expected_bytes):
                        control.sendall(SERVER_ERROR + struct.pack(">ii", 0, 0))
                        raise LeaseExceededError(f"cut off: {reason}")
                except (_UnrelatedConnectionError, ConnectionError):
                    continue  # the peer checked whether the port is open, or sent nothing
                with self._accept_stream(control, cookie, until_s) as stream:
                    return self._measure(control, stream)

    def _accept(self, until_s: float) -> socket.socket | None:
        """The peer's next connection, None if too late. Other connections are closed at once."""
        while self._wait((self._listener,), until_s):
            if connection := self._accepted():
                return connection
        return None

    def _accepted(self) -> socket.socket | None:
        try:
            connection, (address, *_) = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return None  # the connection is already closed
        if ipaddress.ip_address(address.partition("%")[0]) == self._peer:
            connection.settimeout(SETUP_S)
            # Otherwise the start of the test waits 40 ms for a TCP acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        connection.close()
        LOG.warning(
            "bandwidth: closed a connection from %s: the lease names %s", address, self._peer
        )
        return None

    def _accept_stream(
        self, control: socket.socket, cookie: bytes, until_s: float
    ) -> socket.socket:
        control.sendall(CREATE_STREAMS)
        while stream := self._accept(until_s):
            try:
                if self._exactly(stream, COOKIE_BYTES, until_s) == cookie:
                    return stream
                stream.sendall(ACCESS_DENIED)
            except (_UnrelatedConnectionError, ConnectionError):
                pass
            except BaseException:
                stream.close()
                raise
            stream.close()
        raise IperfError("the other end opened no stream")

    def _measure(self, control: socket.socket, stream: socket.socket) -> pb.BandwidthReport:
        hindrances, wait = self._watch_hindrances(), ProcessorWait.of_this_thread()
        control.sendall(TEST_START + TEST_RUNNING)
        start_s, wall_offset_s = time.monotonic(), _wall_offset_s()
        arrivals = Arrivals(time.time(), self._expected_bytes)
        has_ended = self._receive(control, stream, start_s, arrivals)
        elapsed_s = time.monotonic() - start_s
        held_back, waited_us = hindrances(), wait.us()
        # What more came is not counted, so that no result is beyond the lease.
        transferred_bytes = min(arrivals.total_bytes, self._expected_bytes)
        if transferred_bytes < self._expected_bytes:
            stream.close()  # what waits to be sent is not sent any more
        if has_ended:
            self._exchange_results(control, transferred_bytes, elapsed_s)
        if transferred_bytes < LEAST_SHARE * self._expected_bytes:
            raise IperfError(
                f"cut off: {transferred_bytes} of {self._expected_bytes} bytes came in "
                f"{elapsed_s * 1000:.0f} ms"
            )
        if abs(_wall_offset_s() - wall_offset_s) > CLOCK_SET_S:
            raise IperfError("the clock was set during the test")
        report = arrivals.report()
        report.transferred_bytes = transferred_bytes
        report.duration_ms = max(1, round(elapsed_s * 1000))
        report.hindrances.extend(held_back)
        report.waited_us = waited_us
        return report

    def _exchange_results(self, control: socket.socket, received: int, elapsed_s: float) -> None:
        until_s = time.monotonic() + RESULTS_S
        try:
            control.sendall(EXCHANGE_RESULTS)
            self._message(control, until_s)  # the client's own results, which it reports itself
            body = json.dumps(results(received, elapsed_s)).encode()
            control.sendall(struct.pack(">I", len(body)) + body + DISPLAY_RESULTS)
            self._exactly(control, 1, until_s)
        except (_UnrelatedConnectionError, ConnectionError, TimeoutError):
            return  # the client has its results, or reports a failure

    def _receive(
        self, control: socket.socket, stream: socket.socket, start_s: float, arrivals: Arrivals
    ) -> bool:
        """Receive until all has come or the time is up. Whether the client has ended the test.

        The client ends it when it has given all to TCP, so the last bytes come after that.
        """
        until_s = start_s + self._lease.duration_ms / 1000
        reader = QueueReader(stream, arrivals.read_bytes)
        waiting = [control, stream, self._listener]
        while control in waiting or (
            stream in waiting and arrivals.total_bytes < self._expected_bytes
        ):
            ready = self._wait(waiting, until_s)
            if not ready:
                break
            if stream in ready:
                pieces = reader.read()
                if not pieces:
                    waiting.remove(stream)
                arrivals.add_read(pieces, reader.end_s)
                came_bytes = arrivals.total_bytes + arrivals.extra_bytes
                if came_bytes > self._expected_bytes + ALLOWANCE_BYTES:
                    raise LeaseExceededError(
                        f"cut off: more came than {self._lease.max_bytes} bytes"
                    )
            if self._listener in ready and (another := self._accepted()):
                another.close()
            if control in ready and stream not in ready:
                if control.recv(1) != TEST_END:
                    raise IperfError("the other end gave the test up")
                waiting.remove(control)
        return control not in waiting

    def _message(self, control: socket.socket, until_s: float) -> object:
        (length,) = struct.unpack(">I", self._exactly(control, 4, until_s))
        if length > MAX_JSON_BYTES:
            raise _UnrelatedConnectionError
        try:
            return json.loads(self._exactly(control, length, until_s))
        except (ValueError, RecursionError):
            raise _UnrelatedConnectionError from None

    def _exactly(self, connection: socket.socket, count: int, until_s: float) -> bytes:
        data = b""
        while len(data) < count:
            if not self._wait((connection,), until_s):
                raise _UnrelatedConnectionError
            piece = connection.recv(count - len(data))
            if not piece:
                raise _UnrelatedConnectionError
            data += piece
        return data

    def _wait(self, sockets: Any, until_s: float) -> list[socket.socket]:
        """The readable sockets; none after `until_s`. Raises IperfError when the agent stops."""
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopped.is_set():
                raise IperfError("the agent is stopping")
            ready: list[socket.socket] = select.select(sockets, (), (), min(left_s, POLL_S))[0]
            if ready:
                return ready
        return []


class QueueReader:
    """Reads all that waits in a stream, and says when it came.

    The kernel keeps one time for a row of packets that wait: that of the last one. If a packet
    joins the row while it is read, the rest has that packet's time, which is too late. Behind a
    lost packet others wait unseen, so that what comes with them has no time. What is sent again
    joins them and has their time, which is too early: at the end, the time of the look counts.
    """

    def __init__(self, stream: socket.socket, most_bytes: int) -> None:
        """most_bytes: in one piece."""
        self._stream = stream
        self._buffer = memoryview(bytearray(most_bytes))
        self._emptied_s = 0.0
        self._out_of_order = 0
        self._has_hole = False
        self.end_s = 0.0  # when all that was read last had come, if that is not the last time in it

    def read(self) -> list[tuple[float, int]]:
        """When the last byte of each piece came, on the wall clock, inf if that is not known, and
        how many bytes it has; no piece at the end of the stream."""
        out_of_order = _out_of_order(self._stream)
        seen_s, queued = _queued(self._stream)
        times_s: list[float] = []
        counts: list[int] = []
        while not counts or sum(counts) < queued:
            most = max(queued - sum(counts), 1)
            count, ancillary, *_ = self._stream.recvmsg_into(
                (self._buffer[:most],), socket.CMSG_SPACE(_TIMEVAL.size)
            )
            if not count:
                break
            time_s = _arrival_s(ancillary)
            if time_s > seen_s:  # all that was queued had come by then
                time_s = times_s[-1] if times_s else seen_s
            times_s.append(time_s)
            counts.append(count)
        if not counts:
            return []
        # What comes first now had not come when the queue was emptied.
        is_early = min(times_s) < self._emptied_s
        self._has_hole |= _out_of_order(self._stream) != self._out_of_order
        self.end_s = seen_s if self._has_hole or is_early else 0.0
        if self._has_hole:
            times_s = [math.inf] * len(times_s)
            self._has_hole = _is_anything_kept(self._stream)
        self._emptied_s, self._out_of_order = seen_s, out_of_order
        return list(zip(times_s, counts, strict=True))


def _out_of_order(stream: socket.socket) -> int:
    """How many packets came before others that were sent earlier; 0 where no kernel counts them,
    before Linux 5.4."""
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OUT_OF_ORDER_AT + 4)
    return int.from_bytes(info[_OUT_OF_ORDER_AT:], sys.byteorder)


def _is_anything_kept(stream: socket.socket) -> bool:
    """Whether the kernel keeps packets of the stream, also behind a lost one; False where it does
    not say."""
    try:
        return any(stream.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4))
    except OSError:
        return False


def _queued(stream: socket.socket) -> tuple[float, int]:
    """How many bytes wait to be read, and when that was, on the wall clock."""
    word = bytearray(4)
    for _ in range(_LOOKS):
        before_s = time.time()
        fcntl.ioctl(stream, termios.FIONREAD, word)
        if (at_s := time.time()) - before_s < _LOOK_S:
            break  # else packets may have come between the two
    return at_s, int.from_bytes(word, sys.byteorder)


def _arrival_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    """When the last byte of a read came, on the wall clock: the kernel's time, or else now."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMP):
            seconds, microseconds = _TIMEVAL.unpack_from(data)
            return float(seconds + microseconds / 1e6)
    return time.time()


def _wall_offset_s() -> float:
    return time.time() - time.monotonic()


def lease_violation(parameters: object, expected_bytes: int) -> str:
    """How a client's parameters violate the lease, in a few words; "" if they do not.

    expected_bytes: what it has to send.
    """
    if not isinstance(parameters, dict):
        return "its parameters cannot be read"
    asked_bytes = parameters.get("num")
    if type(asked_bytes) is not int or asked_bytes != expected_bytes:
        return f"it wants {one_line(repr(asked_bytes)[:80], 40)} bytes instead of {expected_bytes}"
    wanted = {
        "another protocol than TCP": parameters.get("tcp") is not True,
        "more than one stream": parameters.get("parallel") != 1,
        "to receive": any(parameters.get(key) for key in ("reverse", "bidirectional")),
        "an end by time or blocks": any(parameters.get(key) for key in ("time", "blockcount")),
        "time that does not count": bool(parameters.get("omit")),
    }
    return next((f"it wants {what}" for what, holds in wanted.items() if holds), "")


def results(received_bytes: int, elapsed_s: float) -> dict[str, Any]:
    """The receiver's results for the client, with every key that any iperf3 version requires."""
    stream = {
        "id": 1,
        "bytes": received_bytes,
        "retransmits": -1,
        "jitter": 0,
        "errors": 0,
        "omitted_errors": 0,
        "packets": 0,
        "omitted_packets": 0,
        "start_time": 0,
        "end_time": elapsed_s,
    }
    unmeasured = dict.fromkeys(("cpu_util_total", "cpu_util_user", "cpu_util_system"), 0)
    return {**unmeasured, "sender_has_retransmits": -1, "streams": [stream]}
