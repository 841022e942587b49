"""Images, as plain data for JSON and YAML, and as tables."""

from collections.abc import Iterable, Iterator
from typing import Any

from leadline_wire.v1 import images_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import optional
from leadline_controller.cli.output import DIM, cell, table

_COLUMNS = ("IMAGES", "MB", "QUEUE\nMB", "PULLS\nMbit/s", "OVERHEAD\ns", "SEEN")


def document(answer: pb.ListImagesResponse) -> dict[str, Any]:
    """All nodes and registries. Sizes in MB of 10^6 bytes."""
    return {
        "nodes": [
            {
                "node": node.node,
                "architecture": node.architecture or None,
                "held_mb": node.held_mb,
                "queue_mb": node.queue_mb,
                "pull_mbps": optional(node, "pull_mbps"),
                "pull_overhead_s": optional(node, "pull_overhead_s"),
                "pulls": node.pulls,
                "images": [
                    {
                        "name": image.name,
                        "size_mb": optional(image, "size_mb"),
                        "layers": image.layers or None,
                        "used": image.used,
                    }
                    for image in node.images
                ],
                "pulling": [
                    {
                        "image": pull.image,
                        "missing_mb": optional(pull, "missing_mb"),
                        "age_s": optional(pull, "age_s"),
                    }
                    for pull in node.pulling
                ],
            }
            for node in answer.nodes
        ],
        "registries": [
            {
                "name": registry.name,
                "wanted": registry.wanted,
                "images": registry.images,
                "why": registry.why or None,
                "retry_s": optional(registry, "retry_s"),
            }
            for registry in answer.registries
        ],
    }


def tables(answer: pb.ListImagesResponse, *, wide: bool = False) -> Iterator[RenderableType]:
    """The nodes, the pulls under way and the registries; with `wide` each node's images, too."""
    if not answer.nodes:
        yield Text("the cluster has no nodes, or has not answered yet")
        return
    rows = (_row(node) for node in answer.nodes)
    yield table(("NODE", "ARCH", *_COLUMNS), rows, numbers=_COLUMNS)
    pulling = [(node.node, pull) for node in answer.nodes for pull in node.pulling]
    if pulling:
        yield Text()
        yield _pulls(pulling)
    if wide:
        yield Text()
        yield _images(answer.nodes)
    yield Text()
    if not answer.registries:
        yield cell(
            "no registry is asked for layers: images.enabled is false, or no pod names any", DIM
        )
        return
    yield _registries(answer.registries)


def _row(node: pb.NodeImages) -> tuple[object, ...]:
    return (
        node.node,
        node.architecture or human.UNKNOWN,
        len(node.images),
        human.number(node.held_mb),
        human.number(node.queue_mb),
        human.number(optional(node, "pull_mbps")),
        human.number(optional(node, "pull_overhead_s")),
        node.pulls,
    )


def _pulls(pulling: Iterable[tuple[str, pb.PullStatus]]) -> RenderableType:
    rows = (
        (
            node,
            pull.image,
            human.number(optional(pull, "missing_mb")),
            human.age(optional(pull, "age_s")) if pull.HasField("age_s") else "waits",
        )
        for node, pull in pulling
    )
    columns = ("NODE", "PULLS", "MISSING MB", "SINCE")
    return table(columns, rows, numbers=("MISSING MB", "SINCE"), keys=2)


def _images(nodes: Iterable[pb.NodeImages]) -> RenderableType:
    rows = (
        (
            node.node,
            image.name,
            human.number(optional(image, "size_mb")),
            image.layers or human.UNKNOWN,
            "yes" if image.used else "",
        )
        for node in nodes
        for image in node.images
    )
    columns = ("NODE", "IMAGE", "MB", "LAYERS", "USED")
    return table(columns, rows, numbers=("MB", "LAYERS"), keys=2)


def _registries(registries: Iterable[pb.RegistryStatus]) -> RenderableType:
    rows = (
        (
            registry.name,
            cell(
                f"{registry.images} of {registry.wanted}",
                "" if registry.images == registry.wanted else "yellow",
            ),
            registry.why,
            human.age(registry.retry_s) if registry.HasField("retry_s") else "",
        )
        for registry in registries
    )
    columns = ("REGISTRY", "IMAGES KNOWN", "WHY NOT", "ASKED IN")
    return table(columns, rows, numbers=("ASKED IN",))
