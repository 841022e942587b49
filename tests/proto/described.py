"""Describes the wire and the gRPC services in one line for each field, value and method.

`python -m tests.proto.described` prints today's, for a release to keep in `released/VERSION.txt`.
"""

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from leadline_wire.v1 import (
    control_pb2,
    externalscaler_pb2,
    images_pb2,
    replicas_pb2,
    rescheduling_pb2,
    status_pb2,
    telemetry_pb2,
)

_SCHEMAS = (
    *(telemetry_pb2, images_pb2, control_pb2, externalscaler_pb2, replicas_pb2),
    *(rescheduling_pb2, status_pb2),
)


def today() -> list[str]:
    """The lines of all schemas."""
    lines: list[str] = []
    for each in _SCHEMAS:
        schema = FileDescriptorProto()
        each.DESCRIPTOR.CopyToProto(schema)
        lines += described(schema)
    return sorted(lines)


def described(schema: FileDescriptorProto) -> Iterator[str]:
    """The lines of a schema: what the other side relies on. Comments and order are left out."""
    for message in schema.message_type:
        yield from _message(message, f"{schema.package}.{message.name}")
    for enum in schema.enum_type:
        yield from _enum(enum, f"{schema.package}.{enum.name}")
    for service in schema.service:
        for method in service.method:
            asks = "stream " * method.client_streaming + method.input_type
            answers = "stream " * method.server_streaming + method.output_type
            yield f"{schema.package}.{service.name}/{method.name}: {asks} -> {answers}"


def _message(message: DescriptorProto, name: str) -> Iterator[str]:
    for reserved in message.reserved_range:
        yield from (f"{name} {n}: reserved" for n in range(reserved.start, reserved.end))
    for field in message.field:
        kind = field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_")
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            kind = f"repeated {kind}"
        elif field.proto3_optional:
            kind = f"optional {kind}"
        yield f"{name} {field.number}: {field.name} {kind}"
    for nested in message.nested_type:
        yield from _message(nested, f"{name}.{nested.name}")
    for enum in message.enum_type:
        yield from _enum(enum, f"{name}.{enum.name}")


def _enum(enum: EnumDescriptorProto, name: str) -> Iterator[str]:
    for value in enum.value:
        yield f"{name} {value.number}: {value.name}"


if __name__ == "__main__":
    print("\n".join(today()))
