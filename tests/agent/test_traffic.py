"""What leadline-flows counts becomes a report: small, once, and without what is wrong in it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_agent import traffic
from leadline_agent.traffic import LEAST_PERIOD_MS, MAX_REPORT_BYTES, TrafficReader, report_of
from leadline_wire import codec, topics
from leadline_wire.v1 import telemetry_pb2 as pb

ROW: list[Any] = ["10.42.1.5", "10.42.2.7", 8080, 200, 900, 3, 2, 1, None, True]
START_MS = 1_000_000


def table(rows: object, **more: object) -> dict[str, Any]:
    found = {"version": 1, "boot_ms": START_MS, "duration_ms": 60_000, "omitted_bytes": 7}
    return {**found, "lost_events": False, "flows": rows, **more}


def many(count: int, address: str = "10.42.{}.5") -> list[list[Any]]:
    """Rows with 1,000, 2,000 ... bytes, and numbers as large as a minute of a fast link has."""
    rest = (10**9, 10**7, 10**6, 5000, None, True)
    return [
        [address.format(n), address.format(n + 100), 50_000 + n, 10**10 + 1000 * n, *rest]
        for n in range(1, count + 1)
    ]


class Clock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(traffic, "boot_ms", made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "flows.json"


def test_a_row_becomes_a_flow() -> None:
    report = report_of(table([ROW]), START_MS)
    assert report.timing.measured_boot_ms == START_MS
    assert (report.duration_ms, report.omitted_bytes) == (60_000, 7)
    assert list(report.flows) == [
        pb.Flow(
            source=bytes((10, 42, 1, 5)),
            destination=bytes((10, 42, 2, 7)),
            port=8080,
            bytes_sent=200,
            bytes_received=900,
            packets_sent=3,
            packets_received=2,
            connections=1,
            translated=True,
        )
    ]


def test_a_translated_source_and_ipv6_are_reported() -> None:
    row = ["fd00::1", "fd00::2", *ROW[2:8], "10.42.2.1", False]
    (flow,) = report_of(table([row]), START_MS).flows
    assert flow.source == socket.inet_pton(socket.AF_INET6, "fd00::1")
    assert flow.translated_source == bytes((10, 42, 2, 1))


@pytest.mark.parametrize("address", ["10.42.{}.5", "fd00::{}"])
def test_a_report_has_at_most_2_kb_and_tells_the_bytes_of_what_it_leaves_out(address: str) -> None:
    rows = many(64, address)
    report = report_of(table(rows), START_MS)
    assert 25 <= len(report.flows) < 64
    sent = [flow.bytes_sent for flow in report.flows]
    assert sent == sorted((row[3] for row in rows), reverse=True)[: len(sent)]
    told = sum(flow.bytes_sent + flow.bytes_received for flow in report.flows)
    assert told + report.omitted_bytes == 7 + sum(row[3] + row[4] for row in rows)
    report.origin.CopyFrom(pb.Origin(node="n" * 60, boot_id=bytes(16), session=9, sequence=10**6))
    payload = codec.stamp_sent(topics.Kind.TRAFFIC, codec.encode(report), START_MS + 5)
    assert MAX_REPORT_BYTES < len(payload) <= 2100


def test_a_file_is_reported_once_and_the_next_a_minute_later(clock: Clock, file: Path) -> None:
    file.write_text(json.dumps(table([ROW])))
    clock.now_ms += 1
    reader = TrafficReader(file)  # an agent before may have told what is there
    assert reader.read() is None
    for _ in range(2):
        clock.now_ms += 60_000
        file.write_text(json.dumps(table([ROW], boot_ms=clock.now_ms)))
        assert reader.read() is not None
        assert reader.read() is None
    clock.now_ms += LEAST_PERIOD_MS - 1
    file.write_text(json.dumps(table([ROW], boot_ms=clock.now_ms)))
    assert reader.read() is None


WRONG_VALUES: tuple[Any, ...] = ("x", -1, 1.5, [])


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, 3, {}, [], "x" * 10, ROW[:-1], [*ROW, 1]),
        *([*ROW[:at], value, *ROW[at + 1 :]] for at in range(10) for value in WRONG_VALUES),
        *([*ROW[:at], 1 << 60, *ROW[at + 1 :]] for at in range(2, 8)),
        ["10.42.1.5\ud800", *ROW[1:]],
        ["10.42.1.5\0", *ROW[1:]],
        [*ROW[:9], 1],
    ],
)
def test_a_wrong_row_costs_itself_alone(wrong: object, caplog: pytest.LogCaptureFixture) -> None:
    report = report_of(table([wrong, ROW]), START_MS)
    assert len(report.flows) == 1
    assert "1 of 2 flows are none" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"\xff\xff", "decode"),
        (b"[]", "expected version 1"),
        (b'{"version": 2}', "expected version 1"),
        (json.dumps(table([ROW], boot_ms=START_MS + 10**6)).encode(), "a whole number from 0 to"),
        (json.dumps(table([ROW], duration_ms=-1)).encode(), "a whole number from 0 to"),
        (json.dumps(table({})).encode(), "flows: expected a list"),
        (b" " * (traffic.MAX_FILE_BYTES + 1), "at most 65536 bytes"),
        (b"[" * 60_000, "left out"),
    ],
)
def test_a_wrong_file_is_left_out_with_one_line(
    content: bytes, said: str, clock: Clock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(content)
    assert TrafficReader(file).read() is None
    (record,) = caplog.records
    assert said in record.getMessage()
    assert "\n" not in record.getMessage()


def test_a_file_that_is_missing_or_none_is_said(
    clock: Clock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert TrafficReader(file).read() is None
    assert "No such file or directory; is leadline-flows running?" in caplog.text
    os.mkfifo(file)
    assert TrafficReader(file).read() is None
    assert "expected a regular file" in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.lists(st.one_of(JSON, st.tuples(*[JSON] * 10)), max_size=5), JSON, JSON)
def test_any_content_makes_a_report_that_the_wire_takes_or_none(
    rows: list[Any], duration_ms: Any, omitted_bytes: Any
) -> None:
    try:
        report = report_of(
            table(rows, duration_ms=duration_ms, omitted_bytes=omitted_bytes), START_MS
        )
    except ValueError:
        return
    report.origin.CopyFrom(pb.Origin(node="n", boot_id=bytes(16), session=1, sequence=1))
    topic = topics.Topic("home", "n", topics.Kind.TRAFFIC)
    assert codec.decode(topic, codec.encode(report), topics.SCHEMA) == report
