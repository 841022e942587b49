"""The arguments of extender calls, as in k8s.io/kube-scheduler/extender/v1."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leadline_controller.framework.model import Node, Pod


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod, and the nodes that passed so far.

    names: in the caller's order. nodes: by name, if the caller sent whole nodes
    (nodeCacheCapable: false). unreadable: name -> the error in a whole node. pod.problem: a demand
    that Leadline does not model; never an annotation. pod_bytes: the length of the pod's JSON.
    """

    pod: Pod
    names: tuple[str, ...]
    nodes: Mapping[str, Node] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    pod_bytes: int = 0
    _body: bytes | bytearray = field(default=b"", repr=False)
    _spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    def raw(self, name: str) -> memoryview:
        """The JSON of a whole node, without a copy."""
        start, end = self._spans[name]
        return memoryview(self._body)[start:end]


@dataclass(frozen=True, slots=True)
class ExtenderBindingArgs:
    """A pod to bind, and its node."""

    namespace: str
    name: str
    uid: str
    node: str
