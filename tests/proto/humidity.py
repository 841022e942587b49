"""The wire with one message more: `Report` has a field `humidity`, as a new schema would have."""

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from leadline_wire.v1 import telemetry_pb2 as pb


def _report_class() -> Any:
    schema = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(schema)
    one = FieldDescriptorProto.LABEL_OPTIONAL
    percent = schema.message_type.add(name="Humidity").field.add(name="percent", number=1)
    percent.type, percent.label = FieldDescriptorProto.TYPE_FLOAT, one
    report = next(message for message in schema.message_type if message.name == "Report")
    humidity = report.field.add(name="humidity", number=100, type_name=".leadline.v1.Humidity")
    humidity.type, humidity.label = FieldDescriptorProto.TYPE_MESSAGE, one
    pool = DescriptorPool()
    pool.Add(schema)
    return GetMessageClass(pool.FindMessageTypeByName("leadline.v1.Report"))


Report = _report_class()


def set_humidity(report: pb.Report, percent: float) -> None:
    """Set the field that the installed schema does not have."""
    report.MergeFromString(Report(humidity={"percent": percent}).SerializeToString())


def humidity_of(report: pb.Report) -> Any:
    """The report's `humidity`."""
    return Report.FromString(report.SerializeToString()).humidity
