"""The messages of k8s.io/kube-scheduler/extender/v1.

The Go types carry no JSON tags, so the keys are the Go names. The arguments may hold every node
as a whole object: 32 MB are scanned in some 15 ms, and then read one by one, so that other threads
run in between. The nodes that pass are sent back as the bytes that they came in.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

from leadline_controller.extender.service import ExtenderArgs, ExtenderBindingArgs
from leadline_controller.framework.model import Node, Pod
from leadline_controller.kubeobjects.annotations import AnnotationError, read_annotations
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.parsing.fields import FieldError
from leadline_controller.parsing.typed import decode

# Kubernetes itself is tested with 5,000.
MAX_NODES = 20_000
# The API server accepts no longer object.
_MAX_OBJECT_BYTES = 3 * 1024 * 1024
_LONGEST_NAME = 253
# Logs and other programs will show it.
_Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z",
        description="a name as Kubernetes has them",
    ),
]


class ProtocolError(Exception):
    """Arguments that can't be parsed; str() is one line that says where and why."""


class StoppedError(Exception):
    """The caller stopped the parsing."""


class ReadPod(NamedTuple):
    """A pod, and the JSON that it was read from."""

    json: bytes
    pod: Pod


class _Left(threading.local):
    nodes = MAX_NODES


_LEFT = _Left()


class _NodeMetadata(Struct, gc=False):
    name: _Name


class _Head(Struct, gc=False):
    metadata: _NodeMetadata

    def __post_init__(self) -> None:
        # In a list of any length, msgspec would first make all of it.
        _LEFT.nodes -= 1
        if _LEFT.nodes < 0:
            raise ValueError(f"expected {MAX_NODES} nodes at most")


class _Heads(Struct):
    items: list[_Head] | None = None


class _Args(Struct, rename="pascal"):
    pod: Raw = Raw(b"null")
    nodes: _Heads | None = None
    node_names: Raw = Raw(b"null")


class _Items(Struct):
    items: list[Raw] | None = None


class _Whole(Struct, rename="pascal"):
    nodes: _Items


class _PodMetadata(Struct):
    name: _Name
    namespace: _Name = "default"
    annotations: dict[str, str] = {}


class _PodHead(Struct):
    metadata: _PodMetadata


class _BindingArgs(Struct):
    namespace: _Name = msgspec.field(name="PodNamespace")
    name: _Name = msgspec.field(name="PodName")
    uid: _Name = msgspec.field(name="PodUID")
    node: _Name = msgspec.field(name="Node")


_ARGS, _WHOLE = msgspec.json.Decoder(_Args), msgspec.json.Decoder(_Whole)


