"""Show the images of each node, and how fast it pulls them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
from leadline_wire.v1 import images_pb2 as pb
from rich.console import RenderableType
from rich.text import Text

from leadline_controller.cli import human
from leadline_controller.cli.client import (
    Endpoint,
    ask,
    connection_options,
    optional,
    plain,
    selected,
)
from leadline_controller.cli.listing import Listed, listing
from leadline_controller.cli.output import DIM, cell, table

_COLUMNS = ("IMAGES", "MB", "QUEUE\nMB", "PULLS\nMbit/s", "OVERHEAD\ns", "SEEN")


@click.command(epilog="Example: leadline images -o wide")
@listing(
    {
        **{"node": "node", "arch": "architecture", "mb": "held_mb", "queue": "queue_mb"},
        **{"pulls": "pull_mbps", "overhead": "pull_overhead_s", "seen": "pulls"},
    },
    selects=True,
)
@connection_options
def images(selector: str, endpoint: Endpoint) -> Listed[pb.NodeImages]:
    """Show the images and layers of each node, its download queue, how fast its pulls are, and
    which registries tell the images' layers."""
    answer = ask(endpoint, lambda stub: stub.ListImages, pb.ListImagesRequest)
    is_selected = selected(endpoint, selector)

    def whole(documents: list[dict[str, Any]]) -> dict[str, Any]:
        facts = "name wanted images why? retry_s"
        return {
            "nodes": documents,
            "registries": [plain(each, facts) for each in answer.registries],
        }

    return Listed(
        "node",
        [node for node in answer.nodes if is_selected(node.node)],
        key=lambda node: node.node,
        document=document,
        whole=whole,
        tables=lambda nodes, wide: tables(answer, nodes, wide=wide),
    )


def document(node: pb.NodeImages) -> dict[str, Any]:
    """One node. Sizes in MB of 10^6 bytes."""
    return {
        **plain(node, "node architecture? held_mb queue_mb pull_mbps pull_overhead_s pulls"),
        "images": [plain(each, "name size_mb layers? used") for each in node.images],
        "pulling": [plain(each) for each in node.pulling],
    }


def tables(
    answer: pb.ListImagesResponse, nodes: Sequence[pb.NodeImages], *, wide: bool
) -> Iterator[RenderableType]:
    """The nodes, the pulls under way and the registries; with `wide` each node's images, too."""
    if not nodes:
        yield Text("the cluster has no such nodes, or has not answered yet")
        return
    yield table(("NODE", "ARCH", *_COLUMNS), map(_row, nodes), numbers=_COLUMNS)
    pulling = [(node.node, pull) for node in nodes for pull in node.pulling]
    if pulling:
        yield Text()
        yield _pulls(pulling)
    if wide:
        yield Text()
        yield _images(nodes)
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
