"""The server of a bandwidth lease: the part of iperf3's protocol that one client test needs.

iperf3's own server accepts any client, direction, number of streams, bytes and seconds, and knows
no lease. Monitoring it from outside stops it too late, and a stranger who connects first prevents
the test. This server speaks the protocol of iperf3 3.1 and later: one control connection, one
stream that it receives. It answers only the leased peer's address and stops at the lease's bytes.
"""

import ipaddress
import json
import logging
import select
import socket
import struct
import threading
import time
from typing import Any

from leadline_agent.lease import BandwidthLease
from leadline_agent.text import one_line

LOG = logging.getLogger(__name__)
# States of iperf3's control connection, one byte each.
TEST_START, TEST_RUNNING, TEST_END = b"\x01", b"\x02", b"\x04"
PARAM_EXCHANGE, CREATE_STREAMS = b"\x09", b"\x0a"
EXCHANGE_RESULTS, DISPLAY_RESULTS = b"\x0d", b"\x0e"
ACCESS_DENIED, SERVER_ERROR = b"\xff", b"\xfe"
COOKIE_BYTES = 37
MAX_JSON_BYTES = 16 * 1024
READ_BYTES = 128 * 1024
# iperf3's client checks its pace before each burst of blocks of 128 KiB, and its clock after it.
ALLOWANCE_BYTES = 16 * 128 * 1024
SETUP_S = 5.0  # from a connection to the first byte of the test
GRACE_S = 10.0  # for the end of a test, over a link that the test has filled
POLL_S = 0.1


class IperfError(Exception):
    """A bandwidth test failed; str() says why in one sentence."""


class LeaseExceededError(IperfError):
    """The other end exceeded the lease and was cut off."""


def serve(lease: BandwidthLease, own_address: str, stopped: threading.Event) -> None:
    """Serve one test of the peer. Raises IperfError where it violates the lease; OSError.

    `own_address`: where to listen; "" is everywhere.
    """
    family = socket.AF_INET6 if ":" in lease.peer.address else socket.AF_INET
    with socket.create_server((own_address, lease.port), family=family) as listener:
        listener.setblocking(False)
        _TestServer(lease, listener, stopped).run()


class _UnrelatedConnectionError(Exception):
    """A connection of the peer that does not belong to the test; the next one may."""


class _TestServer:
    """The listener of one lease and its connections."""

    def __init__(
        self, lease: BandwidthLease, listener: socket.socket, stopped: threading.Event
    ) -> None:
        self._lease = lease
        self._listener = listener
        self._stopped = stopped
        self._peer = ipaddress.ip_address(lease.peer.address)

    def run(self) -> None:
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
                    if reason := lease_violation(parameters, self._lease.duration_ms):
                        control.sendall(SERVER_ERROR + struct.pack(">ii", 0, 0))
                        raise LeaseExceededError(f"cut off: {reason}")
                except (_UnrelatedConnectionError, ConnectionError):
                    continue  # the peer checked whether the port is open, or sent nothing
                with self._accept_stream(control, cookie, until_s) as stream:
                    self._measure(control, stream)
                return

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

    def _measure(self, control: socket.socket, stream: socket.socket) -> None:
        control.sendall(TEST_START + TEST_RUNNING)
        start_s = time.monotonic()
        received = self._receive(control, stream, start_s)
        elapsed_s = time.monotonic() - start_s
        until_s = time.monotonic() + GRACE_S
        try:
            control.sendall(EXCHANGE_RESULTS)
            self._message(control, until_s)  # the client's own results, which it reports itself
            body = json.dumps(results(received, elapsed_s)).encode()
            control.sendall(struct.pack(">I", len(body)) + body + DISPLAY_RESULTS)
            self._exactly(control, 1, until_s)
        except (_UnrelatedConnectionError, ConnectionError):
            return  # the client has its results, or reports a failure

    def _receive(self, control: socket.socket, stream: socket.socket, start_s: float) -> int:
        """Receive until the client ends the test. Returns the payload bytes."""
        most_bytes = self._lease.max_bytes + ALLOWANCE_BYTES
        until_s = start_s + self._lease.duration_ms / 1000 + GRACE_S
        buffer = bytearray(READ_BYTES)
        total = 0
        waiting = [control, stream, self._listener]
        while True:
            ready = self._wait(waiting, until_s)
            if not ready:
                raise LeaseExceededError("cut off: the test took longer than was leased")
            if stream in ready:
                count = stream.recv_into(buffer)
                total += count
                if total > most_bytes:
                    raise LeaseExceededError(
                        f"cut off: more came than {self._lease.max_bytes} bytes"
                    )
                if not count:
                    waiting.remove(stream)
            if self._listener in ready and (another := self._accepted()):
                another.close()
            if control in ready and stream not in ready:
                if control.recv(1) != TEST_END:
                    raise IperfError("the other end gave the test up")
                return total

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


def lease_violation(parameters: object, duration_ms: int) -> str:
    """How a client's parameters violate the lease, in a few words; "" if they do not."""
    if not isinstance(parameters, dict):
        return "its parameters cannot be read"
    seconds = parameters.get("time")
    if type(seconds) is not int or not 1 <= seconds * 1000 <= duration_ms:
        return f"it wants {one_line(repr(seconds)[:80], 40)} s of {duration_ms} ms"
    wanted = {
        "another protocol than TCP": parameters.get("tcp") is not True,
        "more than one stream": parameters.get("parallel") != 1,
        "to receive": any(parameters.get(key) for key in ("reverse", "bidirectional")),
        "an end by bytes or blocks": any(parameters.get(key) for key in ("num", "blockcount")),
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
