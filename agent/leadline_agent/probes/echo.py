"""One ICMP echo, which ping3 builds, sends and reads, with the kernel's times.

ping3 itself reads the clock before it computes the checksum and after it has woken up: tens of
microseconds beside a packet's own few, and a millisecond on a busy board. So it gets a socket that
notes when the kernel handed the request to the interface and when it received the reply (see
socket(7) and the kernel's networking/timestamping.rst). What a kernel does not stamp, as under
emulation, is read from the clock next to the system call.

All of these are times of the wall clock, so an echo during which it was set is discarded.
"""

import os
import select
import socket
import struct
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import ping3

TIMEOUT_S = 1.0
# The thread may be preempted between the readings of the two clocks.
CLOCK_TOLERANCE_NS = 20_000
CLOCK_TOLERANCE_SHARE = 0.001  # NTP slews by 500 ppm
_PAYLOAD_BYTES = 56  # as ping sends
# sys/socket.h on all architectures that Leadline supports; Python does not name them. The unit of
# each one's times, in ns; they begin with seconds.
_SO_TIMESTAMP, _SO_TIMESTAMPNS, _SO_TIMESTAMPING = 29, 35, 37
_UNITS_NS = {_SO_TIMESTAMP: 1000, _SO_TIMESTAMPNS: 1, _SO_TIMESTAMPING: 1}
_TIME = struct.Struct("@ll")
# linux/net_tstamp.h: TX_SOFTWARE, which few drivers lack, SOFTWARE, TX_SCHED, which comes a little
# earlier and from all, and OPT_TSONLY: without the packet.
_SENT = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 11
_ANCILLARY_BYTES = 512


class ClockSetError(Exception):
    """The wall clock was set during an echo, so there is no measurement."""


class TimedSocket(socket.socket):
    """An ICMP socket for one echo to one peer; others' packets are not received.

    sent_ns, received_ns: when the request left and the last packet came, on the wall clock.
    """

    sent_ns = received_ns = 0
    _peer: str
    _until_s: float

    def prepare(self, address: str, timeout_s: float) -> None:
        """Ask the kernel for times, and choose the peer. Raises OSError without a route."""
        for option in (_SO_TIMESTAMPNS, _SO_TIMESTAMP):
            with suppress(OSError):
                self.setsockopt(socket.SOL_SOCKET, option, 1)
                break
        with suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _SENT)
        self.connect((address, 0))
        self._peer = str(ip_address(address))
        self._until_s = time.monotonic() + timeout_s

    def sendto(self, *arguments: Any) -> int:
        """Send, and note when."""
        self.sent_ns = time.time_ns()
        return super().sendto(*arguments)

    def recvfrom(self, size: int, _flags: int = 0, /) -> tuple[bytes, Any]:
        """The next packet of the peer, however long others send. Raises TimeoutError."""
        while (left_s := self._until_s - time.monotonic()) > 0:
            self._read_sent()  # select takes it for a packet
            try:
                data, ancillary, _, source = self.recvmsg(
                    size, _ANCILLARY_BYTES, socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                select.select([self], [], [], left_s)
                continue
            if source[0] == self._peer:
                self.received_ns = _time_ns(ancillary) or time.time_ns()
                return data, source
        raise TimeoutError

    def _read_sent(self) -> None:
        """The kernel's time of sending, from the error queue: the last is the closest."""
        with suppress(BlockingIOError):
            while True:
                _, ancillary, _, _ = self.recvmsg(
                    0, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT
                )
                self.sent_ns = max(self.sent_ns, _time_ns(ancillary))


def icmp_permitted() -> bool:
    """Whether this process may send ICMP echoes, through CAP_NET_RAW or ping_group_range."""
    try:
        _open(socket.AF_INET).close()
    except OSError:
        return False
    return True


def keep_stamping() -> socket.socket:
    """While this socket is open, the kernel stamps packets as they arrive. It begins that a little
    after it is asked; until then a packet's time is when it is read."""
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with suppress(OSError):
        keeper.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return keeper


def echo_ms(address: str, sequence: int) -> float | None:
    """Send one echo. Milliseconds, None without a reply. Raises ClockSetError."""
    lead_ns, begin_ns = _lead_ns(), time.monotonic_ns()
    identifier = int.from_bytes(os.urandom(2)) | 1  # ping3 takes none that is 0
    try:
        with _open(socket.AF_INET6 if ":" in address else socket.AF_INET) as line:
            line.prepare(address, TIMEOUT_S)
            ping3.send_one_ping(line, address, identifier, sequence, _PAYLOAD_BYTES)
            ping3.receive_one_ping(line, identifier, sequence, TIMEOUT_S)
            rtt_ns = line.received_ns - line.sent_ns
    except Exception:  # noqa: BLE001 - ping3 raises on malformed replies, which anybody may send
        rtt_ns = None  # so is no route; whether echoes are permitted was checked at the start
    took_ns = time.monotonic_ns() - begin_ns
    if clock_was_set(_lead_ns() - lead_ns, took_ns):
        raise ClockSetError
    if rtt_ns is None:
        return None
    if not 0 < rtt_ns <= took_ns:
        raise ClockSetError
    return rtt_ns / 1e6


def clock_was_set(moved_ns: int, took_ns: int) -> bool:
    """Whether the wall clock moved, against the monotonic one, by more than preemption and NTP
    slewing explain."""
    return abs(moved_ns) > CLOCK_TOLERANCE_NS + CLOCK_TOLERANCE_SHARE * took_ns


def _open(family: socket.AddressFamily) -> TimedSocket:
    protocol = socket.IPPROTO_ICMPV6 if family == socket.AF_INET6 else socket.IPPROTO_ICMP
    try:
        return TimedSocket(family, socket.SOCK_RAW, protocol)
    except PermissionError:
        return TimedSocket(family, socket.SOCK_DGRAM, protocol)


def _time_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The kernel's time in a message, 0 without one."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind in _UNITS_NS:
            seconds, rest = _TIME.unpack_from(data)
            return int(seconds * 1_000_000_000 + rest * _UNITS_NS[kind])
    return 0


def _lead_ns() -> int:
    """By how much the wall clock is ahead of the monotonic one; preemption makes it less."""
    return max(time.time_ns() - time.monotonic_ns() for _ in range(3))
