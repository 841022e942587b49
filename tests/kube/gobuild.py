"""Builds the Go programs that tests need once and keeps them for every later run.

A build takes minutes and a test run should not, so a binary is kept in the user's cache under
a name made of everything that goes into it. Test runs that start at once wait for one build.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kube.sources import MODULE, ControlPlaneError, kubernetes_version, module_versions

KEDA_MODULE = Path(__file__).parent / "kedamodule"
COMPLAINT_LINES = 5


def print_built(build: Callable[[], object]) -> None:
    """Build ahead of the tests, and print where; exit 1 with one line where that fails."""
    try:
        print(build())
    except ControlPlaneError as error:
        sys.exit(str(error))


def built(go: Path, environ: Mapping[str, str]) -> Path:
    """Return the control plane binary, building it with `go` unless the cache has it."""
    versions = module_versions(environ)
    sources = (
        versions / file.name if file.name in ("go.mod", "go.sum") else file
        for file in _files(MODULE)
    )
    return _of_module("controlplane", go, environ, ".", *sources)


def built_kubelet(go: Path, environ: Mapping[str, str]) -> Path:
    """Return the program kubelet of the same module, in the same way."""
    versions = module_versions(environ)
    modules = (versions / "go.mod", versions / "go.sum")
    return _of_module("kubelet", go, environ, "./kubelet", *modules, *_files(MODULE / "kubelet"))


def _of_module(
    name: str, go: Path, environ: Mapping[str, str], package: str, *sources: Path
) -> Path:
    # The linker would otherwise leave a version of v0.0.0 for the program to report.
    version = f"-X k8s.io/component-base/version.gitVersion={kubernetes_version(environ)}"
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {version}"]
    versions = module_versions(environ)
    if versions != MODULE:
        flags.append(f"-modfile={versions / 'go.mod'}")
    home = f"{name}-{_fingerprint(go, environ, *sources)}"

    def build(folder: Path) -> None:
        print(f"building the test {name} (a few minutes, once)", file=sys.stderr)
        _run([go, "build", *flags, "-o", str(folder / name), package], environ)

    return kept(cache(environ) / home / name, build)


def built_module(module: Path, go: Path, environ: Mapping[str, str]) -> Path:
    """Return the program of a Go module that needs no other, building it unless the cache has
    it."""
    home = f"{module.name}-{_fingerprint(go, environ, *_files(module))}"

    def build(folder: Path) -> None:
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        _run([go, "build", *flags, "-o", str(folder / module.name), "."], environ, module)

    return kept(cache(environ) / home / module.name, build)


def installed(
    go: Path, package: str, version: str, environ: Mapping[str, str], *, with_c: bool = False
) -> Path:
    """Return the program of a released Go `package`, installing it unless the cache has it.

    `with_c`: it has parts in C, so it needs a C compiler.
    """
    name = package.rpartition("/")[2]
    home = f"{name}-{version}-{_fingerprint(go, environ)}"

    def install(folder: Path) -> None:
        print(f"installing {name} {version} (a few minutes, once)", file=sys.stderr)
        flags = ["-trimpath", "-ldflags", "-s -w"]
        program = f"{package}@{version}"
        there = {**environ, "GOBIN": str(folder)}
        _run([go, "install", *flags, program], there, with_c=with_c)

    return kept(cache(environ) / home / name, install)


def keda(go: Path, environ: Mapping[str, str]) -> Path:
    """Return a folder with KEDA's `operator` and `adapter`, and its CRDs in `crds`, building them
    with `go` unless the cache has them."""
    module = KEDA_MODULE
    home = f"keda-{_fingerprint(go, environ, module / 'go.mod', module / 'go.sum')}"
    released = "github.com/kedacore/keda/v2"

    def build(folder: Path) -> None:
        print("building KEDA (a few minutes, once)", file=sys.stderr)
        (folder / "keda").mkdir()
        packages = [f"{released}/cmd/operator", f"{released}/cmd/adapter"]
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
        _run([go, "build", *flags, "-o", f"{folder}/keda/", *packages], environ, module)
        found = _run([go, "list", "-m", "-f", "{{.Dir}}", released], environ, module)
        shutil.copytree(Path(found.strip()) / "config/crd/bases", folder / "keda" / "crds")

    return kept(cache(environ) / home / "keda", build)


def kept(binary: Path, make: Callable[[Path], None]) -> Path:
    """Let `make` put the binary, or a folder of that name, into a folder, unless it is kept
    already."""
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with _locked(binary.parent / "lock"):
        if not binary.exists():
            with tempfile.TemporaryDirectory(dir=binary.parent) as half_made:
                make(Path(half_made))
                (Path(half_made) / binary.name).replace(binary)
    return binary


def _run(
    command: Sequence[str | Path],
    environ: Mapping[str, str],
    module: Path = MODULE,
    *,
    with_c: bool = False,
) -> str:
    done = subprocess.run(
        command,
        cwd=module,
        env={**environ, "CGO_ENABLED": str(int(with_c))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        complaint = " | ".join(done.stderr.strip().splitlines()[-COMPLAINT_LINES:])
        raise ControlPlaneError(f"`go {command[1]}` failed in {module}: {complaint}")
    return done.stdout


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file())


def _fingerprint(go: Path, environ: Mapping[str, str], *sources: Path) -> str:
    asked = subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        cwd=MODULE,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
    )
    digest = hashlib.sha256(asked.stdout.encode())
    for file in sources:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def cache(environ: Mapping[str, str]) -> Path:
    """Return the folder that keeps what tests build."""
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/")) / ".cache"
    return Path(base) / "leadline"


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
