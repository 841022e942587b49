"""Debian packages for images: locked by hash, downloaded by apt and unpacked without installing.

apt works on folders of its own and takes the packages of any architecture, so nothing of this
machine's packages changes and no root is needed. It checks Debian's signatures, and the lock is
checked after it.
"""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from leadline_bundle.oci import File
from leadline_bundle.tools import BundleError, Cache, key_of, run, sha256

CODENAME = "bookworm"
LOCK = Path(__file__).parents[1] / "debian.lock"
_HEAD = f"# Debian packages of the images ({CODENAME}), written by `make image-lock`.\n"
# Licences stay; nobody reads the rest of the documentation in an image, nor converts charsets by C.
_UNUSED = (
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/lintian/*",
    "usr/share/bug/*",
    "usr/share/gcc/*",
    "usr/share/gdb/*",
    "usr/share/applications/*",
    "usr/share/pixmaps/*",
    "usr/share/binfmts/*",
    "usr/lib/*/gconv/*",
    "usr/lib/python3.11/pydoc_data/*",
    "usr/lib/python3.11/lib2to3/*",
    "usr/lib/systemd/*",
    "etc/init.d/*",
    "etc/logrotate.d/*",
    "etc/update-motd.d/*",
    "usr/sbin/update-ca-certificates",
    "usr/bin/c_rehash",
    "usr/lib/ssl/misc/*",
    "usr/bin/mosquitto_*",
    "usr/lib/*/mosquitto_dynamic_security.so",
)
# Since Debian 12 these folders are links into usr, but its packages still have files in them.
_MERGED = ("bin", "lib", "lib64", "sbin")


@dataclass(frozen=True, slots=True)
class Package:
    """A version of a package for an architecture, by Debian's names; sha256: of its file."""

    architecture: str
    name: str
    version: str
    sha256: str

    def line(self) -> str:
        """Its line of the lock."""
        return f"{self.architecture} {self.name} {self.version} {self.sha256}\n"


def read_lock(file: Path = LOCK) -> tuple[Package, ...]:
    """The packages of a lock. Raises BundleError."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}; it is made by `make image-lock`") from None
    found = []
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        words = line.split()
        if len(words) != 4:
            raise BundleError(f"{file}: expected ARCHITECTURE PACKAGE VERSION SHA256, got {line!r}")
        found.append(Package(*words))
    return tuple(found)


def write_lock(
    file: Path,
    names: Iterable[str],
    architectures: Iterable[str],
    environ: Mapping[str, str],
    sources: Path | None,
) -> None:
    """Write a lock with the newest versions in the archive. Raises BundleError."""
    packages = []
    for architecture in architectures:
        with TemporaryDirectory() as folder, _apt(architecture, environ, sources) as apt:
            apt("download", *sorted(names), folder=Path(folder))
            for deb in Path(folder).iterdir():
                name, version = _fields(deb, "Package", "Version")
                packages.append(Package(architecture, name, version, sha256(deb)))
    packages.sort(key=lambda each: (each.architecture, each.name))
    file.write_text(_HEAD + "".join(each.line() for each in packages), encoding="utf-8")


def downloaded(
    packages: Sequence[Package], cache: Cache, environ: Mapping[str, str], sources: Path | None
) -> list[Path]:
    """The files of packages of one architecture, from the cache or Debian's archive. Raises
    BundleError."""
    (architecture,) = {each.architecture for each in packages}
    expected = sorted(each.sha256 for each in packages)

    def make(folder: Path) -> None:
        folder.mkdir()
        with _apt(architecture, environ, sources) as apt:
            apt("download", *(f"{each.name}={each.version}" for each in packages), folder=folder)
        if not is_complete(folder):
            raise BundleError(f"Debian's packages for {architecture} are not those of {LOCK}")

    def is_complete(folder: Path) -> bool:
        return sorted(sha256(deb) for deb in folder.iterdir()) == expected

    key = f"debian-{architecture}-{key_of(*expected)}"
    return sorted(cache.folder(key, make, is_complete).iterdir())


def unpacked(debs: Iterable[Path]) -> dict[str, File]:
    """The files of packages, by their paths in the image, with what scanners read to know the
    packages. Raises BundleError."""
    files = {name: File(link=f"usr/{name}") for name in _MERGED}
    for deb in debs:
        for path, file in _files(deb):
            # A package's folder of documentation may be a link to that of another one.
            is_licence = path.endswith("/copyright") or (
                fnmatch(path, "usr/share/doc/*") and file.link
            )
            if is_licence or not any(fnmatch(path, each) for each in _UNUSED):
                files[path] = file
        name, *_ = _fields(deb, "Package", "Version")
        control = _output(["dpkg-deb", "--field", deb])
        files[f"var/lib/dpkg/status.d/{name}"] = File(control)
    return files


def _files(deb: Path) -> Iterator[tuple[str, File]]:
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "files.tar"
        whole.write_bytes(_output(["dpkg-deb", "--fsys-tarfile", deb]))
        with tarfile.open(whole) as tar:
            for entry in tar:
                path = entry.name.removeprefix("./")
                first, _, rest = path.partition("/")
                if first in _MERGED:
                    path = f"usr/{first}/{rest}"
                if entry.issym():
                    yield path, File(link=entry.linkname)
                elif entry.isfile() or entry.islnk():
                    content = tar.extractfile(entry)
                    assert content is not None  # noqa: S101  # it is a file
                    yield path, File(content.read(), executable=bool(entry.mode & 0o111))


def _fields(deb: Path, *names: str) -> list[str]:
    shown = "".join(f"${{{name}}}\\n" for name in names)
    return _output(["dpkg-deb", f"--showformat={shown}", "--show", deb]).decode().splitlines()


def _output(command: Sequence[str | Path]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - no shell
    except FileNotFoundError:
        raise BundleError("dpkg-deb is missing: the images are built on Debian or Ubuntu") from None
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BundleError(f"{command[-1]}: {' '.join(last)}") from None
    return done.stdout


class _Apt:
    """apt-get for one architecture, on a folder of its own."""

    def __init__(self, config: Path, environ: Mapping[str, str]) -> None:
        self._environ = {**environ, "APT_CONFIG": str(config), "LC_ALL": "C.UTF-8"}

    def __call__(self, command: str, *arguments: str, folder: Path) -> None:
        what = f"apt-get {command}, with Debian {CODENAME} among its sources"
        program = ("env", f"--chdir={folder}", "apt-get", "--quiet", command, *arguments)
        try:
            run(program, self._environ, what)
        except BundleError as error:
            if command != "download":
                raise
            hint = f"{error}; if a version is gone, `make image-lock` takes the newest"
            raise BundleError(hint) from None


@contextmanager
def _apt(architecture: str, environ: Mapping[str, str], sources: Path | None) -> Iterator[_Apt]:
    """apt-get with fresh lists. sources: a sources.list in place of this machine's."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "status").touch()
        (folder / "lists/partial").mkdir(parents=True)
        (folder / "cache/archives/partial").mkdir(parents=True)
        settings = {
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "APT::Architecture": architecture,
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
        }
        if sources is not None:
            settings |= {"Dir::Etc::sourcelist": sources.resolve(), "Dir::Etc::sourceparts": "-"}
        lines = [f'{name} "{value}";' for name, value in settings.items()]
        lines.append(f'APT::Architectures {{ "{architecture}"; }};')
        config = folder / "apt.conf"
        config.write_text("\n".join([*lines, ""]), encoding="utf-8")
        apt = _Apt(config, environ)
        apt("update", folder=folder)
        yield apt
