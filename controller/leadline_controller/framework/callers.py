"""Which workloads declare that they talk to a Service or a workload: what `leadline.dev/peers` of
their pods says, by the other end's name. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.model import NODE_PEER, DeclaredPeer, Pod
from leadline_controller.framework.services import Service, workload_name
from leadline_controller.parsing.addresses import read_unicast


@dataclass(frozen=True, slots=True)
class Caller:
    """What the pods of a workload declare of one peer. name: "namespace/name" of the workload."""

    workload: Service
    name: str
    declared: DeclaredPeer


# Namespace and name of what is called -> who declares it -> how many assigned pods do.
Callers = Mapping[tuple[str, str], Mapping[Caller, int]]


def named(pod: Pod, declared: DeclaredPeer) -> tuple[str, str] | None:
    """Namespace and name of a declared Service or workload; None for a node or an address."""
    if declared.name.startswith(NODE_PEER) or read_unicast(declared.name) is not None:
        return None
    name, dot, namespace = declared.name.rpartition(".")
    return (namespace, name) if dot else (pod.namespace, declared.name)


def count(callers: dict[tuple[str, str], Mapping[Caller, int]], pod: Pod, more: int) -> None:
    """Count what a pod declares once more or less. Views share the inner mappings, so they are
    replaced and not changed."""
    for declared in pod.annotations.peers:
        key = named(pod, declared)
        if key is None:
            continue
        caller = Caller(workload_of(pod), workload_name(pod), declared)
        of = dict(callers.get(key, {}))
        of[caller] = of.get(caller, 0) + more
        if of[caller] <= 0:
            del of[caller]
        if of:
            callers[key] = of
        else:
            callers.pop(key, None)
