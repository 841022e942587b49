"""`leadline kube`: what a Kubernetes cluster needs to know of Leadline."""

import click

from leadline_controller.cli.kube_manifests import manifests


@click.group(epilog="Example: leadline kube manifests | kubectl apply -f -")
def kube() -> None:
    """Print what a Kubernetes cluster needs, ready to be applied."""


kube.add_command(manifests)
