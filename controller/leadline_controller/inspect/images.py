"""Images as messages of the inspection service."""

from collections.abc import Iterable

from leadline_wire.v1 import images_pb2 as pb

from leadline_controller.cluster.image_status import NodeImageStatus
from leadline_controller.inspect.messages import message
from leadline_controller.inspect.order import in_order
from leadline_controller.registry.lookup import RegistryStatus


def response(
    nodes: Iterable[NodeImageStatus], registries: Iterable[RegistryStatus]
) -> pb.ListImagesResponse:
    """The images of all nodes, and what registries tell."""
    return pb.ListImagesResponse(
        nodes=[_node(each) for each in sorted(nodes, key=lambda each: in_order(each.node))],
        registries=[pb.RegistryStatus(**each._asdict()) for each in registries],
    )


def _node(status: NodeImageStatus) -> pb.NodeImages:
    speed = status.speed
    return message(
        pb.NodeImages,
        status,
        images=[pb.ImageStatus(**each._asdict()) for each in status.images],
        pulling=[pb.PullStatus(**each._asdict()) for each in status.pulling],
        pull_mbps=None if speed is None else speed.mbps,
        pull_overhead_s=None if speed is None else speed.overhead_s,
        pulls=0 if speed is None else speed.pulls,
    )
