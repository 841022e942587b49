"""What every server needs before they see a connection: sockets, peers, and a pace of accepting."""

import asyncio
import errno
import fcntl
import ipaddress
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from leadline_controller.api.settings import ListenAddress

THIS_MACHINE = "this machine"
_BACKLOG = 512
# A flood of connections, one at a time, takes 2 % of the scheduler's event loop.
_PAUSE_S = 0.005
_LOCK_TRIES, _LOCK_TRY_S = 20, 0.05


async def listen(settings: ListenAddress) -> tuple[list[socket.socket], str]:
    """Listen. Returns the sockets, and the address with the actual port; raises OSError."""
    if settings.unix_path is not None:
        return [listen_unix(settings.unix_path)], settings.address
    listeners = await listen_tcp(settings.host, settings.port)
    host = settings.address.rpartition(":")[0]
    return listeners, f"{host}:{listeners[0].getsockname()[1]}"


async def listen_tcp(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of the host with the same port; a wildcard address gets one socket
    for IPv4 and IPv6. Raises OSError."""
    both = host in ("0.0.0.0", "::") and socket.has_dualstack_ipv6()  # noqa: S104  # as it is set
    found = await asyncio.get_running_loop().getaddrinfo(
        "::" if both else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in sorted({(family, str(each[0])) for family, _, _, _, each in found}):
        try:
            listener = socket.create_server(
                (address, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
            )
        except OSError as error:
            # The hosts file may name ::1 on a machine without IPv6.
            problem = error
            continue
        listener.setblocking(False)
        listeners.append(listener)
        port = listener.getsockname()[1]
    if not listeners:
        raise problem or OSError(f"{host} has no address")
    return listeners


def listen_unix(path: Path) -> socket.socket:
    """Listen at this path, for this user and its group; replaces a socket that nobody serves.
    Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        # One at a time: between bind and listen, a socket looks as if nobody served it.
        with _locked(path.parent):
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(path.stat().st_mode) and _is_abandoned(path):
                    path.unlink()
            listener.bind(str(path))
            path.chmod(0o660)  # before anyone can connect
            listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def unlink_own(path: Path, ours: tuple[int, int]) -> None:
    """Remove the socket file unless another program has put its own there. ours: as `file_id` said
    after it was made."""
    with suppress(OSError), _locked(path.parent):
        if file_id(path) == ours:
            path.unlink()


def file_id(path: Path) -> tuple[int, int]:
    """Device and inode. Raises OSError."""
    found = path.stat()
    return found.st_dev, found.st_ino


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others of us out of the folder. Whoever may read it can hold the lock for ever, so after
    a second it goes on without."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(_LOCK_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOCK_TRY_S)
        yield
    finally:
        os.close(handle)


def _is_abandoned(path: Path) -> bool:
    """Whether the kernel refuses connections, as nobody listens. A server that is stopped or has a
    full queue serves it, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        return asking.connect_ex(str(path)) == errno.ECONNREFUSED


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
