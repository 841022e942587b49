"""The schemas as the compiler sees them, with their comments."""

import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import grpc_tools.protoc
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

from tests.proto.generate import PROTOS, SOURCES

_MESSAGES, _NESTED, _FIELDS = 4, 3, 2  # field numbers of FileDescriptorProto, DescriptorProto


class CommentedField(NamedTuple):
    """A field, the full name that errors show, and the comment before or beside it."""

    name: str
    field: FieldDescriptorProto
    comment: str


def commented_fields() -> list[CommentedField]:
    """Every field of every message of every schema."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "schemas"
        include = str(files("grpc_tools") / "_proto")
        code = grpc_tools.protoc.main(
            [
                *("protoc", f"-I{SOURCES}", f"-I{include}"),
                *("--include_source_info", f"--descriptor_set_out={out}", *PROTOS),
            ]
        )
        assert code == 0, "protoc refuses the schemas"
        schemas = FileDescriptorSet.FromString(out.read_bytes())
    found = []
    for schema in schemas.file:
        comments = {
            tuple(place.path): place.leading_comments + place.trailing_comments
            for place in schema.source_code_info.location
        }
        for number, message in enumerate(schema.message_type):
            for path, name, field in _fields(message, (_MESSAGES, number), message.name):
                found.append(CommentedField(name, field, comments.get(path, "").strip()))
    return found


def _fields(
    message: DescriptorProto, path: tuple[int, ...], name: str
) -> Iterator[tuple[tuple[int, ...], str, FieldDescriptorProto]]:
    if message.options.map_entry:
        return
    for number, field in enumerate(message.field):
        yield (*path, _FIELDS, number), f"{name}.{field.name}", field
    for number, nested in enumerate(message.nested_type):
        yield from _fields(nested, (*path, _NESTED, number), f"{name}.{nested.name}")
