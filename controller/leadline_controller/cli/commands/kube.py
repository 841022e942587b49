"""Print what a Kubernetes cluster needs: rights, and the extender's configuration."""

import re
from importlib.resources import files
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import click
import yaml

from leadline_controller.cli.errors import BadInput
from leadline_controller.parsing.addresses import is_loopback

_KUBECONFIG = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
_SECRET = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DURATION = re.compile(r"([0-9]+(\.[0-9]+)?(ms|s))+")
_USE = """\
# Keep it as /etc/leadline/kube-scheduler.yaml on every server node. On k3s name it in
# /etc/rancher/k3s/config.yaml.d/leadline.yaml (the + keeps what is set elsewhere):
#   kube-scheduler-arg+:
#   - config=/etc/leadline/kube-scheduler.yaml
# then: systemctl restart k3s. A file that kube-scheduler refuses stops the whole k3s server:
# docs/k3s.md tells how to check it before and how to go back.
"""
_USE_BIND = """\
# bindVerb: the controller needs bind = true in [extender] of /etc/leadline/controller.toml.
"""


@click.group(
    no_args_is_help=False,
    epilog="Example: leadline kube extender-config > /etc/leadline/kube-scheduler.yaml",
)
def kube() -> None:
    """Print what a Kubernetes cluster needs, as files to apply or install."""


@kube.command(epilog="Example: leadline kube manifests | kubectl apply -f -")
@click.option(
    "--rescheduling",
    is_flag=True,
    help="With the rights to move pods, for mode = manual or automatic in the section "
    "[rescheduling] of the controller's settings.",
)
@click.option(
    "--notify",
    is_flag=True,
    help="With the right to keep what was told, for notify.url; --rescheduling has it.",
)
@click.option(
    "--pull-secret",
    "pull_secrets",
    metavar="NAMESPACE/NAME",
    multiple=True,
    help="Allow reading this pull secret, too, for images.pull_secrets; may be repeated.",
)
@click.option(
    "--deletion-cost",
    is_flag=True,
    help="Also let it annotate pods, for leadline.dev/deletion-order and kubernetes.deletion_cost.",
)
@click.option(
    "--preemption/--no-preemption",
    default=True,
    show_default=True,
    help="Let it delete pods and patch their status, for kubernetes.preemption.",
)
@click.option(
    "--metrics-api/--no-metrics-api",
    default=True,
    show_default=True,
    help="Let it ask what running pods use, for kubernetes.metrics_api.",
)
@click.option(
    "--agents",
    is_flag=True,
    help="With the account of agents that are pods, and the right to sign their certificates, for "
    "the section [issuing].",
)
def manifests(
    rescheduling: bool,
    notify: bool,
    pull_secrets: tuple[str, ...],
    deletion_cost: bool,
    preemption: bool,
    metrics_api: bool,
    agents: bool,
) -> None:
    """Print the controller's service account with the least rights that it needs, as YAML. A
    policy, of Kubernetes 1.30 or newer, limits them to single fields."""
    folder = files("leadline_controller.kube") / "manifests"
    parts = ["rights.yaml", *(["preemption.yaml"] if preemption else [])]
    parts += ["metrics-api.yaml"] if metrics_api else []
    parts += ["notes.yaml"] if rescheduling or notify else []
    parts += ["rescheduling.yaml"] if rescheduling else []
    # A move says which pod of a ReplicaSet goes first.
    parts += ["deletion-cost.yaml"] if deletion_cost or rescheduling else []
    parts += ["agents/rights.yaml"] if agents else []
    texts = (folder.joinpath(part).read_text("utf-8") for part in parts)
    click.echo("---\n".join(texts), nl=False)
    by_namespace: dict[str, list[str]] = {}
    for key in dict.fromkeys(pull_secrets):
        if not _SECRET.fullmatch(key):
            raise BadInput(f"--pull-secret {key}: expected NAMESPACE/NAME")
        namespace, _, name = key.partition("/")
        by_namespace.setdefault(namespace, []).append(name)
    for namespace, names in by_namespace.items():
        for manifest in _secret_rights(namespace, names):
            click.echo("---\n" + yaml.safe_dump(manifest, sort_keys=False), nl=False)


def _secret_rights(namespace: str, names: list[str]) -> list[dict[str, object]]:
    """The right to read these secrets and no others."""
    metadata = {"name": "leadline-controller-pull-secrets", "namespace": namespace}
    group, account = "rbac.authorization.k8s.io", "leadline-controller"
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
            "subjects": [subject],
        },
    ]


