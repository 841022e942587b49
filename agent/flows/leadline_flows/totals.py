"""Adds up what connections carry, by source, destination and port: pure, no clock and no socket.

Each byte of a connection counts once: as the difference between two dumps, or between the last dump
and its end. What cannot be remembered is left for the connection's end.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from leadline_flows.conntrack import Connection, Counters

# That are remembered, about 150 bytes each. A connection of TCP that has been closed stays in the
# kernel's table for two minutes more.
MOST_CONNECTIONS = 32_768
MOST_PAIRS = 4_096  # added up in one period
MOST_FLOWS = 64  # told of one period
# What they carry is counted by itself: VXLAN's two ports and WireGuard's, which flannel uses.
TUNNEL_PORTS = frozenset((4789, 8472, 51820, 51821))
TUNNEL_PROTOCOLS = frozenset((4, 41, 47, 50))  # IP in IP, GRE, ESP
UDP = 17
_COUNTERS = struct.Struct("=4Q")  # a third of the memory of four numbers
_NOTHING = bytes(_COUNTERS.size)


class Pair(NamedTuple):
    """Who talks to whom. Addresses have 4 or 16 bytes."""

    source: bytes  # who opened the connection, before any translation
    destination: bytes  # who answers, after it
    port: int  # where it answers; 0 for a protocol without ports
    translated_source: bytes | None  # what the destination sees, if that is another address
    translated: bool  # the opener asked for another address or port


class Flow(NamedTuple):
    """What one pair carried in a period, with the headers of IP."""

    pair: Pair
    counters: Counters
    connections: int  # that began


class Period(NamedTuple):
    """What was counted since the last call: the flows with the most bytes first, and all other
    bytes."""

    flows: list[Flow]
    omitted_bytes: int


def pair_of(connection: Connection) -> Pair | None:
    """Whom a connection is counted for; None if it never leaves one host, goes to many, or is a
    tunnel, whose contents are counted by themselves."""
    source, destination = connection.source, connection.reply_source
    if source == destination or any(map(_is_local, (source, destination))):
        return None
    if _is_multicast(destination) or connection.protocol in TUNNEL_PROTOCOLS:
        return None
    if connection.protocol == UDP and connection.reply_port in TUNNEL_PORTS:
        return None
    seen = connection.reply_destination
    return Pair(
        source,
        destination,
        connection.reply_port,
        None if seen == source else seen,
        (connection.destination, connection.port) != (destination, connection.reply_port),
    )


def _is_local(address: bytes) -> bool:
    return address[0] == 127 if len(address) == 4 else address == b"\0" * 15 + b"\1"


def _is_multicast(address: bytes) -> bool:
    if len(address) == 16:
        return address[0] == 0xFF
    return 224 <= address[0] < 240 or address == b"\xff" * 4


class Totals:
    """The sums of the current period, and the last counters of each connection."""

    def __init__(
        self, most_connections: int = MOST_CONNECTIONS, most_pairs: int = MOST_PAIRS
    ) -> None:
        self._most_connections, self._most_pairs = most_connections, most_pairs
        self._remembered: dict[int, bytes] = {}
        self._unseen: dict[int, bytes] = {}  # that the last dump has missed
        self._just_ended: frozenset[int] = frozenset()
        self._sums: dict[Pair, list[int]] = {}
        self._omitted_bytes = 0
        self.uncounted = 0  # connections that began in this period and that the kernel counts not

    def begin(self, connections: Iterable[Connection]) -> None:
        """The dump to begin with: what these have carried so far is not counted."""
        for each in connections:
            if len(self._remembered) < self._most_connections:
                counters = each.counters
                self._remembered[each.key] = _COUNTERS.pack(*counters) if counters else _NOTHING

    def see(self, connections: Iterable[Connection]) -> None:
        """Count a dump: what has been carried since the last one."""
        known, self._remembered = self._remembered, {}
        for each in connections:
            key = each.key
            # The kernel announces an end a moment before it leaves the table. If it is the next
            # connection of the same name, that is counted with the next dump.
            if key in self._just_ended:
                continue
            before = known.pop(key, None) or self._unseen.pop(key, None)
            before = before or self._remembered.get(key)
            remembered = len(self._remembered) + len(known) + len(self._unseen)
            if before is None and remembered >= self._most_connections:
                continue  # counted when it ends
            self._remembered[key] = self._count(each, before)
        # The news of an end comes soon after the dump that misses the connection, or was lost.
        self._unseen = known

    def end(self, connections: Iterable[Connection]) -> None:
        """Count connections that have ended, with their last counters."""
        ended = []
        for each in connections:
            key = each.key
            self._count(each, self._remembered.pop(key, None) or self._unseen.pop(key, None))
            ended.append(key)
        self._just_ended = frozenset(ended)

    def take(self) -> Period:
        """What was counted since the last call."""
        flows = [
            Flow(pair, Counters(*sums[:4]), sums[4])
            for pair, sums in self._sums.items()
            if any(sums)
        ]
        flows.sort(key=_bytes, reverse=True)
        omitted_bytes = self._omitted_bytes + sum(map(_bytes, flows[MOST_FLOWS:]))
        self._sums, self._omitted_bytes, self.uncounted = {}, 0, 0
        return Period(flows[:MOST_FLOWS], omitted_bytes)

    def _count(self, connection: Connection, remembered: bytes | None) -> bytes:
        """Add what is new since then; returns what to remember."""
        after = connection.counters
        if after is None:
            self.uncounted += remembered is None
            return _NOTHING
        packed = _COUNTERS.pack(*after)
        if packed == remembered:
            return packed
        before = _COUNTERS.unpack(remembered or _NOTHING)
        is_new = remembered is None
        if any(new < old for new, old in zip(after, before, strict=True)):
            # It is a new connection of the same name.
            is_new, before = True, (0, 0, 0, 0)
        if pair := pair_of(connection):
            sums = self._sums.get(pair)
            if sums is None and len(self._sums) < self._most_pairs:
                sums = self._sums[pair] = [0, 0, 0, 0, 0]
            if sums is None:
                self._omitted_bytes += after.bytes_sent - before[1]
                self._omitted_bytes += after.bytes_received - before[3]
            else:
                for at, (new, old) in enumerate(zip(after, before, strict=True)):
                    sums[at] += new - old
                sums[4] += is_new
        return packed


def _bytes(flow: Flow) -> int:
    return flow.counters.bytes_sent + flow.counters.bytes_received
