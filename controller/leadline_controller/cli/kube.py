"""`leadline kube`: what a Kubernetes cluster needs to know of Leadline."""

import click

from leadline_controller.cli.kube_extender import extender_config
from leadline_controller.cli.kube_manifests import manifests


@click.group(
    no_args_is_help=False,
    epilog="Example: leadline kube extender-config > /etc/leadline/kube-scheduler.yaml",
)
def kube() -> None:
    """Print what a Kubernetes cluster needs, ready to be applied."""


kube.add_command(manifests)
kube.add_command(extender_config)
