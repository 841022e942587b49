"""The connections in front of the gRPC server: how many there are, and which of them must go.

gRPC's asyncio server can limit connections only in sum, so that one peer can take them all, and
it can end neither a connection nor a call. So it listens on a socket of our own, and the gate
relays to it. A newcomer always finds a place: the connection that has been without a call for
the longest makes room, of the peer that has the most.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import socket
import stat
from collections import Counter
from pathlib import Path
from typing import cast

log = logging.getLogger(__name__)

PLACES = 96
# Until its first call, which a client makes as soon as its handshake is done.
FIRST_CALL_S = 10.0
IDLE_S = 60.0
# Each connection costs three descriptors: the client's, and both ends of ours to gRPC.
_DESCRIPTORS = 3
# What the API server, the broker, the database and the extender are never to lack.
_RESERVED_DESCRIPTORS = 512
_FEWEST_PLACES = 8
_BACKLOG = 512
# 200 connections a second: those that come and go at once cost the scheduler 2 % of its loop.
_PAUSE_S = 0.005
_SWEEP_S = 0.5
_LAST_BYTES_S = 0.2
_BUFFER_BYTES = 64 * 1024
THIS_MACHINE = "this machine"


class Connection(asyncio.Protocol):
    """The client's end of a connection. peer: its address, and all of this machine are one;
    calls: how many of its calls are in progress."""

    def __init__(self, gate: "Gate", peer: str) -> None:
        self.peer = peer
        self.calls = 0
        self.called = False
        self.since_s = gate.now_s()
        self.name = ""
        self.has_sent = False
        self._gate = gate
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def begin_call(self) -> None:
        """One more of its calls is in progress."""
        self.calls, self.called = self.calls + 1, True

    def end_call(self) -> None:
        """One less."""
        self.calls, self.since_s = self.calls - 1, self._gate.now_s()

    def close(self) -> None:
        """End it with all of its calls, whether or not the client reads what is left."""
        if self._client is not None:
            self._client.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there; gRPC need not know until it sends something."""
        self._client = cast(asyncio.Transport, transport)
        self._client.set_write_buffer_limits(_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self._server is not None:
            self._server.write(data)
        elif self._client is not None:
            self._client.pause_reading()
            self.has_sent = True
            self._connecting = asyncio.create_task(self._connect(self._client, data))

    def pause_writing(self) -> None:
        """The client reads too slowly: let gRPC wait."""
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._server is not None:
            self._server.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        """The client is gone, or was sent away: free its place, and have gRPC end its calls."""
        self._gate.forget(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._server is not None:
            self._server.abort()

    async def _connect(self, client: asyncio.Transport, first: bytes) -> None:
        try:
            self.name, connected = await self._gate.open_server()
            self._server, _ = await asyncio.get_running_loop().create_unix_connection(
                lambda: _ServerEnd(client), sock=connected
            )
        except OSError as error:
            log.warning("gRPC server can't be reached, closing a connection: %s", error)
            client.abort()
            return
        self._server.set_write_buffer_limits(_BUFFER_BYTES)
        self._gate.introduce(self)
        self._server.write(first)
        client.resume_reading()


class _ServerEnd(asyncio.Protocol):
    """What gRPC sends to a client."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def pause_writing(self) -> None:
        self._client.pause_reading()

    def resume_writing(self) -> None:
        self._client.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        # What is left is sent first. A client that does not read it is idle, and goes for that.
        self._client.close()


class Gate:
    """Accepts connections and relays them to the gRPC server at the socket that `relay_to` names.

    places: how many connections at most.
    """

    def __init__(self, places: int | None = None) -> None:
        self._server = contextlib.ExitStack()
        self._server_path = ""
        self._places = fitting_places() if places is None else places
        self._connections: set[Connection] = set()
        self._by_name: dict[str, Connection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    def now_s(self) -> float:
        """The clock by which connections are idle."""
        return self._loop.time()

    def relay_to(self, server: Path) -> None:
        """Relay to the gRPC server that listens at this socket, from now on also without its file:
        a file would stay behind where the process is killed. Raises OSError."""
        self._server.close()
        descriptor = os.open(server, os.O_PATH | os.O_CLOEXEC)
        self._server.callback(os.close, descriptor)
        self._server_path = f"/proc/self/fd/{descriptor}"

    def start(self, listeners: list[socket.socket]) -> None:
        """Accept from these sockets, which the gate closes in the end."""
        self._tasks = [asyncio.create_task(self._accept(each)) for each in listeners]
        self._tasks.append(asyncio.create_task(self._sweep()))

    async def stop_accepting(self) -> None:
        """Accept no more; the connections that there are go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End the connections, once the clients have what the gRPC server sent before it ended."""
        if self._connections:
            await asyncio.sleep(_LAST_BYTES_S)
        for connection in list(self._connections):
            connection.close()
        self._server.close()

    def connection(self, name: str) -> Connection | None:
        """The connection of this name; gRPC calls its peer so."""
        return self._by_name.get(name)

    def introduce(self, connection: Connection) -> None:
        """gRPC knows it by its name now."""
        self._by_name[connection.name] = connection

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self._connections.discard(connection)
        self._by_name.pop(connection.name, None)

    async def open_server(self) -> tuple[str, socket.socket]:
        """A new connection to the gRPC server, and what that calls its peer. Raises OSError."""
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            ours.setblocking(False)
            ours.bind("")  # the kernel gives it a name that no other socket has
            await self._loop.sock_connect(ours, self._server_path)
        except BaseException:
            ours.close()
            raise
        return f"unix-abstract:{ours.getsockname()[1:].decode()}", ours

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                # A connection that is reset while it waits is no reason to stop.
                with contextlib.suppress(OSError):
                    client, address = await self._loop.sock_accept(listener)
                    await self._admit(client, peer_of(address))
                await asyncio.sleep(_PAUSE_S)

    async def _admit(self, client: socket.socket, peer: str) -> None:
        if len(self._connections) >= self._places and not self._make_room():
            client.close()
            return
        connection = Connection(self, peer)
        self._connections.add(connection)
        try:
            await self._loop.connect_accepted_socket(lambda: connection, client)
        except OSError:
            self.forget(connection)
            client.close()

    def _make_room(self) -> bool:
        """Whether a connection without a call could be closed."""
        idle = [each for each in self._connections if not each.calls]
        held = Counter(each.peer for each in self._connections)
        if not idle:
            return False
        goes = max(idle, key=lambda each: (not each.has_sent, held[each.peer], -each.since_s))
        self.forget(goes)
        goes.close()
        return True

    async def _sweep(self) -> None:
        """Close what is without a call for too long."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            for each in list(self._connections):
                allowed_s = IDLE_S if each.called else FIRST_CALL_S
                if not each.calls and self.now_s() - each.since_s > allowed_s:
                    each.close()


def fitting_places() -> int:
    """How many connections the process can afford beside the descriptors that are reserved."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return PLACES
    return min(PLACES, max(_FEWEST_PLACES, (files - _RESERVED_DESCRIPTORS) // _DESCRIPTORS))


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets at all addresses of the host, with the same port. A wildcard is one for both
    families. Raises OSError."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  # what the settings name, with certificates
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or host == "::" else socket.AF_INET
        wildcard = "::" if family == socket.AF_INET6 else host
        return [_bound(family, wildcard, port, dualstack=both)]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = {(family, str(address[0])) for family, _, _, _, address in found}
    listeners: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in sorted(addresses):
        try:
            listeners.append(_bound(family, address, port))
        except OSError as error:
            # A machine may know ::1 by name without having IPv6; a port in use is another matter.
            problem = error
            continue
        port = listeners[0].getsockname()[1]
    if not listeners:
        raise problem or OSError(f"{host} has no address")
    return listeners


def listen_unix(path: Path) -> socket.socket:
    """A socket at this path, in place of one that was left behind, for this user and its group.
    Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode) and not _is_served(path):
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(0o660)  # nobody can connect before it listens
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def peer_of(address: object) -> str:
    """Whose connection it is, by the address that it comes from: an IPv6 host has a whole /64."""
    if not isinstance(address, tuple):
        return THIS_MACHINE
    found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return THIS_MACHINE
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def _bound(family: int, host: str, port: int, *, dualstack: bool = False) -> socket.socket:
    listener = socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dualstack
    )
    listener.setblocking(False)
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(str(path))
        except OSError:
            return False
    return True
