"""What changed since a watcher last looked.

A watcher is told of states, not of every step between them: whatever happened while it was
slow is one event, so nothing is queued for it and its memory is bounded by the cluster's
size.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.api.placements import placement
from leadline_controller.api.source import InspectionSource


class NodeFingerprint(NamedTuple):
    """A node as it was seen, and what of it makes news when it differs. All watchers share it."""

    status: pb.NodeStatus
    looks: bytes


def node_fingerprint(status: pb.NodeStatus) -> NodeFingerprint:
    """A node with its looks, which are everything but its ages."""
    bare = pb.NodeStatus()
    bare.CopyFrom(status)
    bare.ClearField("report_age_s")
    for metric in bare.metrics:
        metric.ClearField("age_s")
    return NodeFingerprint(status, bare.SerializeToString(deterministic=True))


class Changes:
    """One watcher's view of the past."""

    def __init__(self) -> None:
        self._nodes: dict[str, bytes] = {}
        self._number = 0

    def of_nodes(self, sights: Sequence[NodeFingerprint]) -> Iterator[pb.WatchEvent]:
        """The nodes that differ in more than their ages, and those that are gone."""
        for status, looks in sights:
            if self._nodes.get(status.name) != looks:
                self._nodes[status.name] = looks
                yield pb.WatchEvent(node=status)
        for name in self._nodes.keys() - {status.name for status, _ in sights}:
            del self._nodes[name]
            yield pb.WatchEvent(node_gone=name)

    def of_placements(self, source: InspectionSource) -> Iterator[pb.WatchEvent]:
        """The decisions that are new, or whose outcome is, in the order of their numbers."""
        now = source.decisions.now()
        changed = [x for x in source.decisions.all() if x.number > self._number]
        for record in sorted(changed, key=lambda x: x.number):
            self._number = record.number
            yield pb.WatchEvent(placement=placement(record, now))