@kube.command(
    "extender-config",
    epilog="Example: leadline kube extender-config --address https://10.0.0.5:25506 "
    "--ca /etc/leadline/ca.pem --cert /etc/leadline/cert.pem --key /etc/leadline/key.pem",
)
@click.option(
    "--address",
    default="http://127.0.0.1:25506",
    show_default=True,
    help="URL of the controller's extender, as kube-scheduler reaches it.",
)
@click.option("--ca", metavar="FILE", help="The authority of the controller's certificate.")
@click.option("--cert", metavar="FILE", help="kube-scheduler's certificate.")
@click.option("--key", metavar="FILE", help="The private key of that certificate.")
@click.option(
    "--weight",
    type=click.IntRange(1, 10_000_000),
    default=10,
    show_default=True,
    help="The weight of Leadline's scores beside kube-scheduler's own: with 10 each of its ten "
    "points is worth a plugin's whole score, with 200 or more it always decides.",
)
@click.option(
    "--bind",
    is_flag=True,
    help="Let Leadline bind the pods; needs an https address, and bind = true in the "
    "controller's section [extender].",
)
@click.option(
    "--ignorable/--no-ignorable",
    default=True,
    show_default=True,
    help="Whether pods are scheduled while Leadline does not answer.",
)
@click.option(
    "--node-cache-capable/--no-node-cache-capable",
    default=True,
    show_default=True,
    help="Whether kube-scheduler sends the names of nodes only, not the whole objects.",
)
@click.option(
    "--timeout",
    default="5s",
    show_default=True,
    help="How long kube-scheduler waits for an answer.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    default=_KUBECONFIG,
    show_default=True,
    help="kube-scheduler's own, as k3s makes it; with kubeadm: /etc/kubernetes/scheduler.conf.",
)
def extender_config(
    address: str,
    ca: str | None,
    cert: str | None,
    key: str | None,
    weight: int,
    bind: bool,
    ignorable: bool,
    node_cache_capable: bool,
    timeout: str,
    kubeconfig: str,
) -> None:
    """Print kube-scheduler's configuration file, with Leadline as its extender.

    The paths of files are those on the machine that runs kube-scheduler.
    """
    tls = _tls(address, ca, cert, key)
    if bind and tls is None:
        raise BadInput(
            f"--bind: expected an https address, got {address}, because the controller binds only "
            "for clients with a certificate"
        )
    if not _DURATION.fullmatch(timeout):
        raise BadInput(f"--timeout {timeout}: expected a duration such as 5s or 2500ms")
    extender = {
        "urlPrefix": address.rstrip("/"),
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        **({"bindVerb": "bind"} if bind else {}),
        "weight": weight,
        "enableHTTPS": tls is not None,
        **({"tlsConfig": tls} if tls else {}),
        "httpTimeout": timeout,
        "nodeCacheCapable": node_cache_capable,
        "ignorable": ignorable,
    }
    whole = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": _absolute("--kubeconfig", kubeconfig)},
        "extenders": [extender],
    }
    use = _USE + (_USE_BIND if bind else "")
    click.echo(use + yaml.safe_dump(whole, sort_keys=False), nl=False)


def _tls(address: str, ca: str | None, cert: str | None, key: str | None) -> dict[str, str] | None:
    """The files for an https address. None for http, which is only for this machine, where nobody
    can read or change the traffic."""
    try:
        url = urlsplit(address)
        host, _ = url.hostname or "", url.port
    except ValueError as error:
        raise BadInput(f"--address {address}: {error}") from None
    if url.scheme not in ("http", "https") or not host or url.query or url.fragment:
        raise BadInput(f"--address {address}: expected https://host:port")
    if url.scheme == "http" and not is_loopback(host):
        raise BadInput(f"--address {address}: expected https, because {host} is another machine")
    files = {"--ca": ca, "--cert": cert, "--key": key}
    given = {name: _absolute(name, file) for name, file in files.items() if file is not None}
    if url.scheme == "http":
        if given:
            raise BadInput(f"{', '.join(given)}: expected with an https address only")
        return None
    if len(given) < len(files):
        missing = ", ".join(name for name in files if name not in given)
        raise BadInput(f"{missing}: missing; the controller needs a client certificate")
    return {"caFile": given["--ca"], "certFile": given["--cert"], "keyFile": given["--key"]}


def _absolute(option: str, file: str) -> str:
    if not PurePosixPath(file).is_absolute():
        raise BadInput(f"{option} {file}: expected an absolute path, for kube-scheduler's machine")
    return file
