"""`leadline kube`: what a Kubernetes cluster needs to know of Leadline."""

import click

from leadline_controller.cli.kube_extender import extender_config


@click.group(
    no_args_is_help=False,
    epilog="Example: leadline kube extender-config > /etc/leadline/kube-scheduler.yaml",
)
def kube() -> None:
    """Print what a Kubernetes cluster needs, ready to be applied."""


kube.add_command(extender_config)
