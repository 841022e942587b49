"""Helm as it is released, built once from its Go module into the user's cache folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.kube.daemon import toolchain
from tests.kube.gobuild import installed, print_built

CHART = Path(__file__).parents[2] / "controller" / "deploy" / "helm" / "leadline"
PACKAGE = "helm.sh/helm/v4/cmd/helm"
VERSION = "v4.3.1"
RELEASE = ("leadline", str(CHART), "--namespace=kube-system")
_TIMEOUT_S = 600


class HelmError(Exception):
    """Helm failed; str() is what it said."""


def program(environ: Mapping[str, str] = os.environ) -> Path:
    """Return Helm, building it if need be. Raises ControlPlaneError."""
    return installed(toolchain(environ), PACKAGE, VERSION, environ)


def helm(*arguments: str | Path, home: Path) -> str:
    """Run Helm with its own files in `home`; what it printed. Raises HelmError."""
    done = subprocess.run(
        [program(), *arguments],
        env={**os.environ, "HELM_CACHE_HOME": f"{home}/cache", "HELM_CONFIG_HOME": f"{home}/config"}
        | {"HELM_DATA_HOME": f"{home}/data"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise HelmError(done.stderr.strip())
    return done.stdout


def values_file(home: Path, values: Mapping[str, Any]) -> str:
    """Write these values and return the flag that names the file."""
    file = home / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    return f"--values={file}"


if __name__ == "__main__":
    print_built(program)
