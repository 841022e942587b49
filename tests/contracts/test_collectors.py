"""The contract of every collector in COLLECTORS, on the machine that runs this test."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from google.protobuf.message import Message
from leadline_agent.collectors import COLLECTORS, SYS_ROOT, Collectors
from leadline_agent.collectors.collector import AbsentError
from leadline_wire.v1 import telemetry_pb2 as pb

each = pytest.mark.parametrize("name", COLLECTORS)


def numbers(message: Message) -> Iterator[float]:
    for _, value in message.ListFields():
        for part in [value] if isinstance(value, Message) else value if _is_list(value) else []:
            yield from numbers(part)
        if isinstance(value, int | float):
            yield value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


@each
def test_reads_finite_values_or_is_absent(name: str) -> None:
    collector = COLLECTORS[name](SYS_ROOT)
    try:
        readings = [collector.collect(), collector.collect()]
    except AbsentError:
        readings = []
    values = [value for reading in readings for value in numbers(reading)]
    assert all(math.isfinite(value) for value in values)
    assert all(value >= 0 for value in values if name != "temperature")


@each
def test_fills_the_field_of_the_report_that_has_its_name(name: str) -> None:
    assert name in pb.Report.DESCRIPTOR.fields_by_name
    report = Collectors({name: COLLECTORS[name]}).collect()
    (run,) = report.collectors
    assert (run.name, run.duration_us >= 0) == (name, True)
    filled = {field.name for field, _ in report.ListFields()} - {"timing", "collectors"}
    assert filled == ({name} if run.outcome == pb.CollectorRun.OK else set())


@each
def test_a_board_without_the_hardware_is_no_failure(name: str, tmp_path: Any) -> None:
    report = Collectors({name: COLLECTORS[name]}, sys_root=tmp_path).collect()
    assert report.collectors[0].outcome in (pb.CollectorRun.OK, pb.CollectorRun.ABSENT)
