"""The images: the same bytes again, no more than they need, and they run."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from leadline_bundle import image

from tests.chart import image_archives

pytestmark = [pytest.mark.chart, pytest.mark.timeout(1800)]

EACH = [(name, architecture) for name in image.PACKAGES for architecture in image.ARCHITECTURES]
MACHINE = platform.machine()
HERE = next(each for each, machine in image.ARCHITECTURES.items() if machine == MACHINE)
# What the loader itself maps.
_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def roots(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """NAME-ARCHITECTURE -> the unpacked root."""
    found = {}
    for name, architecture in EACH:
        root = tmp_path_factory.mktemp(f"{name}-{architecture}")
        with image_archives.opened(archives[name]) as archive:
            for layer in archive.manifest(architecture)["layers"]:
                content = gzip.decompress(archive.blob(layer["digest"]))
                with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                    tar.extractall(root, filter="tar")
        root.chmod(0o755)  # its user is not this one
        found[f"{name}-{architecture}"] = root
    return found


def test_the_same_source_gives_the_same_bytes(archives: dict[str, Path], tmp_path: Path) -> None:
    again = image_archives.build(tmp_path)
    assert {name: digest(file) for name, file in again.items()} == {
        name: digest(file) for name, file in archives.items()
    }


def test_the_digests_for_the_chart_are_the_images_own(archives: dict[str, Path]) -> None:
    tops = {}
    for name, file in archives.items():
        with image_archives.opened(file) as archive:
            tops[name] = archive.top()["digest"]
    (written,) = {file.with_name("digests.yaml") for file in archives.values()}
    values = yaml.safe_load(written.read_text())
    assert values["image"]["digest"] == tops["leadline-controller"]
    for part in ("agent", "broker"):
        assert values[part]["image"]["digest"] == tops[f"leadline-{part}"]


@pytest.mark.parametrize(("name", "architecture"), EACH)
def test_an_image_runs_as_nobody_and_says_what_it_is(
    name: str, architecture: str, archives: dict[str, Path]
) -> None:
    with image_archives.opened(archives[name]) as archive:
        config = archive.config(architecture)
    assert (config["os"], config["architecture"]) == ("linux", architecture)
    assert config["config"]["User"] == f"{image.USER}:{image.USER}"
    assert config["config"]["Labels"]["org.opencontainers.image.title"] == name


@pytest.mark.parametrize(("name", "architecture"), EACH)
def test_there_is_nothing_to_run_but_the_program(
    name: str, architecture: str, roots: dict[str, Path]
) -> None:
    root = roots[f"{name}-{architecture}"]
    folders = ("usr/bin", "usr/sbin", "usr/local/bin")
    programs = {each.name for folder in folders for each in (root / folder).glob("*")}
    assert (
        programs
        == {
            "leadline-controller": {
                *("leadline", "leadline-controller", "python3.11"),
                "openssl",
            },
            "leadline-agent": {
                *("leadline-agent", "leadline-enroll", "python3.11"),
                "openssl",
            },
            "leadline-broker": {"mosquitto"},
        }[name]
    )


@pytest.mark.parametrize(("name", "architecture"), EACH)
def test_nobody_gets_rights_by_a_file(
    name: str, architecture: str, archives: dict[str, Path]
) -> None:
    """In the layers themselves, because unpacking takes such rights away."""
    with image_archives.opened(archives[name]) as archive:
        for layer in archive.manifest(architecture)["layers"]:
            with tarfile.open(fileobj=io.BytesIO(archive.blob(layer["digest"]))) as tar:
                for entry in tar:
                    assert entry.issym() or not entry.mode & 0o7022, entry
                    assert (entry.uid, entry.gid) == (0, 0), entry


@pytest.mark.parametrize(("name", "architecture"), EACH)
def test_every_library_that_something_needs_is_there(
    name: str, architecture: str, roots: dict[str, Path]
) -> None:
    root = roots[f"{name}-{architecture}"]
    there = {each.name for each in root.rglob("*.so*")}
    missing = {}
    for file in elf_files(root):
        command = ["readelf", "--dynamic", "--wide", str(file)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if absent := set(_NEEDED.findall(said)) - there:
            missing[file.relative_to(root)] = absent
    assert missing == {}


def elf_files(root: Path) -> Iterator[Path]:
    for file in root.rglob("*"):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    yield file


@pytest.mark.parametrize(("name", "architecture"), EACH)
def test_the_licence_of_every_package_is_there(
    name: str, architecture: str, roots: dict[str, Path]
) -> None:
    root = roots[f"{name}-{architecture}"]
    packages = {each.name for each in (root / "var/lib/dpkg/status.d").iterdir()}
    assert packages == set(image.PACKAGES[name])
    for package in packages:
        # The packages of a source may share one, by a link of their folder.
        folder = root / "usr/share/doc" / package
        assert (folder / "copyright").is_file() or folder.is_symlink(), package
    for distribution in root.glob("usr/local/lib/python3.11/dist-packages/*.dist-info"):
        metadata = (distribution / "METADATA").read_text()
        assert re.search(r"^(License|License-Expression|Classifier: License) ?:", metadata, re.M), (
            distribution
        )


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of an image as its user, with the image as its root."""
    user = f"--userspec={image.USER}:{image.USER}"
    return subprocess.run(
        ["chroot", user, root, *command],
        env={"PATH": f"/usr/local/bin:/usr/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


MODULES = (
    "asyncio, bz2, ctypes, decimal, lzma, sqlite3, ssl, uuid, zlib, aiohttp, grpc, numpy, yaml, "
    "leadline_controller.wiring, leadline_controller.kube.cluster, leadline_controller.map.server"
)


def test_the_controllers_image_runs(roots: dict[str, Path]) -> None:
    root = roots[f"leadline-controller-{HERE}"]
    version = run(root, "leadline-controller", "--version")
    assert re.fullmatch(r"leadline-controller [0-9.]+\n", version.stdout), version
    imported = run(root, "/usr/bin/python3.11", "-I", "-W", "error", "-c", f"import {MODULES}")
    assert (imported.returncode, imported.stderr) == (0, "")
    strategies = run(root, "leadline", "strategies")
    assert (strategies.returncode, "dacs" in strategies.stdout) == (0, True), strategies


def test_the_agents_image_runs(roots: dict[str, Path]) -> None:
    root = roots[f"leadline-agent-{HERE}"]
    assert run(root, "leadline-agent", "--version").stdout.startswith("leadline-agent ")
    modules = "ctypes, iperf3, ping3, psutil, paho.mqtt.client, leadline_agent.loop"
    code = f"import {modules}; ctypes.CDLL('libiperf.so.0')"
    imported = run(root, "/usr/bin/python3.11", "-I", "-W", "error", "-c", code)
    assert (imported.returncode, imported.stderr) == (0, "")
    outside = run(root, "leadline-enroll")
    assert (outside.returncode, "in a pod" in outside.stderr) == (2, True), outside
    assert run(root, "/usr/bin/openssl", "version").stdout.startswith("OpenSSL 3.0")


def test_the_controllers_modules_are_compiled(roots: dict[str, Path]) -> None:
    for architecture in image.ARCHITECTURES:
        root = roots[f"leadline-controller-{architecture}"]
        for file in root.rglob("*.py"):
            if not file.is_symlink():
                bytecode = file.parent / "__pycache__" / f"{file.stem}.cpython-311.pyc"
                assert bytecode.is_file(), file
                # Its second word: not checked against the source, whose time is any.
                assert bytecode.read_bytes()[4:8] == b"\x01\0\0\0"


def test_the_brokers_image_runs(roots: dict[str, Path]) -> None:
    told = run(roots[f"leadline-broker-{HERE}"], "/usr/sbin/mosquitto", "-h")
    assert told.stdout.startswith("mosquitto version 2.")
