"""Reads what leadline-flows has counted: a file that it replaces once a minute.

The helper is another program, so its file is checked as anything from outside is: an entry that is
wrong costs itself alone.
"""

import json
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms
from leadline_agent.text import one_line, read_file

LOG = logging.getLogger(__name__)
MAX_FILE_BYTES = 64 * 1024  # 64 flows of IPv6 are 14 kB
MAX_REPORT_BYTES = 2000  # without origin and timing, which take 50
LEAST_PERIOD_MS = 50_000  # between two reports: one a minute at most, and a minute may come early


class TrafficReader:
    """Reads the file again and again; each content is reported once, and one a minute at most."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._least_ms = boot_ms()  # what is there already, an agent before this may have told

    def read(self) -> pb.TrafficReport | None:
        """What was counted, if that is news. What is wrong is logged."""
        try:
            table = _table(self._path)
            ended_ms = _count(table.get("boot_ms"), boot_ms())
            if ended_ms < self._least_ms:
                return None
            report = report_of(table, ended_ms)
        except OSError as error:
            why = error.strerror or str(error)
            LOG.warning("flows %s: %s; is leadline-flows running?", self._path, why)
            return None
        except (ValueError, RecursionError) as error:  # what is nested too deep raises the latter
            LOG.warning("flows %s: %s; it is left out", self._path, one_line(str(error)))
            return None
        self._least_ms = ended_ms + LEAST_PERIOD_MS
        return report


def report_of(table: dict[str, Any], ended_ms: int) -> pb.TrafficReport:
    """The report of what is in the file: the largest flows that fit, and the bytes of the others.

    ended_ms: when the counting ended, by the board's clock since boot. Raises ValueError.
    """
    report = pb.TrafficReport(
        timing=pb.Timing(measured_boot_ms=ended_ms),
        duration_ms=_count(table.get("duration_ms"), codec.MOST_FLOW_MS),
    )
    omitted_bytes = _count(table.get("omitted_bytes"), codec.MOST_FLOW_COUNT)
    size = report.ByteSize() + 10  # and the largest omitted_bytes
    for flow in sorted(_flows(table.get("flows")), key=_bytes, reverse=True):
        size += flow.ByteSize() + 2
        if size <= MAX_REPORT_BYTES and len(report.flows) < codec.MOST_FLOWS:
            report.flows.append(flow)
        else:
            omitted_bytes += _bytes(flow)
            size = MAX_REPORT_BYTES  # a smaller one does not take a larger one's place
    report.omitted_bytes = min(omitted_bytes, codec.MOST_FLOW_COUNT)
    return report


def _table(path: Path) -> dict[str, Any]:
    """The file's content. Raises OSError, ValueError."""
    found = json.loads(read_file(path, MAX_FILE_BYTES, os.O_NOFOLLOW))
    if not isinstance(found, dict) or found.get("version") != 1:
        raise ValueError("expected version 1 of leadline-flows' file")
    return found


def _flows(rows: object) -> Iterator[pb.Flow]:
    """The flows of the rows that are right. Raises ValueError if there are no rows."""
    if not isinstance(rows, list):
        raise ValueError("flows: expected a list")
    wrong = 0
    for row in rows:
        try:
            yield _flow(row)
        except (ValueError, TypeError):
            wrong += 1
    if wrong:
        LOG.warning("flows: %d of %d flows are none and are left out", wrong, len(rows))


def _flow(row: Sequence[Any]) -> pb.Flow:
    source, destination, port, sent, received, packets_sent, packets_received, *rest = row
    connections, translated_source, translated = rest
    if not isinstance(translated, bool):
        raise ValueError
    most = codec.MOST_FLOW_COUNT
    return pb.Flow(
        source=_address(source),
        destination=_address(destination),
        port=_count(port, 65_535),
        bytes_sent=_count(sent, most),
        bytes_received=_count(received, most),
        packets_sent=_count(packets_sent, most),
        packets_received=_count(packets_received, most),
        connections=_count(connections, codec.MOST_FLOW_CONNECTIONS),
        translated_source=b"" if translated_source is None else _address(translated_source),
        translated=translated,
    )


def _address(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, UnicodeError):
        raise ValueError from None


def _count(value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"expected a whole number from 0 to {most}")
    return value


def _bytes(flow: pb.Flow) -> int:
    return flow.bytes_sent + flow.bytes_received
