"""The page docs/api.md, of the .proto files and their comments: `make reference` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc_tools.protoc
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

from tests.proto.generate import PROTOS, SOURCES

_BEFORE = """\
# The gRPC API, and what goes over MQTT
All services and messages, with the comments of `proto/leadline_wire/v1/*.proto`; `make reference`
writes this page. The package leadline-wire has their Python code. A controller answers at
`grpc.address`, as [cli.md](cli.md) says, and KEDA at `keda.address` ([replicas.md](replicas.md)).
Reflection is on, so a client such as grpcurl needs no files. Fields may be added; those here keep
their numbers and meanings.
"""
# The numbers of declarations in FileDescriptorProto, DescriptorProto and so on: a comment is found
# by the path of them.
_SYNTAX, _MESSAGE, _SERVICE = 12, 4, 6
_FIELD, _NESTED_ENUM, _VALUE, _METHOD = 2, 4, 2, 2


def page() -> str:
    """The page as it should be."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        argv = ["protoc", f"-I{SOURCES}", f"-o{out}", "--include_source_info", *sorted(PROTOS)]
        if grpc_tools.protoc.main(argv):
            raise RuntimeError("protoc refused a schema")
        described = FileDescriptorSet.FromString(out.read_bytes())
    files = sorted(described.file, key=lambda file: not file.service)
    linked = {message.name for file in files for message in file.message_type if message.field}
    return "".join([_BEFORE, *(part for file in files for part in _File(file, linked).parts())])


def escaped(text: str) -> str:
    """For a cell of a table: outside of code nothing is Markdown."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts).replace("|", r"\|")


class _File:
    """One file's part of the page. linked: the messages that have a heading."""

    def __init__(self, file: FileDescriptorProto, linked: set[str]) -> None:
        self._file, self._linked = file, linked
        self._comments = {
            tuple(each.path): each.leading_comments for each in file.source_code_info.location
        }

    def parts(self) -> Iterator[str]:
        yield f"\n## {Path(self._file.name).name}\n{self._said(_SYNTAX)}\n"
        for at, service in enumerate(self._file.service):
            yield from self._service(service, at)
        for at, message in enumerate(self._file.message_type):
            if message.field:
                yield from self._message(message, at)

    def _said(self, *place: int) -> str:
        return escaped(" ".join(self._comments.get(place, "").split()))

    def _head(self, name: str, *place: int) -> str:
        said = self._said(*place)
        return f"\n### {name}\n{said}\n\n" if said else f"\n### {name}\n"

    def _service(self, service: ServiceDescriptorProto, at: int) -> Iterator[str]:
        yield self._head(service.name, _SERVICE, at)
        yield "| call | with | answer | meaning |\n| --- | --- | --- | --- |\n"
        for number, call in enumerate(service.method):
            answer = ("stream of " if call.server_streaming else "") + self._link(call.output_type)
            meaning = self._said(_SERVICE, at, _METHOD, number)
            yield f"| `{call.name}` | {self._link(call.input_type)} | {answer} | {meaning} |\n"

    def _message(self, message: DescriptorProto, at: int) -> Iterator[str]:
        yield self._head(message.name, _MESSAGE, at)
        yield "| field | number | type | meaning |\n| --- | ---: | --- | --- |\n"
        for number, field in enumerate(message.field):
            meaning = self._said(_MESSAGE, at, _FIELD, number)
            kind = self._type(message, field)
            yield f"| `{field.name}` | {field.number} | {kind} | {meaning} |\n"
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (_MESSAGE, at, _NESTED_ENUM, number))

    def _enum(self, enum: EnumDescriptorProto, place: tuple[int, ...]) -> Iterator[str]:
        yield f"\n{self._said(*place)}\n\n| {enum.name} | number | meaning |\n"
        yield "| --- | ---: | --- |\n"
        for number, value in enumerate(enum.value):
            meaning = self._said(*place, _VALUE, number)
            yield f"| `{value.name}` | {value.number} | {meaning} |\n"

    def _type(self, message: DescriptorProto, field: FieldDescriptorProto) -> str:
        of_map = next(
            (m for m in message.nested_type if field.type_name.endswith(f".{m.name}")), None
        )
        if of_map:
            return "map of {} to {}".format(*(self._type(of_map, each) for each in of_map.field))
        label = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        text = self._link(field.type_name) if field.type_name else label
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return f"list of {text}"
        if field.proto3_optional:
            return f"{text}, optional"
        if field.HasField("oneof_index"):
            return f"{text}, one of `{message.oneof_decl[field.oneof_index].name}`"
        return text

    def _link(self, type_name: str) -> str:
        name = type_name.rpartition(".")[2]
        return f"[{name}](#{name.lower()})" if name in self._linked else f"`{name}`"
