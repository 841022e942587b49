"""`make image`: images of controller, agent and broker, as OCI archives, without a daemon.

Each is a root of a few Debian packages. The two of Python have the wheels of a lock on it, and then
our own, so that a new release is a small download. Python's bytecode is made by the interpreter
of the image, because the image's root can't be written to when it runs.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from leadline_bundle import debian, oci
from leadline_bundle.build import PARTS, release_version
from leadline_bundle.commands import Command
from leadline_bundle.debian import Package
from leadline_bundle.lock import read_lock
from leadline_bundle.oci import File
from leadline_bundle.targets import Target
from leadline_bundle.tools import BundleError, Cache
from leadline_bundle.wheels import EPOCH_S, Wheels

# Go's and Debian's name of an architecture -> what uname calls it.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# Names of images that no registry has: whoever pushes them gives them another.
REGISTRY = "localhost"
USER = 65532
PYTHON = "3.11"
_LIBC = ("base-files", "gcc-12-base", "libc6", "libgcc-s1")
# With openssl, which signs the certificates of agents, and makes their keys.
_PYTHON = (
    *_LIBC,
    *("ca-certificates", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libsqlite3-0", "libssl3", "libstdc++6"),
    *("libuuid1", "openssl", "zlib1g"),
)
_AGENT, _BROKER, _CONTROLLER = "leadline-agent", "leadline-broker", "leadline-controller"
_LICENSES = {
    _AGENT: "Apache-2.0",
    _BROKER: "EPL-2.0 OR BSD-3-Clause",
    _CONTROLLER: "Apache-2.0",
}
# Image -> the packages of its root.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    _AGENT: (*_PYTHON, "libiperf0", "libsctp1"),
    _CONTROLLER: _PYTHON,
    _BROKER: (
        *_LIBC,
        *("mosquitto", "libcap2", "libdlt2", "libssl3", "libsystemd0", "libwrap0"),
        # What these need.
        *("libcom-err2", "libgcrypt20", "libgpg-error0", "libgssapi-krb5-2", "libk5crypto3"),
        *("libkeyutils1", "libkrb5-3", "libkrb5support0", "liblz4-1", "liblzma5", "libnsl2"),
        *("libtirpc3", "libzstd1"),
    ),
}
_SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
# Modules of the standard library whose libraries are not there; and what only compilers read.
_UNUSED = (
    *(f"usr/lib/python{PYTHON}/lib-dynload/{name}.*" for name in ("_crypt", "_curses", "_dbm")),
    *(f"usr/lib/python{PYTHON}/lib-dynload/{name}.*" for name in ("_curses_panel", "nis")),
    f"usr/lib/python{PYTHON}/lib-dynload/readline.*",
    *(f"*.{ending}" for ending in ("pyi", "pyx", "pxd", "h", "c", "a")),
    f"{_SITE}/*/tests/*",
)
# kube/library.py of the controller goes without the generated models of its client library.
_MODELS = f"{_SITE}/kubernetes_asyncio/client/"
_PROGRAM = """\
#!/usr/bin/python3.11 -I
import sys

from {module} import main

