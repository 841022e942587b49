"""`leadline kube manifests`: the controller's account and rights, for kubectl."""

from importlib.resources import files

import click


@click.command(epilog="Example: leadline kube manifests | kubectl apply -f -")
def manifests() -> None:
    """Print the service account of the controller and the smallest rights with which it
    works, as YAML."""
    folder = files("leadline_controller.kube") / "manifests"
    click.echo(folder.joinpath("rights.yaml").read_text("utf-8"), nl=False)