def read_extender_args(
    body: bytes | bytearray,
    known: Mapping[str, Node] | None = None,
    last: ReadPod | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> ExtenderArgs:
    """Parse ExtenderArgs. known: nodes by name; an equal one replaces the parsed node, to save
    memory. last: the pod of an earlier call, as kube-scheduler asks about each pod twice. Raises
    ProtocolError, also for an unreadable annotation, and StoppedError soon after `stopped()`
    becomes true."""
    with _protocol_errors():
        _LEFT.nodes = MAX_NODES
        args = _ARGS.decode(body)
        pod_json = _object(args.pod, "Pod")
        pod = last.pod if last is not None and last.json == pod_json else _pod(pod_json)
        if args.nodes is None:
            return ExtenderArgs(pod, _names(args.node_names), pod_json=pod_json)
        names = [each.metadata.name for each in args.nodes.items or ()]
        if len(set(names)) < len(names):
            ((twice, _),) = Counter(names).most_common(1)
            raise FieldError(f"Nodes.items: node {twice} is there twice")
        raw = dict(zip(names, _WHOLE.decode(body).nodes.items or (), strict=True))
        nodes: dict[str, Node] = {}
        unreadable: dict[str, str] = {}
        for number, name in enumerate(names):
            if stopped():
                raise StoppedError
            path = f"Nodes.items[{number}]"
            try:
                node = read_node(_object(raw[name], path), path)
            except FieldError as error:
                unreadable[name] = str(error)
            else:
                of_watch = (known or {}).get(name)
                nodes[name] = of_watch if of_watch is not None and of_watch == node else node
        return ExtenderArgs(pod, tuple(names), nodes, unreadable, pod_json, raw)


def read_binding_args(body: bytes | bytearray) -> ExtenderBindingArgs:
    """Parse ExtenderBindingArgs. Raises ProtocolError."""
    with _protocol_errors():
        if len(body) > _MAX_OBJECT_BYTES:
            raise FieldError(f"expected {_MAX_OBJECT_BYTES} bytes at most")
        read = decode(bytes(body), _BindingArgs, "ExtenderBindingArgs")
        return ExtenderBindingArgs(read.namespace, read.name, read.uid, read.node)


def filter_result(
    args: ExtenderArgs, passing: Sequence[str], failed: Mapping[str, str]
) -> list[bytes | memoryview]:
    """ExtenderFilterResult, in chunks; whole nodes are not copied. failed: node name -> why. All
    failures are unresolvable, because kube-scheduler's preemption looks only at its own filters,
    and those pass."""
    result = {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": failed,
        "Error": "",
    }
    if args.nodes is None:
        return [json.dumps({**result, "NodeNames": list(passing)}).encode()]
    rest = json.dumps({key: value for key, value in result.items() if key != "Nodes"})
    chunks: list[bytes | memoryview] = [b'{"Nodes":{"items":[']
    for number, name in enumerate(passing):
        chunks += (b",", args.raw(name)) if number else (args.raw(name),)
    return [*chunks, f"]}},{rest[1:]}".encode()]


def host_priorities(args: ExtenderArgs, priorities: Mapping[str, int]) -> bytes:
    """HostPriorityList; a node that is not in `priorities` has 0."""
    # Hundreds of nodes for each pod: json.dumps would take three times as long.
    scored = (
        f'{{"Host":{_quoted(name)},"Score":{priorities.get(name, 0)}}}' for name in args.names
    )
    return f"[{','.join(scored)}]".encode()


def error_result(message: str) -> bytes:
    """ExtenderFilterResult or ExtenderBindingResult with an error; empty after a binding."""
    return json.dumps({"Error": message}).encode()


@contextmanager
def _protocol_errors() -> Iterator[None]:
    """Turns the errors of parsing into ProtocolError."""
    try:
        yield
        return
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        message = f"the request can't be read: {where.strip('.`') or 'the request'}: {what}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the request is no JSON: {error}"
    except RecursionError:
        message = "the request is nested too deep"
    except AnnotationError as error:
        message = str(error)
    except FieldError as error:
        message = f"the request can't be read: {' '.join(str(error).split())[:400]}"
    raise ProtocolError(message)


def _object(text: Raw, path: str) -> bytes:
    """The JSON of an object. Raises FieldError if it is longer than any object in Kubernetes."""
    if len(memoryview(text)) > _MAX_OBJECT_BYTES:
        raise FieldError(f"{path}: longer than any object in Kubernetes")
    return bytes(text)


def _pod(text: bytes) -> Pod:
    read_annotations(decode(text, _PodHead, "Pod").metadata.annotations)
    return read_pod(text, "Pod")


def _names(text: Raw) -> tuple[str, ...]:
    names_json = _object(text, "NodeNames")
    if names_json == b"null":
        raise ProtocolError("the request names no nodes: Nodes and NodeNames are both null")
    found = decode(names_json, tuple[str, ...], "NodeNames")
    if len(found) > MAX_NODES:
        raise FieldError(f"NodeNames: expected {MAX_NODES} nodes at most, got {len(found)}")
    return found


def _quoted(name: str) -> str:
    # Only names that a node may have are worth the memory.
    return _quoted_name(name) if len(name) <= _LONGEST_NAME else json.dumps(name)


@lru_cache(maxsize=MAX_NODES)
def _quoted_name(name: str) -> str:
    return json.dumps(name)
