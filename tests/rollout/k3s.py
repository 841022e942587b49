"""A replacement for k3s on the server of the rollout's tests.

Like k3s it has a unit with restarts, paths and ports, files in config.yaml.d, `k3s kubectl`, and a
real Kubernetes API of the release that tests/kube builds: etcd, kube-apiserver, the controllers
that make service accounts and their tokens, and kube-scheduler with its configuration file. If
kube-scheduler refuses the file, the whole server ends. Unlike k3s it has no kubelet, no container
and no cluster network. The server itself registers the nodes, which stay ready whatever their
boards do. A bound pod never runs. The API listens on this machine only. The admin's kubeconfig has
a token, where k3s has a certificate.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.kube.daemon import program
from tests.rollout.machines import MachineExtras

_UNIT = """\
[Unit]
Description=Lightweight Kubernetes, for tests
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart=/usr/local/bin/k3s server {nodes}
# kube-apiserver reports that it is ready before the nodes exist.
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
    """The server's additions to its image. nodes: name -> (address, architecture), such as
    ("10.77.0.11", "arm64"), of the nodes in Kubernetes.

    Builds the program if it is missing. Raises ControlPlaneError if Go is missing.
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