sys.exit(main())
"""
_DIGESTS = """\
# Values for the chart, beside the names of the images in a registry: it then takes these, and
# no others of the same tag.
image: {{digest: "{controller}"}}
broker: {{image: {{digest: "{broker}"}}}}
agent: {{image: {{digest: "{agent}"}}}}
"""
# Image -> its programs and their modules.
_PROGRAMS = {
    _AGENT: {
        "leadline-agent": "leadline_agent.__main__",
        "leadline-enroll": "leadline_agent.enroll",
    },
    _CONTROLLER: {
        "leadline": "leadline_controller.cli.__main__",
        "leadline-controller": "leadline_controller.__main__",
    },
}


@dataclass(frozen=True, slots=True)
class Build:
    """What all steps need. time_s: of all files, since the epoch."""

    source: Path
    version: str
    locked: Sequence[Package]
    cache: Cache
    environ: Mapping[str, str]
    sources: Path | None
    time_s: int

    def root(self, architecture: str, names: Iterable[str]) -> dict[str, File]:
        """The files of these Debian packages, and the users. Raises BundleError."""
        packages = [
            each for each in self.locked if each.architecture == architecture and each.name in names
        ]
        if missing := set(names) - {each.name for each in packages}:
            absent = ", ".join(sorted(missing))
            raise BundleError(f"{debian.LOCK}: no {absent} for {architecture}: `make image-lock`")
        debs = debian.downloaded(packages, self.cache, self.environ, self.sources)
        files = debian.unpacked(debs)
        users = f"root:x:0:0::/:\nleadline:x:{USER}:{USER}::/:\n"
        files["etc/passwd"] = File(users.encode())
        files["etc/group"] = File(f"root:x:0:\nleadline:x:{USER}:\n".encode())
        files["etc/nsswitch.conf"] = File(b"hosts: files dns\n")
        return files


def python(build: Build, wheels: Wheels, name: str) -> list[oci.Platform]:
    """The agent's or the controller's image for each architecture. Raises BundleError."""
    part = name.removeprefix("leadline-")
    with TemporaryDirectory() as folder:
        for source in PARTS[part]:
            what = f"the wheel of {build.source / source}"
            wheels.build(Path(folder), build.source / source, what=what)
        own = _installed(sorted(Path(folder).iterdir()))
    for program, module in _PROGRAMS[name].items():
        text = _PROGRAM.format(module=module)
        own[f"usr/local/bin/{program}"] = File(text.encode(), executable=True)
    locked = read_lock(build.source / part / "requirements.lock")
    roots, layers = {}, {}
    for architecture, machine in ARCHITECTURES.items():
        root = build.root(architecture, PACKAGES[name])
        paths = sorted(path for path in root if fnmatch(path, "usr/share/ca-certificates/*.crt"))
        root[_CERTIFICATES] = File(b"".join(root[path].content for path in paths))
        roots[architecture] = root
        wanted = _installed(wheels.of(locked, Target(PYTHON, machine)))
        layers[architecture] = [_used(each) for each in (root, wanted, own)]
    here = platform.machine()
    interpreter = next((each for each, machine in ARCHITECTURES.items() if machine == here), None)
    if interpreter is None:
        raise BundleError(f"this machine is {here}; expected {' or '.join(ARCHITECTURES.values())}")
    config = {
        "User": f"{USER}:{USER}",
        "Entrypoint": [f"/usr/local/bin/{name}"],
        "Env": [
            "PATH=/usr/local/bin:/usr/bin",
            "PYTHONDONTWRITEBYTECODE=1",
            f"SSL_CERT_FILE=/{_CERTIFICATES}",
        ],
    }
    return [
        oci.Platform(
            architecture,
            [
                oci.layer(files, build.time_s)
                for files in _compiled(each, roots[interpreter], ARCHITECTURES[interpreter])
            ],
            config,
        )
        for architecture, each in layers.items()
    ]


def broker(build: Build) -> list[oci.Platform]:
    """The broker's image for each architecture. Raises BundleError."""
    config = {
        "User": f"{USER}:{USER}",
        "Entrypoint": ["/usr/sbin/mosquitto", "-c", "/etc/mosquitto/leadline/mosquitto.conf"],
        "Env": ["PATH=/usr/sbin:/usr/bin"],
    }
    return [
        oci.Platform(
            architecture,
            [oci.layer(_used(build.root(architecture, PACKAGES[_BROKER])), build.time_s)],
            config,
        )
        for architecture in ARCHITECTURES
    ]


def _installed(wheels: Iterable[Path]) -> dict[str, File]:
    """The files of wheels in the folder for them. Programs are left out."""
    files = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                parts = info.filename.split("/")
                if info.is_dir():
                    continue
                if parts[0].endswith(".data"):
                    if parts[1] not in ("purelib", "platlib"):
                        continue
                    parts = parts[2:]
                executable = bool(info.external_attr >> 16 & 0o111)
                files["/".join((_SITE, *parts))] = File(archive.read(info), executable)
    return files


def _used(files: Mapping[str, File]) -> dict[str, File]:
    def is_used(path: str) -> bool:
        if path.startswith((f"{_MODELS}api/", f"{_MODELS}models/")):
            return path == f"{_MODELS}models/__init__.py"
        return not any(fnmatch(path, each) for each in _UNUSED)

    return {path: file for path, file in files.items() if is_used(path)}


