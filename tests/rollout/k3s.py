"""A stand-in for k3s on the server of the rollout's tests.

What it stands for: k3s' unit with its restarts, its paths and ports, its files in
config.yaml.d, `k3s kubectl`, and a real Kubernetes API of the release that tests/kube builds:
etcd, kube-apiserver, the controllers that make service accounts and their tokens, and
kube-scheduler with the configuration that it is given, which takes the whole server along when
it refuses that. What it does not stand for: there is no kubelet, no container and no cluster
network. The nodes are registered by the server itself and stay ready whatever their boards do,
a pod that is bound never runs, and the API listens on this machine only. Its admin's kubeconfig
has a token, where k3s has a certificate.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.kube.daemon import program
from tests.rollout.machines import MachineExtras

_UNIT = """\
[Unit]
Description=Lightweight Kubernetes, a stand-in
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart=/usr/local/bin/k3s server {nodes}
# kube-apiserver says by itself that it is ready, before the nodes are there.
Environment=HOME=/root
ExecStartPost=/usr/bin/timeout 60 sh -c 'until kubectl get node server; do sleep 0.2; done'
KillMode=process
LimitNOFILE=1048576
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
"""
_KUBECTL = """\
#!/bin/sh
exec /usr/local/bin/k3s kubectl "$@"
"""


def k3s_server(nodes: Mapping[str, tuple[str, str]]) -> MachineExtras:
    """What the server has besides its image; `nodes` are the (address, architecture), such as
    ("10.77.0.11", "arm64"), of the machines that Kubernetes knows, by name.

    Builds the program if need be. Raises ControlPlaneError where there is no Go that could.
    """
    return MachineExtras(
        binds={"/usr/local/bin/k3s": program()},
        files={
            "/etc/systemd/system/k3s.service": (k3s_unit(nodes), 0o644),
            "/usr/local/bin/kubectl": (_KUBECTL, 0o755),
        },
        enabled=("k3s.service",),
    )


def k3s_unit(nodes: Mapping[str, tuple[str, str]]) -> str:
    """The unit k3s.service."""
    flags = [f"--node {name}={address}/{kind}" for name, (address, kind) in nodes.items()]
    return _UNIT.format(nodes=" ".join(flags))
