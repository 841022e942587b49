"""Reads the kernel's connection tracking by netlink: all connections, and each one that ends.

The layout is that of linux/netlink.h and linux/netfilter/nfnetlink_conntrack.h. What the kernel
says is read by pure functions that any bytes leave standing.
"""

import errno
import os
import socket
import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

NETLINK_NETFILTER = 12
SUBSYSTEM = 1 << 8  # NFNL_SUBSYS_CTNETLINK
GET, DELETE = SUBSYSTEM | 1, SUBSYSTEM | 2  # IPCTNL_MSG_CT_GET, _DELETE
NEW = SUBSYSTEM  # IPCTNL_MSG_CT_NEW: what a dump answers with
DESTROY_GROUP = 1 << 2  # NFNLGRP_CONNTRACK_DESTROY is the third
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER_BYTES = 4 << 20  # about 3,000 ends of connections between two readings
MOST_MESSAGE_BYTES = 1 << 16
TIMEOUT_S = 10.0  # a dump's next part comes at once, or never
MOST_TRIES = 5  # of a dump that the kernel calls inconsistent
_HEADER, _FAMILY = struct.Struct("=IHHII"), struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
_PORT = struct.Struct(">H")
_ERROR_TYPE, _DONE_TYPE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_REQUEST, _DUMP, _INTERRUPTED = 0x1, 0x300, 0x10  # NLM_F_REQUEST, _DUMP, _DUMP_INTR
_TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
# CTA_*
_ORIGINAL, _REPLY, _SENT, _RECEIVED, _ID = 1, 2, 9, 10, 12
_ADDRESSES, _PROTOCOL = 1, 2  # CTA_TUPLE_IP, _PROTO


class ConntrackError(Exception):
    """The kernel does not tell its connections; str() says why and what to do."""


class Ends(NamedTuple):
    """One direction of a connection. Addresses have 4 or 16 bytes; ports are 0 for a protocol
    without them."""

    protocol: int  # of IP, such as 6
    source: bytes
    destination: bytes
    source_port: int
    port: int  # of the destination


class Connection(NamedTuple):
    """One connection, as far as it must be read to see whether it has carried anything."""

    key: int  # differs from that of every other connection that lives
    original: bytes  # as its opener sends, for `ends`
    reply: bytes  # as the other end answers: not the reverse where this board translates addresses
    counters: bytes | None  # for `COUNTERS`; None where the kernel does not count


# Packets and bytes sent, packets and bytes received since the connection began, with the headers of
# IP. As bytes they take a third of the memory of four numbers.
COUNTERS = struct.Struct(">4Q")


def attributes(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(type, start, end) of each whole netlink attribute in data[start:end]."""
    end = min(end, len(data))
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < 4 or start + length > end:
            return
        yield kind & _TYPE_MASK, start + 4, start + length
        start += (length + 3) & ~3


def messages(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(type, flags, start, end) of the body of each whole netlink message in `data`."""
    start = 0
    while start + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, start)
        if length < _HEADER.size or start + length > len(data):
            return
        yield kind, flags, start + _HEADER.size, start + length
        start += (length + 3) & ~3


def connection(data: bytes, start: int, end: int) -> Connection | None:
    """The connection in the body of a message; None if it is none."""
    original = reply = number = b""
    sent = received = None
    for kind, at, to in attributes(data, start + _FAMILY.size, end):
        if kind == _ORIGINAL:
            original = data[at:to]
        elif kind == _REPLY:
            reply = data[at:to]
        elif kind == _SENT:
            sent = _counted(data, at, to)
        elif kind == _RECEIVED:
            received = _counted(data, at, to)
        elif kind == _ID:
            number = data[at:to]
    if not (original and reply):
        return None
    counters = None if sent is None or received is None else sent + received
    return Connection(hash(number + original), original, reply, counters)


def ends(data: bytes) -> Ends | None:
    """The ends of one direction of a connection; None if they are not two hosts."""
    source = destination = b""
    protocol = source_port = port = 0
    for kind, at, to in attributes(data, 0, len(data)):
        if kind == _ADDRESSES:
            source, destination = _addresses(data, at, to)
        elif kind == _PROTOCOL:
            protocol, source_port, port = _ports(data, at, to)
    if len(source) != len(destination) or len(source) not in (4, 16):
        return None
    return Ends(protocol, source, destination, source_port, port)


