"""What every server needs before they see a connection: sockets, peers, and a pace of accepting."""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from leadline_controller.serve.settings import ListenAddress

THIS_MACHINE = "this machine"
_BACKLOG = 512
# A flood of connections, one at a time, takes 2 % of the scheduler's event loop.
_PAUSE_S = 0.005


async def listen(settings: ListenAddress) -> tuple[list[socket.socket], str]:
    """Listen. Returns the sockets, and the address with the actual port; raises OSError."""
    listeners = await listen_tcp(settings.host, settings.port)
    host = settings.address.rpartition(":")[0]
    return listeners, f"{host}:{listeners[0].getsockname()[1]}"


async def listen_tcp(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of the host with the same port; a wildcard address gets one socket
    for IPv4 and IPv6. Raises OSError."""
    both = host in ("0.0.0.0", "::") and socket.has_dualstack_ipv6()  # noqa: S104  # as it is set
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            "::" if both else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError:  # such as a..b
        raise OSError(errno.EINVAL, f"{host} is no name of a host") from None
    listeners: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in sorted({(family, str(each[0])) for family, _, _, _, each in found}):
        try:
            listener = socket.create_server(
                (address, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # who connects there would reach another program
                for each in listeners:
                    each.close()
                raise
            # The hosts file may name ::1 on a machine without IPv6.
            problem = error
            continue
        listener.setblocking(False)
        listeners.append(listener)
        port = listener.getsockname()[1]
    if not listeners:
        raise problem or OSError(f"{host} has no address")
    return listeners


def peer_of(address: object) -> str:
    """The peer that connections are counted for: this machine, an IPv4 address or an IPv6 /64,
    which belongs to one host."""
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


async def accept(
    listener: socket.socket,
    admit: Callable[[socket.socket, object], Awaitable[None]],
    at_once: int = 1,
) -> None:
    """Pass each new connection with its address to `admit`, until cancelled; then close the
    listener. at_once: how many before the others are served again for 5 ms."""
    loop = asyncio.get_running_loop()
    with listener:
        while True:
            for _ in range(at_once):
                # A connection may be reset while it waits to be accepted.
                with suppress(OSError):
                    await admit(*await loop.sock_accept(listener))
            await asyncio.sleep(_PAUSE_S)


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
