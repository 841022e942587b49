"""The changes that a watch sends.

A watch sends states and not every step between them: all changes that happen while its client is
slow become one event. So it needs no queue, and the cluster's size bounds its memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.api.placements import placement
from leadline_controller.api.source import InspectionSource


class NodeFingerprint(NamedTuple):
    """A node, and the part of it whose changes are sent, serialized. All watches share it."""

    status: pb.NodeStatus
    content: bytes


def node_fingerprint(status: pb.NodeStatus) -> NodeFingerprint:
    """The fingerprint of a node: everything but the ages."""
    bare = pb.NodeStatus()
    bare.CopyFrom(status)
    bare.ClearField("report_age_s")
    for metric in bare.metrics:
        metric.ClearField("age_s")
    return NodeFingerprint(status, bare.SerializeToString(deterministic=True))


class Changes:
    """What one watch has sent so far."""

    def __init__(self) -> None:
        self._nodes: dict[str, bytes] = {}
        self._number = 0

    def of_nodes(self, fingerprints: Sequence[NodeFingerprint]) -> Iterator[pb.WatchEvent]:
        """The nodes that changed in more than their ages, and the names of deleted ones."""
        for status, content in fingerprints:
            if self._nodes.get(status.name) != content:
                self._nodes[status.name] = content
                yield pb.WatchEvent(node=status)
        for name in self._nodes.keys() - {status.name for status, _ in fingerprints}:
            del self._nodes[name]
            yield pb.WatchEvent(node_gone=name)

    def of_placements(self, source: InspectionSource) -> Iterator[pb.WatchEvent]:
        """The new decisions and those with a new outcome, in the order of the changes."""
        now = source.decisions.now()
        changed = [x for x in source.decisions.all() if x.number > self._number]
        for record in sorted(changed, key=lambda x: x.number):
            self._number = record.number
            yield pb.WatchEvent(placement=placement(record, now))
