"""Runs the stock kube-scheduler, to be compared with and to be extended."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kube.control_plane import ControlPlane
from tests.kube.daemon import Daemon, daemon

Config = dict[str, Any]


@contextmanager
def kube_scheduler(
    plane: ControlPlane,
    config: Mapping[str, Any] | None = None,
    *,
    qps: float | None = None,
    burst: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Daemon]:
    """Yield kube-scheduler at work on `plane`; arguments as in `scheduler_config`.

    Raises ControlPlaneError where it does not start, as with a configuration that it refuses.
    """
    whole = scheduler_config(plane.kubeconfig, config, qps=qps, burst=burst)
    with tempfile.TemporaryDirectory(prefix="leadline-scheduler-") as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(whole))
        # Otherwise only an admin may read them, and nothing here could check who is one.
        open_paths = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"
        with daemon("kube-scheduler", [f"--config={file}", open_paths], environ) as running:
            yield running


def scheduler_config(
    kubeconfig: Path,
    config: Mapping[str, Any] | None = None,
    *,
    qps: float | None = None,
    burst: int | None = None,
) -> Config:
    """Return a KubeSchedulerConfiguration of one scheduler without leader election.

    The top-level fields of `config` go over it. `qps` (calls per second) and `burst` (calls) limit
    the client; None leaves kube-scheduler's defaults, 50 and 100.
    """
    given = dict(config or {})
    limits = {name: value for name, value in (("qps", qps), ("burst", burst)) if value is not None}
    connection = {**given.pop("clientConnection", {}), "kubeconfig": str(kubeconfig), **limits}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **given,
        "clientConnection": connection,
    }
