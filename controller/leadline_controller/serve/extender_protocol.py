"""k8s.io/kube-scheduler/extender/v1: kube-scheduler's questions read, and answered in its words.

The Go types carry no JSON tags, so the keys are the Go names. A question may hold every node
whole: these are read one by one, so that another thread gets its turn between two of them,
and the nodes that pass are given back as the very text they came in.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline_controller.core.fields import FieldError, Fields
from leadline_controller.core.hints import HintError, read_hints
from leadline_controller.core.manifest import read_node, read_pod
from leadline_controller.core.model import Node, Pod

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SPACE = re.compile(r"[ \t\n\r]*")


class ProtocolError(Exception):
    """A question that can't be answered; str() is one line that says where and why."""


@dataclass(frozen=True, slots=True)
class Question:
    """ExtenderArgs: a pod, and the nodes that passed so far.

    names: in the caller's order. nodes: by name where the caller sent them whole
    (nodeCacheCapable: false), else None. unreadable: name -> what is wrong with a node that
    was sent whole. pod.problem: what is not modelled; never an annotation.
    """

    pod: Pod
    names: tuple[str, ...]
    nodes: Mapping[str, Node] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    _text: str = field(default="", repr=False)
    _spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    def raw(self, name: str) -> str:
        """The JSON of a node that was sent whole."""
        start, end = self._spans[name]
        return self._text[start:end]


@dataclass(frozen=True, slots=True)
class Binding:
    """ExtenderBindingArgs: what is to be bound, and where."""

    namespace: str
    name: str
    uid: str
    node: str


def read_question(body: bytes) -> Question:
    """Read ExtenderArgs. Raises ProtocolError, also for an annotation that can't be read."""
    text = _text(body)
    found = _Found()
    with _Complaints():
        cursor = _Cursor(text)
        for key in cursor.members():
            match key:
                case "Pod":
                    found.pod = cursor.value()
                case "Nodes":
                    _read_nodes(cursor, found)
                case "NodeNames":
                    found.names = cursor.value()
                case _:
                    cursor.value()
        cursor.end()
        pod = _pod(found.pod)
        if found.spans is None:
            return Question(pod, _names(found.names))
    return Question(pod, tuple(found.spans), found.nodes, found.unreadable, text, found.spans)


def read_binding(body: bytes) -> Binding:
    """Read ExtenderBindingArgs. Raises ProtocolError."""
    with _Complaints():
        cursor = _Cursor(_text(body))
        args = Fields(cursor.value(), "ExtenderBindingArgs")
        cursor.end()
        return Binding(
            namespace=_checked(args.text("PodNamespace"), args.at("PodNamespace")),
            name=_checked(args.text("PodName"), args.at("PodName")),
            uid=_checked(args.text("PodUID"), args.at("PodUID")),
            node=_checked(args.text("Node"), args.at("Node")),
        )


def filter_answer(question: Question, passing: Sequence[str], failed: Mapping[str, str]) -> bytes:
    """ExtenderFilterResult. failed: node name -> why; none of it can be mended by pushing other
    pods out, for kube-scheduler's preemption looks at its own filters only, and those pass."""
    answer = {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": failed,
        "Error": "",
    }
    if question.nodes is None:
        return json.dumps({**answer, "NodeNames": list(passing)}).encode()
    rest = json.dumps({key: value for key, value in answer.items() if key != "Nodes"})
    items = ",".join(question.raw(name) for name in passing)
    return f'{{"Nodes":{{"items":[{items}]}},{rest[1:]}'.encode()


def prioritize_answer(question: Question, priorities: Mapping[str, int]) -> bytes:
    """HostPriorityList; a node that is not in `priorities` has the lowest."""
    return json.dumps(
        [{"Host": name, "Score": priorities.get(name, 0)} for name in question.names]
    ).encode()


def error_answer(message: str) -> bytes:
    """The answer to filter and to bind when there is none."""
    return json.dumps({"Error": message}).encode()


def bind_answer() -> bytes:
    """ExtenderBindingResult: it is bound."""
    return error_answer("")


