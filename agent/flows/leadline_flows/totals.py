"""Adds up what connections carry, by source, destination and port: pure, no clock and no socket.

Each byte of a connection counts once: as the difference between two dumps, or between the last dump
and its end. What cannot be remembered is left for the connection's end.
"""

from collections.abc import Iterable
from typing import NamedTuple

from leadline_flows.conntrack import COUNTERS, Connection, ends

# That are remembered, about 150 bytes each. A connection of TCP that has been closed stays in the
# kernel's table for two minutes more.
MOST_CONNECTIONS = 32_768
MOST_PAIRS = 4_096  # added up in one period
MOST_FLOWS = 64  # told of one period
# What they carry is counted by itself: VXLAN's two ports and WireGuard's, which flannel uses.
TUNNEL_PORTS = frozenset((4789, 8472, 51820, 51821))
TUNNEL_PROTOCOLS = frozenset((4, 41, 47, 50))  # IP in IP, GRE, ESP
UDP = 17
_NOTHING = bytes(COUNTERS.size)


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
    packets_sent: int
    bytes_sent: int
    packets_received: int
    bytes_received: int
    connections: int  # that began


class Period(NamedTuple):
    """What was counted since the last call: the flows with the most bytes first, and all other
    bytes."""

    flows: list[Flow]
    omitted_bytes: int


def pair_of(connection: Connection) -> Pair | None:
    """Whom a connection is counted for; None if it never leaves one host, goes to many, or is a
    tunnel, whose contents are counted by themselves."""
    asked, answer = ends(connection.original), ends(connection.reply)
    if asked is None or answer is None:
        return None
    source, destination, port = asked.source, answer.source, answer.source_port
    if source == destination or any(map(_is_local, (source, destination))):
        return None
    if _is_multicast(destination) or asked.protocol in TUNNEL_PROTOCOLS:
        return None
    if asked.protocol == UDP and port in TUNNEL_PORTS:
        return None
    seen = None if answer.destination == source else answer.destination
    is_translated = (asked.destination, asked.port) != (destination, port)
    return Pair(source, destination, port, seen, is_translated)


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
        # Of each connection its last counters, and in one byte more the last dump that had it.
        self._remembered: dict[int, bytes] = {}
        self._dump = b"\0"
        self._just_ended: frozenset[int] = frozenset()
        self._sums: dict[Pair, list[int]] = {}
        self._omitted_bytes = 0
        self.uncounted = 0  # connections that began in this period and that the kernel counts not

    def begin(self, connections: Iterable[Connection]) -> None:
        """The dump to begin with: what these have carried so far is not counted."""
        for each in connections:
            if len(self._remembered) < self._most_connections:
                self._remembered[each.key] = (each.counters or _NOTHING) + self._dump

    def see(self, connections: Iterable[Connection]) -> None:
        """Count a dump: what has been carried since the last one."""
        before, self._dump = self._dump, bytes(((self._dump[0] + 1) % 256,))
        for each in connections:
            key = each.key
            # The kernel announces an end a moment before it leaves the table. If it is the next
            # connection of the same name, that is counted with the next dump.
            if key in self._just_ended:
                continue
            known = self._remembered.get(key)
            if known is None and len(self._remembered) >= self._most_connections:
                continue  # counted when it ends
            self._remembered[key] = self._count(each, known) + self._dump
        # The news of an end comes soon after the first dump without the connection, or was lost.
        kept = (before[0], self._dump[0])
        for key in [key for key, known in self._remembered.items() if known[-1] not in kept]:
            del self._remembered[key]

    def end(self, connections: Iterable[Connection]) -> None:
        """Count connections that have ended, with their last counters."""
        ended = []
        for each in connections:
            self._count(each, self._remembered.pop(each.key, None))
            ended.append(each.key)
        self._just_ended = frozenset(ended)

    def take(self) -> Period:
        """What was counted since the last call."""
        flows = [Flow(pair, *sums) for pair, sums in self._sums.items()]
        flows.sort(key=_bytes, reverse=True)
        omitted_bytes = self._omitted_bytes + sum(map(_bytes, flows[MOST_FLOWS:]))
        self._sums, self._omitted_bytes, self.uncounted = {}, 0, 0
        return Period(flows[:MOST_FLOWS], omitted_bytes)

    def _count(self, connection: Connection, known: bytes | None) -> bytes:
        """Add what is new since then; returns the counters to remember."""
        counters = connection.counters
        if counters is None:
            self.uncounted += known is None
            return _NOTHING
        if known and known.startswith(counters):
            return counters
        after, before = COUNTERS.unpack(counters), COUNTERS.unpack_from(known or _NOTHING)
        is_new = known is None
        if any(new < old for new, old in zip(after, before, strict=True)):
            # It is a new connection of the same name.
            is_new, before = True, (0, 0, 0, 0)
        if pair := pair_of(connection):
            sums = self._sums.get(pair)
            if sums is None and len(self._sums) < self._most_pairs:
                sums = self._sums[pair] = [0, 0, 0, 0, 0]
            if sums is None:
                self._omitted_bytes += after[1] - before[1] + after[3] - before[3]
            else:
                for at, (new, old) in enumerate(zip(after, before, strict=True)):
                    sums[at] += new - old
                sums[4] += is_new
        return counters


def _bytes(flow: Flow) -> int:
    return flow.bytes_sent + flow.bytes_received
