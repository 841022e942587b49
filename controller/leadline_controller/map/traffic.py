"""The map's JSON of who talks to whom: the largest edges, and what each link between two boards
carries of all of them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any

import numpy as np
from leadline_wire.v1 import traffic_pb2 as pb

from leadline_controller.framework.model import NODE_PEER
from leadline_controller.inspect.traffic import ReadEdge, TrafficReader
from leadline_controller.map import documents
from leadline_controller.map.documents import Json, known, number

MOST_EDGES, MOST_LINES = 300, 300
# Of one edge, and of one line.
_MOST_BOARDS, _MOST_NAMED = 16, 5


@dataclass(slots=True)
class _Line:
    """What a link between two boards carries."""

    counted_mbps: float = 0.0
    declared_mbps: float = 0.0
    edges: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def mbps(self) -> float:
        return self.counted_mbps + self.declared_mbps


def document(reader: TrafficReader, at_unix_s: float) -> bytes:
    """The answer about all boards: the edges with the most traffic, and the lines of these."""
    edges = list(reader.read(most=MOST_EDGES))
    lines = _lines(edges)
    largest = nlargest(MOST_LINES, lines, key=lambda pair: lines[pair].mbps)
    ends = np.array(largest, dtype=np.int64).reshape(-1, 2)
    capacities = reader.capacity_mbps(ends[:, 0], ends[:, 1]).tolist()
    drawn = (
        _line(sorted((reader.name(pair[0]), reader.name(pair[1]))), lines[pair], mbps)
        for pair, mbps in zip(largest, capacities, strict=True)
    )
    head = {
        "at_unix_s": at_unix_s,
        **_reporting(reader),
        "edges_total": reader.count(),
        "lines_total": len(lines),
    }
    shown = (edge(each.message) for each in edges)
    return documents.encode_long(head, edges=shown, lines=drawn)


def of_board(reader: TrafficReader, name: str) -> Json:
    """The edges in which a board, or a pod on it, takes part."""
    edges = [edge(each.message) for each in reader.read(f"{NODE_PEER}{name}", MOST_EDGES)]
    return {"traffic": {**_reporting(reader), "edges": edges}}


def edge(message: pb.TrafficEdge) -> Json:
    """An edge as tables have it."""

    return {
        "source": message.source,
        "destination": message.destination,
        "port": message.port or None,
        "mbps": number(message.minute.mbps) if message.HasField("minute") else None,
        "hour_mbps": number(message.hour.mbps) if message.HasField("hour") else None,
        "declared_mbps": known(message, "declared_mbps"),
        "requests_per_s": [
            known(message, "requests_least_per_s"),
            known(message, "requests_most_per_s"),
        ],
        "rtt_ms": known(message, "rtt_ms"),
        "best_rtt_ms": known(message, "best_rtt_ms"),
        "best_node": message.best_node or None,
        "moves": message.moves or None,
        "share": known(message, "link_share"),
        "one_sided": message.one_sided,
        "age_s": known(message, "age_s"),
        "source_nodes": _some(message.source_nodes),
        "destination_nodes": _some(message.destination_nodes),
    }


def _reporting(reader: TrafficReader) -> Json:
    found = reader.response_head()
    return {
        "reporting": list(found.nodes),
        "report_age_s": number(found.report_age_s) if found.HasField("report_age_s") else None,
    }


def _some(nodes: Mapping[str, int]) -> list[Any]:
    """The boards with the most pods of an end: [name, pods]."""
    return [list(each) for each in nlargest(_MOST_BOARDS, nodes.items(), key=lambda x: x[1])]


def _lines(edges: Iterable[ReadEdge]) -> dict[tuple[int, int], _Line]:
    """By the indexes of both boards, a < b."""
    found: dict[tuple[int, int], _Line] = {}
    for message, links, mbps in edges:
        is_counted = message.HasField("age_s")
        for a, b, part in zip(*(each.tolist() for each in links), strict=True):
            line = found.setdefault((a, b), _Line())
            if is_counted:
                line.counted_mbps += mbps * part
            else:
                line.declared_mbps += mbps * part
            line.edges.append((mbps * part, message.source, message.destination))
    return found


def _line(boards: list[str], line: _Line, capacity_mbps: float) -> Json:
    is_counted = line.counted_mbps > 0.0
    share = (
        min(1.0, line.counted_mbps / capacity_mbps)
        if is_counted and capacity_mbps > 0.0
        else math.nan
    )
    return {
        "a": boards[0],
        "b": boards[1],
        "mbps": number(line.mbps),
        "share": number(share),
        "source": "counted" if is_counted else "declared",
        "edges": [list(each[1:]) for each in nlargest(_MOST_NAMED, line.edges)],
        "edges_total": len(line.edges),
    }
