"""Runs the stock kube-controller-manager with only the controllers that a test asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.kube.control_plane import ControlPlane
from tests.kube.daemon import Daemon, daemon


@contextmanager
def kube_controller_manager(
    plane: ControlPlane,
    controllers: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    options: Sequence[str] = (),
) -> Iterator[Daemon]:
    """Yield the `controllers` at work on `plane`, by their names in Kubernetes' documentation.

    Such as persistentvolume-binder-controller, deployment-controller, replicaset-controller and
    disruption-controller. `options` are more flags of the program.
    Raises ControlPlaneError where they do not start.
    """
    flags = [
        f"--kubeconfig={plane.kubeconfig}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        *options,
    ]
    with daemon("kube-controller-manager", flags, environ) as running:
        yield running