@dataclass(slots=True)
class _Found:
    pod: Any = None
    names: Any = None
    nodes: dict[str, Node] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] | None = None


class _Complaints:
    """Turns what readers of bad data raise into ProtocolError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case json.JSONDecodeError():
                told = f"the request is no JSON: {error.msg} at character {error.pos}"
            case RecursionError():
                told = "the request is nested too deep"
            case HintError():
                told = str(error)
            case ValueError():  # a FieldError, or a number too long to read
                told = f"the request can't be read: {' '.join(str(error).split())[:400]}"
            case _:
                return
        raise ProtocolError(told) from None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the request is no UTF-8: byte {error.start}") from None


def _read_nodes(cursor: "_Cursor", found: _Found) -> None:
    found.spans = None
    if cursor.skipped_null():
        return
    found.spans = {}
    for key in cursor.members():
        if key != "items":
            cursor.value()
        elif not cursor.skipped_null():
            for number, start in enumerate(cursor.elements()):
                manifest = cursor.value()
                name = _read_node(manifest, f"Nodes.items[{number}]", found)
                found.spans[name] = (start, cursor.at)


def _read_node(manifest: object, path: str, found: _Found) -> str:
    fields = Fields(manifest, path)
    name = _checked(fields.object("metadata").text("name"), f"{path}.metadata.name")
    try:
        found.nodes[name] = read_node(dict(fields.items()), path)
    except FieldError as error:
        found.unreadable[name] = str(error)
    return name


def _pod(manifest: object) -> Pod:
    metadata = Fields(manifest, "Pod").object("metadata")
    read_hints(metadata.text_map("annotations"))
    pod = read_pod(dict(Fields(manifest, "Pod").items()), "Pod")
    _checked(pod.name, "Pod.metadata.name")
    _checked(pod.namespace, "Pod.metadata.namespace")
    return pod


def _names(names: object) -> tuple[str, ...]:
    if names is None:
        raise ProtocolError("the request names no nodes: Nodes and NodeNames are both null")
    return Fields({"NodeNames": names}, "").texts("NodeNames")


def _checked(name: str, path: str) -> str:
    """What people and other programs are shown later must be what Kubernetes calls a name."""
    if not _NAME.fullmatch(name):
        raise FieldError(f"{path}: expected a name as Kubernetes has them, got {name[:60]!r}")
    return name


class _Cursor:
    """A place in JSON text. Raises JSONDecodeError; what is passed over is checked, too."""

    def __init__(self, text: str) -> None:
        self._json = text
        self._decode = json.JSONDecoder(parse_constant=_no_number).raw_decode
        self.at = 0

    def value(self) -> Any:
        """The value that begins here."""
        self._skip_space()
        value, self.at = self._decode(self._json, self.at)
        return value

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller takes each value."""
        for _ in self._parts("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise json.JSONDecodeError("expected a key", self._json, self.at)
            self._take(":")
            yield key

    def elements(self) -> Iterator[int]:
        """Where each element of the list that begins here begins; the caller takes each."""
        for _ in self._parts("[", "]"):
            self._skip_space()
            yield self.at

    def skipped_null(self) -> bool:
        """Whether there was a null here; it is passed over."""
        self._skip_space()
        if not self._json.startswith("null", self.at):
            return False
        self.at += len("null")
        return True

    def end(self) -> None:
        """There must be nothing more."""
        self._skip_space()
        if self.at < len(self._json):
            raise json.JSONDecodeError("expected the end", self._json, self.at)

    def _parts(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self._took(closing):
            return
        while True:
            yield
            if self._took(closing):
                return
            self._take(",")

    def _take(self, char: str) -> None:
        if not self._took(char):
            raise json.JSONDecodeError(f"expected {char!r}", self._json, self.at)

    def _took(self, char: str) -> bool:
        self._skip_space()
        found = self._json.startswith(char, self.at)
        self.at += found
        return found

    def _skip_space(self) -> None:
        space = _SPACE.match(self._json, self.at)
        assert space is not None  # noqa: S101  # it also matches nothing
        self.at = space.end()


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")
