"""The wire as another release speaks it: the first one, and one that is still to come."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools.protoc
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

FIRST = Path(__file__).with_name("first_wire.proto")
# Fields 1000 (a number) and 1001 (five bytes), which no schema has.
_NOBODY_KNOWS = b"\xc0\x3e\x01\xca\x3e\x05later"


@cache
def first_schema() -> FileDescriptorProto:
    """The first schema of telemetry."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "schema"
        arguments = [f"-I{FIRST.parent}", f"--descriptor_set_out={out}", FIRST.name]
        assert grpc_tools.protoc.main(["protoc", *arguments]) == 0
        (schema,) = FileDescriptorSet.FromString(out.read_bytes()).file
    return schema


@cache
def _first_pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.Add(first_schema())
    return pool


def first(message: Message | str) -> Any:
    """What the first release reads of a message, or its class of this name."""
    name = message if isinstance(message, str) else message.DESCRIPTOR.name
    found = GetMessageClass(_first_pool().FindMessageTypeByName(f"leadline.v1.{name}"))
    if isinstance(message, str):
        return found
    read = found.FromString(message.SerializeToString())
    read.DiscardUnknownFields()
    return read


def from_later(message: Message) -> bytes:
    """The bytes of a message to which a later release has added fields, also within."""
    copy = type(message)()
    copy.CopyFrom(message)
    for each in (copy, *_within(copy)):
        each.MergeFromString(_NOBODY_KNOWS)
    return copy.SerializeToString()


def _within(message: Message) -> Iterator[Message]:
    """All messages that are fields of a message, and fields of these."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield each
                yield from _within(each)
