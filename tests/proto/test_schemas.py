"""The schemas: every field has a comment, and the committed code is generated from them."""

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from leadline_wire.v1 import telemetry_pb2

from tests.proto.descriptors import CommentedField, commented_fields
from tests.proto.generate import SOURCES, generate

FIELDS = commented_fields()
UNITS = {
    "_percent": "per cent",
    "_bytes": "bytes",
    "_bytes_per_s": "per second",
    "_s": "econd",
    "_ms": "illisecond",
    "_us": "microsecond",
    "_mhz": "MHz",
    "_mbps": "Mbit/s",
    "_celsius": "Celsius",
}
NUMBERS = (
    FieldDescriptorProto.TYPE_DOUBLE,
    FieldDescriptorProto.TYPE_FLOAT,
    FieldDescriptorProto.TYPE_UINT32,
    FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_INT64,
)


def test_the_committed_code_is_current(tmp_path: Path) -> None:
    generate(tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*"))
    committed = sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("*_pb2*.py*"))
    assert made == [path for path in committed if "__pycache__" not in path.parts]
    for path in made:
        assert (tmp_path / path).read_text() == (SOURCES / path).read_text(), (
            f"{path}: run make proto"
        )


def test_every_field_has_a_comment() -> None:
    assert [field.name for field in FIELDS if not field.comment] == [], "with unit and source"


def test_the_comment_names_the_unit() -> None:
    units = [
        (f, UNITS[max((s for s in UNITS if f.field.name.endswith(s)), key=len)])
        for f in FIELDS
        if f.field.type in NUMBERS and f.field.name.endswith(tuple(UNITS))
    ]
    assert len(units) > 50
    assert [f.name for f, unit in units if unit.lower() not in f.comment.lower()] == []


MEASURED = ("Cpu", "Memory", "Disk", "NetworkInterface", "Temperature")


@pytest.mark.parametrize(
    "field",
    [
        f
        for f in FIELDS
        if f.name.startswith(tuple(f"{message}." for message in MEASURED))
        or f.name in ("Rtt.rtt_ms", "BandwidthReport.bandwidth_mbps")
    ],
    ids=lambda field: field.name,
)
def test_a_measured_value_names_its_source_and_can_be_unknown(field: CommentedField) -> None:
    assert "Source: " in field.comment
    assert field.field.proto3_optional or field.name == "NetworkInterface.name"


def test_a_value_that_was_not_measured_is_not_set() -> None:
    cpu = telemetry_pb2.Report.FromString(telemetry_pb2.Report().SerializeToString()).cpu
    assert not cpu.HasField("busy_percent")
    zero = telemetry_pb2.Cpu.FromString(telemetry_pb2.Cpu(busy_percent=0).SerializeToString())
    assert zero.HasField("busy_percent"), "zero is a measurement"