def _compiled(
    layers: Sequence[Mapping[str, File]], root: Mapping[str, File], machine: str
) -> list[dict[str, File]]:
    """The layers with the bytecode of their modules, made by the interpreter in `root`. Raises
    BundleError."""
    with TemporaryDirectory() as temporary:
        python, image = Path(temporary, "python"), Path(temporary, "image")
        _write(python, root)
        for files in layers:
            _write(image, {path: file for path, file in files.items() if path.endswith(".py")})
        libraries = python / f"usr/lib/{machine}-linux-gnu"
        (loader,) = libraries.glob("ld-linux-*")
        done = subprocess.run(  # noqa: S603 - no shell, and no user input
            [
                *(loader, "--library-path", libraries, python / f"usr/bin/python{PYTHON}"),
                *("-s", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
                *("-s", image, "-p", "/", image),
            ],
            env={"PYTHONHOME": str(python / "usr"), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
            raise BundleError(f"the image's Python can't compile its modules: {last}")
        whole = []
        for files in layers:
            made = dict(files)
            for path in files:
                folder, _, name = path.rpartition("/")
                if name.endswith(".py") and not files[path].link:
                    bytecode = f"{folder}/__pycache__/{name[:-3]}.cpython-311.pyc"
                    made[bytecode] = File((image / bytecode).read_bytes())
            whole.append(made)
        return whole


def _write(folder: Path, files: Mapping[str, File]) -> None:
    """Write files into a folder. Links that lead out of it are left out."""
    for path, file in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not file.link:
            place.write_bytes(file.content)
            place.chmod(0o755 if file.executable else 0o644)
        elif not file.link.startswith("/") and not place.is_symlink():
            place.symlink_to(file.link)


def build(
    source: Path, out: Path, cache: Cache, environ: Mapping[str, str], sources: Path | None
) -> list[Path]:
    """Write the archives into `out`, and their digests as values for the chart. Returns the
    files. sources: see `Build`. Raises BundleError."""
    version = release_version(source / "pyproject.toml")
    epoch_s = environ.get("SOURCE_DATE_EPOCH", EPOCH_S)
    if not epoch_s.isdecimal():
        raise BundleError(f"SOURCE_DATE_EPOCH: expected seconds since 1970, got {epoch_s!r}")
    created = datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    written = []
    with cache.locked():
        whole = Build(
            source, version, debian.read_lock(), cache, environ, sources, time_s=int(epoch_s)
        )
        wheels = Wheels(cache, environ)
        images = {name: python(whole, wheels, name) for name in _PROGRAMS}
        images[_BROKER] = broker(whole)
        cache.prune()
    out.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, platforms in images.items():
        annotations = {
            "org.opencontainers.image.title": name,
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": _LICENSES[name],
        }
        tagged = f"{REGISTRY}/{name}:{version}"
        content, digests[name] = oci.archive(platforms, tagged, annotations, created)
        file = out / f"{name}-{version}.oci.tar"
        half = file.with_suffix(".half")
        half.write_bytes(content)
        half.replace(file)
        written.append(file)
    values = _DIGESTS.format(
        controller=digests[_CONTROLLER], broker=digests[_BROKER], agent=digests[_AGENT]
    )
    written.append(out / "digests.yaml")
    written[-1].write_text(values, encoding="utf-8")
    return written


def main(argv: Sequence[str] | None = None) -> int:
    """Build the images; the exit code is 0, 1 after an error, or 130 after Ctrl-C."""
    command = Command("leadline_bundle.image", "OCI images", "dist/image", "image")
    command.parser.add_argument(
        "--apt-sources",
        type=Path,
        help=f"a sources.list with Debian {debian.CODENAME} (this machine's)",
    )
    command.parser.add_argument(
        "--lock", action="store_true", help="only write the lock of packages again"
    )

    def work(options: argparse.Namespace) -> None:
        if options.lock:
            names = {name for packages in PACKAGES.values() for name in packages}
            debian.write_lock(debian.LOCK, names, ARCHITECTURES, os.environ, options.apt_sources)
            return
        cache = Cache(options.cache)
        for file in build(options.source, options.out, cache, os.environ, options.apt_sources):
            sys.stdout.write(f"{file}\n")

    return command.run(argv, work)


if __name__ == "__main__":
    sys.exit(main())
