"""Images as messages of the inspection service."""

from collections.abc import Iterable

from leadline_wire.v1 import images_pb2 as pb

from leadline_controller.api.nodes import in_order
from leadline_controller.cluster.images import NodeReading
from leadline_controller.registry.lookup import RegistryReading


def response(
    nodes: Iterable[NodeReading], registries: Iterable[RegistryReading]
) -> pb.ListImagesResponse:
    """The images of all nodes, and what registries tell."""
    return pb.ListImagesResponse(
        nodes=[_node(each) for each in sorted(nodes, key=lambda each: in_order(each.node))],
        registries=[pb.RegistryStatus(**each._asdict()) for each in registries],
    )


def _node(reading: NodeReading) -> pb.NodeImages:
    speed = reading.speed
    return pb.NodeImages(
        node=reading.node,
        architecture=reading.architecture,
        images=[pb.ImageStatus(**each._asdict()) for each in reading.images],
        held_mb=reading.held_mb,
        queue_mb=reading.queue_mb,
        pulling=[pb.PullStatus(**each._asdict()) for each in reading.pulling],
        pull_mbps=None if speed is None else speed.mbps,
        pull_overhead_s=None if speed is None else speed.overhead_s,
        pulls=0 if speed is None else speed.pulls,
    )
