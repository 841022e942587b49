"""The boards' counts of connections, kept until the graph of the traffic takes them.

The MQTT thread adds and the graph's thread takes, hence the lock. Times are seconds on the
controller's monotonic clock.
"""

from collections import deque
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from math import inf
from threading import Lock

from leadline_wire.v1 import telemetry_pb2 as pb

# A board counts for a minute; half of it is what a late start and a slow network explain.
_LEAST_GAP_S = 30.0
_OLDEST_S = 600.0
# Of each board, between two turns of the graph. After an outage a board sends those of ten minutes.
_KEPT = 12
_MOST_BOARDS = 20_000  # whoever reaches the broker may invent boards


@dataclass(frozen=True, slots=True)
class CountedFlow:
    """What the wire's Flow is, with addresses as text in canonical form."""

    source: str
    destination: str
    port: int
    bytes_sent: int
    bytes_received: int
    packets_sent: int
    packets_received: int
    connections: int
    translated_source: str = ""  # what the destination sees as the source, "" if the same
    translated: bool = False  # the board translated the destination


@dataclass(frozen=True, slots=True)
class BoardTraffic:
    """What one board counted in the `duration_s` seconds before `counted_s`."""

    node: str
    counted_s: float
    duration_s: float
    flows: tuple[CountedFlow, ...]
    omitted_bytes: int = 0  # of flows that are smaller than all of `flows`

    @classmethod
    def of(cls, node: str, counted_s: float, message: pb.TrafficReport) -> "BoardTraffic":
        """That of a message whose addresses the codec has checked."""
        flows = tuple(map(_flow, message.flows))
        return cls(node, counted_s, message.duration_ms / 1000, flows, message.omitted_bytes)


class TrafficReports:
    """The newest reports of each board that nobody has taken yet."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[str, deque[BoardTraffic]] = {}
        self._newest_s: dict[str, float] = {}

    def comes_too_soon(self, node: str, counted_s: float) -> bool:
        """Whether a report of this board that ends then repeats or overlaps the last one."""
        with self._lock:
            return counted_s - self._newest_s.get(node, -inf) < _LEAST_GAP_S

    def add(self, report: BoardTraffic) -> None:
        """Keep a report until the graph takes it. Of too many the oldest of its board is lost, or
        the report itself if there are too many boards."""
        with self._lock:
            if report.node not in self._newest_s and len(self._newest_s) >= _MOST_BOARDS:
                return
            self._newest_s[report.node] = report.counted_s
            self._waiting.setdefault(report.node, deque(maxlen=_KEPT)).append(report)

    def is_empty(self) -> bool:
        """Whether none waits."""
        return not self._waiting

    def take(self, now_s: float) -> list[BoardTraffic]:
        """All that wait and are at most ten minutes old, of each board in their order. Boards that
        are silent are forgotten."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
            self._newest_s = {
                node: at_s for node, at_s in self._newest_s.items() if now_s - at_s <= _OLDEST_S
            }
        of_all = (report for reports in taken.values() for report in reports)
        return [report for report in of_all if now_s - report.counted_s <= _OLDEST_S]


def _flow(flow: pb.Flow) -> CountedFlow:
    return CountedFlow(
        _address(flow.source),
        _address(flow.destination),
        flow.port,
        flow.bytes_sent,
        flow.bytes_received,
        flow.packets_sent,
        flow.packets_received,
        flow.connections,
        _address(flow.translated_source) if flow.translated_source else "",
        flow.translated,
    )


def _address(packed: bytes) -> str:
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
