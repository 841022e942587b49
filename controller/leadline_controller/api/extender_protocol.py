"""The messages of k8s.io/kube-scheduler/extender/v1.

The Go types carry no JSON tags, so the keys are the Go names. The arguments may hold every node
as a whole object. These are parsed one by one, so that other threads can run in between, and the
nodes that pass are sent back as the bytes that they came in.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline_controller.api.extender_json import Cursor
from leadline_controller.framework.model import Node, Pod
from leadline_controller.kubeobjects.annotations import AnnotationError, read_annotations
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.scheduling.extender_service import ExtenderArgs, ExtenderBindingArgs

# Kubernetes itself is tested with 5,000.
MAX_NODES = 20_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ProtocolError(Exception):
    """Arguments that can't be parsed; str() is one line that says where and why."""


def _never() -> bool:
    return False


def read_extender_args(
    body: bytes | bytearray,
    known: Mapping[str, Node] | None = None,
    stopped: Callable[[], bool] = _never,
) -> ExtenderArgs:
    """Parse ExtenderArgs. known: nodes by name; an equal one replaces the parsed node, to save
    memory. Raises ProtocolError, also for an unreadable annotation, and StoppedError soon after
    `stopped()` becomes true."""
    found = _RawArgs(known or {})
    with _ProtocolErrors():
        cursor = Cursor(body, stopped)
        for key in cursor.members():
            match key:
                case "Pod":
                    begins = cursor.at
                    found.pod = cursor.value()
                    found.pod_bytes = cursor.at - begins
                case "Nodes":
                    _read_nodes(cursor, found)
                case "NodeNames":
                    found.names = cursor.value()
                case _:
                    cursor.value()
        cursor.end()
        pod = _pod(found.pod)
        if found.spans is None:
            return ExtenderArgs(pod, _names(found.names), pod_bytes=found.pod_bytes)
    names, size = tuple(found.spans), found.pod_bytes
    return ExtenderArgs(pod, names, found.nodes, found.unreadable, size, body, found.spans)


def read_binding_args(
    body: bytes | bytearray, stopped: Callable[[], bool] = _never
) -> ExtenderBindingArgs:
    """Parse ExtenderBindingArgs. Raises ProtocolError and StoppedError as `read_extender_args`."""
    with _ProtocolErrors():
        cursor = Cursor(body, stopped)
        args = Fields(cursor.value(), "ExtenderBindingArgs")
        cursor.end()
        return ExtenderBindingArgs(
            namespace=_checked(args.text("PodNamespace"), args.at("PodNamespace")),
            name=_checked(args.text("PodName"), args.at("PodName")),
            uid=_checked(args.text("PodUID"), args.at("PodUID")),
            node=_checked(args.text("Node"), args.at("Node")),
        )


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
    return json.dumps(
        [{"Host": name, "Score": priorities.get(name, 0)} for name in args.names]
    ).encode()


def error_result(message: str) -> bytes:
    """ExtenderFilterResult or ExtenderBindingResult with an error; empty after a binding."""
    return json.dumps({"Error": message}).encode()


@dataclass(slots=True)
class _RawArgs:
    known: Mapping[str, Node]
    pod: Any = None
    pod_bytes: int = 0
    names: Any = None
    nodes: dict[str, Node] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] | None = None


class _ProtocolErrors:
    """Turns the errors of parsing into ProtocolError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case UnicodeDecodeError():
                message = f"the request is no UTF-8: byte {error.start}"
            case json.JSONDecodeError():
                message = f"the request is no JSON: {error.msg} at character {error.pos}"
            case RecursionError():
                message = "the request is nested too deep"
            case AnnotationError():
                message = str(error)
            case ValueError():  # a FieldError, or a number too long to read
                message = f"the request can't be read: {' '.join(str(error).split())[:400]}"
            case _:
                return
        raise ProtocolError(message) from None


def _read_nodes(cursor: Cursor, found: _RawArgs) -> None:
    found.spans, found.nodes, found.unreadable = None, {}, {}
    if cursor.skipped_null():
        return
    found.spans = {}
    for key in cursor.members():
        if key != "items":
            cursor.value()
        elif not cursor.skipped_null():
            for number, start in enumerate(cursor.elements()):
                if number >= MAX_NODES:
                    raise FieldError(f"Nodes.items: expected {MAX_NODES} nodes at most")
                name = _read_node(cursor.value(), f"Nodes.items[{number}]", found)
                if name in found.spans:
                    raise FieldError(f"Nodes.items[{number}]: node {name} is there twice")
                found.spans[name] = (start, cursor.at)


def _read_node(manifest: object, path: str, found: _RawArgs) -> str:
    fields = Fields(manifest, path)
    name = _checked(fields.object("metadata").text("name"), f"{path}.metadata.name")
    try:
        node = read_node(fields.data, path)
    except FieldError as error:
        found.unreadable[name] = str(error)
    else:
        known = found.known.get(name)
        found.nodes[name] = known if known is not None and known == node else node
    return name


def _pod(manifest: object) -> Pod:
    fields = Fields(manifest, "Pod")
    read_annotations(fields.object("metadata").text_map("annotations"))
    pod = read_pod(fields.data, "Pod")
    _checked(pod.name, "Pod.metadata.name")
    _checked(pod.namespace, "Pod.metadata.namespace")
    return pod


def _names(names: object) -> tuple[str, ...]:
    if names is None:
        raise ProtocolError("the request names no nodes: Nodes and NodeNames are both null")
    found = Fields({"NodeNames": names}, "").texts("NodeNames")
    if len(found) > MAX_NODES:
        raise FieldError(f"NodeNames: expected {MAX_NODES} nodes at most, got {len(found)}")
    return found


def _checked(name: str, path: str) -> str:
    """The name, if it is a valid one of Kubernetes: logs and other programs will show it."""
    if not _NAME.fullmatch(name):
        raise FieldError(f"{path}: expected a name as Kubernetes has them, got {name[:60]!r}")
    return name
