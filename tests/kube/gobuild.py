"""Builds the Go control plane once and keeps it for every later run.

A build takes minutes and a test run should not, so the binary is kept in the user's cache under
a name made of everything that goes into it. Test runs that start at once wait for one build.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kube.sources import MODULE, ControlPlaneError, kubernetes_version

COMPLAINT_LINES = 5


def built(go: Path, environ: Mapping[str, str]) -> Path:
    """Return the control plane binary, building it with `go` unless the cache has it."""
    home = _cache(environ) / f"controlplane-{_fingerprint(go, environ)}"
    binary = home / "controlplane"
    if binary.is_file():
        return binary
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / "lock"):
        if not binary.is_file():
            print("building the test control plane (a few minutes, once)", file=sys.stderr)
            _build(go, environ, binary)
    return binary


def _build(go: Path, environ: Mapping[str, str], binary: Path) -> None:
    # The linker would otherwise leave a version of v0.0.0 for the API to report.
    version = f"-X k8s.io/component-base/version.gitVersion={kubernetes_version()}"
    half_made = binary.with_name(f"{binary.name}.{os.getpid()}")
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {version}"]
    try:
        done = subprocess.run(
            [go, "build", *flags, "-o", half_made, "."],
            cwd=MODULE,
            env={**environ, "CGO_ENABLED": "0"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            complaint = " | ".join(done.stderr.strip().splitlines()[-COMPLAINT_LINES:])
            raise ControlPlaneError(f"`go build` failed in {MODULE}: {complaint}")
        half_made.replace(binary)
    finally:
        half_made.unlink(missing_ok=True)


def _fingerprint(go: Path, environ: Mapping[str, str]) -> str:
    asked = subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        cwd=MODULE,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    digest = hashlib.sha256(asked.stdout.encode())
    for file in sorted(file for file in MODULE.iterdir() if file.is_file()):
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/")) / ".cache"
    return Path(base) / "leadline"


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