def _addresses(data: bytes, start: int, end: int) -> tuple[bytes, bytes]:
    source = destination = b""
    for kind, at, to in attributes(data, start, end):
        if kind in (1, 3):  # CTA_IP_V4_SRC, _V6_SRC
            source = data[at:to]
        elif kind in (2, 4):
            destination = data[at:to]
    return source, destination


def _ports(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """(protocol, source's port, destination's port)."""
    protocol = source_port = port = 0
    for kind, at, to in attributes(data, start, end):
        if kind == 1 and to - at == 1:  # CTA_PROTO_NUM
            protocol = data[at]
        elif kind == 2 and to - at == 2:  # CTA_PROTO_SRC_PORT
            (source_port,) = _PORT.unpack_from(data, at)
        elif kind == 3 and to - at == 2:
            (port,) = _PORT.unpack_from(data, at)
    return protocol, source_port, port


def _counted(data: bytes, start: int, end: int) -> bytes | None:
    """Packets and bytes of one direction, 8 bytes each."""
    packets = size = None
    for kind, at, to in attributes(data, start, end):
        if kind == 1 and to - at == 8:  # CTA_COUNTERS_PACKETS
            packets = data[at:to]
        elif kind == 2 and to - at == 8:  # CTA_COUNTERS_BYTES
            size = data[at:to]
    return None if packets is None or size is None else packets + size


class Conntrack:
    """Two netlink sockets: one that asks, and one that hears of the ends of connections."""

    def __init__(self) -> None:
        """Begin to listen. Raises ConntrackError."""
        self.has_lost_events = False
        try:
            self._events = _socket(DESTROY_GROUP)
            self._events.setblocking(False)
            self._dumps = _socket(0)
            self._dumps.settimeout(TIMEOUT_S)
        except OSError as error:
            raise ConntrackError(_explained(error.errno)) from None

    def ended(self) -> Iterator[Connection]:
        """The connections that have ended since the last call, with their last counters. Sets
        `has_lost_events` if the kernel could not keep them all. Raises ConntrackError."""
        while True:
            try:
                data = self._events.recv(MOST_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise ConntrackError(_explained(error.errno)) from None
                self.has_lost_events = True
                continue
            for kind, _, start, end in messages(data):
                if kind == DELETE and (found := connection(data, start, end)):
                    yield found

    def connections(self) -> Iterator[Connection]:
        """All connections. A dump that the kernel calls inconsistent begins anew, so one may come
        more than once. Raises ConntrackError."""
        for _ in range(MOST_TRIES):
            is_interrupted = yield from self._dump()
            if not is_interrupted:
                return

    def close(self) -> None:
        """Close the sockets."""
        self._events.close()
        self._dumps.close()

    def _dump(self) -> Generator[Connection, None, bool]:
        """Yields all connections; returns whether the kernel calls the dump inconsistent."""
        body = _FAMILY.pack(socket.AF_UNSPEC, 0, 0)  # of every family
        head = _HEADER.pack(_HEADER.size + len(body), GET, _REQUEST | _DUMP, 1, 0)
        is_interrupted = False
        try:
            self._dumps.send(head + body)
            while True:
                data = self._dumps.recv(MOST_MESSAGE_BYTES)
                for kind, flags, start, end in messages(data):
                    is_interrupted = is_interrupted or bool(flags & _INTERRUPTED)
                    if kind in (_DONE_TYPE, _ERROR_TYPE):
                        (number,) = _ERROR.unpack_from(data, start) if end - start >= 4 else (0,)
                        if number:
                            raise OSError(-number, os.strerror(-number))
                        return is_interrupted
                    if kind == NEW and (found := connection(data, start, end)):
                        yield found
        except OSError as error:
            raise ConntrackError(_explained(error.errno)) from None


def _socket(groups: int) -> socket.socket:
    made = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER
    )
    try:
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except OSError:  # without the right to it in the first user namespace
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    made.bind((0, groups))
    return made


def _explained(number: int | None) -> str:
    if number in (errno.EPERM, errno.EACCES):
        return "the kernel refuses: it takes CAP_NET_ADMIN; start it by its unit, or as root"
    if number in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL):
        return "the kernel has no connection tracking by netlink: modprobe nf_conntrack_netlink"
    return f"connection tracking: {os.strerror(number) if number else 'no answer in time'}"
