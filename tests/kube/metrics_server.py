"""Runs metrics-server, as it is released, in a lab, for the control plane outside of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leadline_lab.processes import wait_listening
from leadline_lab.spec import SERVER

from tests.kube.aggregation import aggregated, is_available
from tests.kube.daemon import toolchain
from tests.kube.gobuild import installed, print_built
from tests.lab.running import RunningLab
from tests.support.ports import wait_until

PACKAGE, VERSION = "sigs.k8s.io/metrics-server/cmd/metrics-server", "v0.9.0"
GROUP = "metrics.k8s.io"
# Of a lab's kubelets, which only hosts of the lab reach.
KUBELET: Mapping[str, Any] = {
    "enableServer": True,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
_NAME, _PORT = "metrics-server", 4443
_START_S = 120.0


def program(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the program, building it unless the cache has it."""
    return installed(toolchain(environ), PACKAGE, VERSION, environ)


@contextmanager
def metrics_server(running: RunningLab) -> Iterator[None]:
    """Serve metrics.k8s.io for the block. The lab's kubelets must be configured as KUBELET."""
    login = running.kubeconfig
    flags = [
        *(f"--{name}kubeconfig={login}" for name in ("", "authentication-", "authorization-")),
        "--authentication-tolerate-lookup-failure",
        *("--bind-address=127.0.0.1", f"--secure-port={_PORT}"),
        f"--cert-dir={running.lab.directory / _NAME}",
        *("--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP"),
        # As often as it can.
        *("--metric-resolution=10s", "--kubelet-request-timeout=5s"),
    ]
    process = running.lab.start(SERVER, _NAME, [str(program()), *flags])
    wait_listening(process, _PORT, _START_S)
    with (
        running.reach(SERVER, _PORT, "127.0.0.1") as port,
        aggregated(running.api, GROUP, _NAME, "kube-system", port),
    ):
        wait_until(
            lambda: is_available(running.api, GROUP), "the metrics API is available", _START_S
        )
        yield


if __name__ == "__main__":
    print_built(program)
