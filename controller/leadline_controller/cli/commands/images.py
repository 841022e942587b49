"""Show the images of each node, and how fast it pulls them."""

import click
from leadline_wire.v1 import images_pb2 as pb

from leadline_controller.cli import images as shown
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline images -o wide")
@output_option
@connection_options
def images(output: Format, endpoint: Endpoint) -> None:
    """Show the images and layers of each node, its download queue, how fast its pulls are, and
    which registries tell the images' layers."""
    answer = ask(endpoint, lambda stub: stub.ListImages, pb.ListImagesRequest)
    emit(output, lambda: shown.document(answer), lambda wide: shown.tables(answer, wide=wide))
