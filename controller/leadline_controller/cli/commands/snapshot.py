"""Write the cluster, as the controller sees it now, as a snapshot."""

import json
from typing import Any

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli.client import Endpoint, connected, connection_options
from leadline_controller.cli.output import working

_TIMEOUT_S = 120.0  # a thousand boards take seconds
_WIDTH = 120  # of lines


@click.command(epilog="Example: leadline snapshot | leadline score --snapshot - -o wide")
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace the names of nodes, pods, namespaces, images, label values and so on by numbers, "
    "so that strangers may read it; decisions on it stay the same.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="Format; JSON is read faster.",
)
@connection_options
def snapshot(output: str, anonymize: bool, endpoint: Endpoint) -> None:
    """Write what decisions depend on, as the controller sees it now, to standard output: for
    'leadline score', or a bug report. It holds no environments, arguments, commands or secrets of
    pods, anonymized or not."""
    with (
        working(f"asking the controller at {endpoint.address}"),
        connected(endpoint) as controller,
    ):
        parts = controller.GetSnapshot(
            pb.GetSnapshotRequest(anonymous=anonymize), timeout=_TIMEOUT_S
        )
        text = b"".join(part.json for part in parts).decode()
    if output == "json":
        click.echo(text)
        return
    import yaml

    # libyaml's is ten times as fast, where PyYAML has it.
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": _WIDTH}
    click.echo(yaml.dump(json.loads(text), Dumper=dumper, **options), nl=False)
