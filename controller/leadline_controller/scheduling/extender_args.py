"""The arguments of an extender call, k8s.io/kube-scheduler/extender/v1, as the extender service
takes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leadline_controller.framework.model import Node, Pod


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """ExtenderArgs: a pod, and the nodes that passed so far.

    names: in the caller's order. nodes: by name where the caller sent them whole
    (nodeCacheCapable: false), else None. unreadable: name -> what is wrong with a node that
    was sent whole. pod.problem: what is not modelled; never an annotation. pod_bytes: how long
    the pod's JSON is.
    """

    pod: Pod
    names: tuple[str, ...]
    nodes: Mapping[str, Node] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    pod_bytes: int = 0
    _body: bytes | bytearray = field(default=b"", repr=False)
    _spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    def raw(self, name: str) -> memoryview:
        """The JSON of a node that was sent whole; no copy of it."""
        start, end = self._spans[name]
        return memoryview(self._body)[start:end]


@dataclass(frozen=True, slots=True)
class ExtenderBindingArgs:
    """ExtenderBindingArgs: what is to be bound, and where."""

    namespace: str
    name: str
    uid: str
    node: str
