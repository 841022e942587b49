"""A TCP relay in front of the gRPC server that limits connections.

gRPC's asyncio server can limit connections only in total, so one peer could take them all, and it
can close neither a connection nor a call. So it listens on a private Unix socket, and the gate
relays to it. At the limit, the gate closes a connection to accept a new one: of the peer with the
most connections, the one that has been without a call for the longest.
"""

import asyncio
import contextlib
import logging
import os
import resource
import socket
from collections import Counter
from pathlib import Path
from typing import cast

from leadline_controller.api.listeners import THIS_MACHINE, accept, cancel, peer_of

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 96
# Until the first call, which a client makes right after its handshake.
FIRST_CALL_S = 10.0
IDLE_S = 60.0
# Each connection costs three descriptors: the client's, and both ends of ours to gRPC.
_DESCRIPTORS = 3
# For the API server, the broker, the database and the extender.
_RESERVED_DESCRIPTORS = 512
_MIN_CONNECTIONS = 8
_SWEEP_S = 0.5
_DRAIN_S = 0.2
_BUFFER_BYTES = 64 * 1024


class _Side(asyncio.Protocol):
    """One side of a relayed connection. other: the transport of the other side, once there is
    one."""

    def __init__(self, other: asyncio.Transport | None = None) -> None:
        self.other = other

    def data_received(self, data: bytes) -> None:
        """Relay bytes."""
        if self.other is not None:
            self.other.write(data)

    def pause_writing(self) -> None:
        """This side reads too slowly: stop reading from the other one."""
        if self.other is not None:
            self.other.pause_reading()

    def resume_writing(self) -> None:
        """This side has caught up."""
        if self.other is not None:
            self.other.resume_reading()


class _ServerSide(_Side):
    def connection_lost(self, _: Exception | None) -> None:
        """Send what is buffered, then close. A client that does not read it is closed as idle."""
        if self.other is not None:
            self.other.close()


class Connection(_Side):
    """The client's side of a relayed connection. address: of the client's socket. peer: as
    peer_of() returns it. calls: how many
    are in progress. called: whether there was any. since_s: when the last call ended, or the
    connection began. name: as gRPC calls the peer."""

    def __init__(self, gate: "Gate", address: object) -> None:
        super().__init__()
        self.address = address
        self.peer = peer_of(address)
        self.calls = 0
        self.called = False
        self.since_s = gate.now_s()
        self.name = ""
        self.has_sent = False
        self._gate = gate
        self._client: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    @property
    def client(self) -> object:
        """Whose calls count together: the peer's, or on this machine, whose users share one
        address, those of this connection."""
        return self if self.peer == THIS_MACHINE else self.peer

    def begin_call(self) -> None:
        """A call of this connection has begun."""
        self.calls, self.called = self.calls + 1, True

    def end_call(self) -> None:
        """A call of this connection has ended."""
        self.calls, self.since_s = self.calls - 1, self._gate.now_s()

    def close(self) -> None:
        """Close it with all its calls, even if the client has not read everything."""
        if self._client is not None:
            self._client.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; the relay connects to gRPC when it sends something."""
        self._client = cast(asyncio.Transport, transport)
        self._client.set_write_buffer_limits(_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Relay bytes to gRPC."""
        if self.other is None and self._client is not None:
            self._client.pause_reading()
            self.has_sent = True
            self._connecting = asyncio.create_task(self._connect(self._client, data))
        super().data_received(data)

    def connection_lost(self, _: Exception | None) -> None:
        """The client is gone or was closed: forget it, and make gRPC end its calls."""
        self._gate.forget(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self.other is not None:
            self.other.abort()

    async def _connect(self, client: asyncio.Transport, first: bytes) -> None:
        try:
            self.name, connected = await self._gate.open_server()
            self.other, _ = await asyncio.get_running_loop().create_unix_connection(
                lambda: _ServerSide(client), sock=connected
            )
        except OSError as error:
            log.warning("gRPC server can't be reached, closing a connection: %s", error)
            client.abort()
            return
        self.other.set_write_buffer_limits(_BUFFER_BYTES)
        self._gate.by_name[self.name] = self
        self.other.write(first)
        client.resume_reading()


class Gate:
    """Accepts at most `limit` connections, and relays them to the socket given to `relay_to`.
    by_name: those that have sent something, by what gRPC calls their peer."""

    def __init__(self, limit: int | None = None) -> None:
        self._server = contextlib.ExitStack()
        self._server_path = ""
        self._limit = affordable_connections() if limit is None else limit
        self._connections: set[Connection] = set()
        self.by_name: dict[str, Connection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    def now_s(self) -> float:
        """The clock of idle times."""
        return self._loop.time()

    def relay_to(self, server: Path) -> None:
        """Relay to the gRPC server that listens at this socket. Its file may be deleted afterwards,
        so that a killed process leaves none behind. Raises OSError."""
        self._server.close()
        descriptor = os.open(server, os.O_PATH | os.O_CLOEXEC)
        self._server.callback(os.close, descriptor)
        self._server_path = f"/proc/self/fd/{descriptor}"

    def start(self, listeners: list[socket.socket]) -> None:
        """Accept from these sockets; the gate closes them."""
        self._tasks = [asyncio.create_task(accept(each, self._admit)) for each in listeners]
        self._tasks.append(asyncio.create_task(self._sweep()))

    async def stop_accepting(self) -> None:
        """Accept no more connections, and keep the present ones."""
        await cancel(self._tasks)

    async def close(self) -> None:
        """Close the connections after a moment to send what gRPC wrote last."""
        if self._connections:
            await asyncio.sleep(_DRAIN_S)
        for connection in list(self._connections):
            connection.close()
        self._server.close()

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)
        self.by_name.pop(connection.name, None)

    async def open_server(self) -> tuple[str, socket.socket]:
        """Connect to the gRPC server. Returns gRPC's name for the peer and the socket; raises
        OSError."""
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            ours.setblocking(False)
            ours.bind("")  # the kernel assigns a unique name
            await self._loop.sock_connect(ours, self._server_path)
        except BaseException:
            ours.close()
            raise
        return f"unix-abstract:{ours.getsockname()[1:].decode()}", ours

    async def _admit(self, client: socket.socket, address: object) -> None:
        if len(self._connections) >= self._limit and not self._close_idle():
            client.close()
            return
        connection = Connection(self, address)
        self._connections.add(connection)
        try:
            await self._loop.connect_accepted_socket(lambda: connection, client)
        except OSError:
            self.forget(connection)
            client.close()

    def _close_idle(self) -> bool:
        """Close a connection without a call. Returns whether there was one."""
        idle = [each for each in self._connections if not each.calls]
        held = Counter(each.peer for each in self._connections)
        if not idle:
            return False
        closed = max(idle, key=lambda each: (not each.has_sent, held[each.peer], -each.since_s))
        self.forget(closed)
        closed.close()
        return True

    async def _sweep(self) -> None:
        """Close connections that have been without a call for too long."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            for each in list(self._connections):
                allowed_s = IDLE_S if each.called else FIRST_CALL_S
                if not each.calls and self.now_s() - each.since_s > allowed_s:
                    each.close()


def affordable_connections() -> int:
    """The number of connections that the process's file descriptors allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(
        MAX_CONNECTIONS, max(_MIN_CONNECTIONS, (files - _RESERVED_DESCRIPTORS) // _DESCRIPTORS)
    )
