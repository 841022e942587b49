"""Explain why a pod is where it is."""

import click
from leadline_wire.v1 import control_pb2 as pb

from leadline_controller.cli import decisions, names
from leadline_controller.cli.client import Endpoint, ask, connection_options
from leadline_controller.cli.output import Format, emit, output_option


@click.command(epilog="Example: leadline explain default/web-1")
@click.argument("pod", shell_complete=names.pods)
@click.option("-n", "--namespace", default="default", help="Of a pod without one in its name.")
@output_option
@connection_options
def explain(pod: str, namespace: str, output: Format, endpoint: Endpoint) -> None:
    """Explain why POD (namespace/name, or a name in --namespace) is where it is: the score of every
    node, the measured values that entered it and their ages, and why other nodes were rejected.
    Exit code 1 when there is no decision about the pod."""
    key = pod if "/" in pod else f"{namespace}/{pod}"
    with names.suggesting(names.pods, key):
        answer = ask(endpoint, lambda stub: stub.ExplainPod, pb.ExplainPodRequest, pod=key)
    emit(
        output,
        lambda: decisions.explanation(answer),
        lambda wide: decisions.explanation_tables(answer, wide=wide),
    )
