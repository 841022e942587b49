"""A peer that speaks iperf3's control protocol and lies: an attack on the agent that tests
bandwidth with it."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

COOKIE_BYTES = 37
TEST_START, TEST_RUNNING, TEST_END = b"\x01", b"\x02", b"\x04"
PARAM_EXCHANGE, CREATE_STREAMS = b"\x09", b"\x0a"
EXCHANGE_RESULTS, DISPLAY_RESULTS = b"\x0d", b"\x0e"


@dataclass(frozen=True)
class Lie:
    """What the server does with one client."""

    # JSON texts, seconds and bytes.
    end_time: str = "0.001"
    received: str = "29999104"
    raw: str | None = None  # instead of all results
    size: int | None = None  # the length that it announces for them
    restarts: int = 0  # how often it says, during the test, that the test begins now
    streams: int = 0  # how many more it has the client open before the test
    stall_s: float = 0.0  # how long it keeps the results back

    def results(self) -> bytes:
        """The results as they go over the wire, behind their length."""
        stream = (
            f'"id":1,"bytes":{self.received},"retransmits":-1,"jitter":0,"errors":0,"packets":0,'
            f'"start_time":0,"end_time":{self.end_time}'
        )
        text = self.raw
        if text is None:
            text = (
                '{"cpu_util_total":1,"cpu_util_user":1,"cpu_util_system":0,'
                f'"sender_has_retransmits":-1,"streams":[{{{stream}}}]}}'
            )
        body = text.encode()
        return struct.pack(">I", len(body) if self.size is None else self.size) + body


class HostileServer:
    """Serves one client at a time; `lie` can be changed between them. `received_bytes` counts."""

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        self.lie = Lie()
        self.received_bytes = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Listen no longer."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                control, _ = self._listener.accept()
            except OSError:
                return
            with control, contextlib.suppress(OSError, ValueError, struct.error):
                control.settimeout(20)
                self._test(control, self.lie)

    def _test(self, control: socket.socket, lie: Lie) -> None:
        _exactly(control, COOKIE_BYTES)
        control.sendall(PARAM_EXCHANGE)
        _message(control)
        control.sendall(CREATE_STREAMS)
        data, _ = self._listener.accept()
        with data:
            _exactly(data, COOKIE_BYTES)
            for _ in range(lie.streams):
                control.sendall(CREATE_STREAMS)
                more, _ = self._listener.accept()
                threading.Thread(target=self._drain, args=(more,), daemon=True).start()
            control.sendall(TEST_START + TEST_RUNNING)
            threading.Thread(target=self._drain, args=(data,), daemon=True).start()
            for _ in range(lie.restarts):
                time.sleep(0.5)
                control.sendall(TEST_START + TEST_RUNNING)
            while _exactly(control, 1) != TEST_END:
                pass
            control.sendall(EXCHANGE_RESULTS)
            _message(control)
            time.sleep(lie.stall_s)
            control.sendall(lie.results() + DISPLAY_RESULTS)
            control.recv(1)

    def _drain(self, data: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := len(data.recv(1 << 20)):
                self.received_bytes += received


@contextmanager
def hostile_server(address: str = "127.0.0.1") -> Iterator[HostileServer]:
    """A hostile server until the block ends."""
    server = HostileServer(address)
    try:
        yield server
    finally:
        server.close()


def _message(control: socket.socket) -> object:
    (length,) = struct.unpack(">I", _exactly(control, 4))
    return json.loads(_exactly(control, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return data
