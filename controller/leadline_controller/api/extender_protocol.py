"""The messages of k8s.io/kube-scheduler/extender/v1.

The Go types carry no JSON tags, so the keys are the Go names. The arguments may hold every node
as a whole object. These are parsed one by one, so that other threads can run in between, and the
nodes that pass are sent back as the bytes that they came in.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

from leadline_controller.api.extender_json import Cursor
from leadline_controller.framework.model import Node, Pod
from leadline_controller.kubeobjects.annotations import AnnotationError, read_annotations
from leadline_controller.kubeobjects.manifest import read_node, read_pod
from leadline_controller.parsing.fields import FieldError, Fields
from leadline_controller.scheduling.extender_service import ExtenderArgs, ExtenderBindingArgs

# Kubernetes itself is tested with 5,000.
MAX_NODES = 20_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LONGEST_NAME = 253


class ProtocolError(Exception):
    """Arguments that can't be parsed; str() is one line that says where and why."""


class ReadPod(NamedTuple):
    """A pod, and the JSON that it was read from."""

    json: bytes
    pod: Pod


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
    manifest: Any = None
    names: Any = None
    whole = None
    read: ReadPod | None = None
    pod_json = b""
    with _protocol_errors():
        cursor = Cursor(body, stopped)
        for key in cursor.members():
            match key:
                case "Pod" if last is not None and cursor.skipped(last.json):
                    read = last
                case "Pod":
                    begins = cursor.at
                    manifest, read = cursor.value(), None
                    pod_json = bytes(body[begins : cursor.at]).lstrip()
                case "Nodes":
                    whole = _read_nodes(cursor, known or {})
                case "NodeNames":
                    names = cursor.value()
                case _:
                    cursor.value()
        cursor.end()
        pod_json, pod = read or (pod_json, _pod(manifest))
        if whole is None:
            return ExtenderArgs(pod, _names(names, known or {}), pod_json=pod_json)
    nodes, unreadable, spans = whole
    return ExtenderArgs(pod, tuple(spans), nodes, unreadable, pod_json, body, spans)


def read_binding_args(
    body: bytes | bytearray, stopped: Callable[[], bool] = lambda: False
) -> ExtenderBindingArgs:
    """Parse ExtenderBindingArgs. Raises ProtocolError and StoppedError as `read_extender_args`."""
    with _protocol_errors():
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
    except UnicodeDecodeError as error:
        message = f"the request is no UTF-8: byte {error.start}"
    except json.JSONDecodeError as error:
        message = f"the request is no JSON: {error.msg} at character {error.pos}"
    except RecursionError:
        message = "the request is nested too deep"
    except AnnotationError as error:
        message = str(error)
    except ValueError as error:  # a FieldError, or a number too long to read
        message = f"the request can't be read: {' '.join(str(error).split())[:400]}"
    raise ProtocolError(message)


def _read_nodes(
    cursor: Cursor, known: Mapping[str, Node]
) -> tuple[dict[str, Node], dict[str, str], dict[str, tuple[int, int]]] | None:
    """Whole nodes by name, the errors of unreadable ones, and where the JSON of each begins and
    ends; None for null."""
    if cursor.skipped_null():
        return None
    nodes: dict[str, Node] = {}
    unreadable: dict[str, str] = {}
    spans: dict[str, tuple[int, int]] = {}
    for key in cursor.members():
        if key != "items":
            cursor.value()
        elif not cursor.skipped_null():
            for number, start in enumerate(cursor.elements()):
                path = f"Nodes.items[{number}]"
                if number >= MAX_NODES:
                    raise FieldError(f"Nodes.items: expected {MAX_NODES} nodes at most")
                manifest = Fields(cursor.value(), path)
                name = manifest.object("metadata").text("name")
                if _checked(name, f"{path}.metadata.name") in spans:
                    raise FieldError(f"{path}: node {name} is there twice")
                spans[name] = (start, cursor.at)
                try:
                    node = read_node(manifest.data, path)
                except FieldError as error:
                    unreadable[name] = str(error)
                else:
                    nodes[name] = known[name] if known.get(name) == node else node
    return nodes, unreadable, spans


def _pod(manifest: object) -> Pod:
    fields = Fields(manifest, "Pod")
    read_annotations(fields.object("metadata").text_map("annotations"))
    pod = read_pod(fields.data, "Pod")
    _checked(pod.name, "Pod.metadata.name")
    _checked(pod.namespace, "Pod.metadata.namespace")
    return pod


def _names(names: object, known: Mapping[str, Node]) -> tuple[str, ...]:
    if names is None:
        raise ProtocolError("the request names no nodes: Nodes and NodeNames are both null")
    if isinstance(names, list) and len(names) <= MAX_NODES:
        with suppress(TypeError):  # a list or an object among them
            if known.keys() >= set(names):
                return tuple(names)
    found = Fields({"NodeNames": names}, "").texts("NodeNames")
    if len(found) > MAX_NODES:
        raise FieldError(f"NodeNames: expected {MAX_NODES} nodes at most, got {len(found)}")
    return found


def _quoted(name: str) -> str:
    # Only names that a node may have are worth the memory.
    return _quoted_name(name) if len(name) <= _LONGEST_NAME else json.dumps(name)


@lru_cache(maxsize=MAX_NODES)
def _quoted_name(name: str) -> str:
    return json.dumps(name)


def _checked(name: str, path: str) -> str:
    """The name, if it is a valid one of Kubernetes: logs and other programs will show it."""
    if not _NAME.fullmatch(name):
        raise FieldError(f"{path}: expected a name as Kubernetes has them, got {name[:60]!r}")
    return name
