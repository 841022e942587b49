"""What is published: wheels that run from an index by themselves, and what is in everything."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline_bundle import image, release
from leadline_bundle.lock import for_target, name_and_version, read_lock
from leadline_bundle.targets import Target
from leadline_bundle.tools import Cache, default_cache
from leadline_bundle.wheels import Wheels, environment

from tests.chart.helm import CHART, helm, values_file
from tests.support.file_server import served
from tests.support.release import REPOSITORY, VERSION
from tests.system.daemons import clean_environ

pytestmark = [pytest.mark.chart, pytest.mark.timeout(1800)]

ARCHITECTURES = len(image.ARCHITECTURES)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` makes; its wheels passed `twine check --strict`."""
    out = tmp_path_factory.mktemp("dist") / "release"
    release.build(REPOSITORY, out, Cache(default_cache("image")), os.environ)
    return out


@pytest.fixture(scope="module")
def index(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a package index (PEP 503) with our wheels and the locked ones, and no others."""
    folder = tmp_path_factory.mktemp("index") / "simple"
    cache = Cache(default_cache("image"))
    target = Target(f"3.{sys.version_info.minor}", platform.machine())
    parts = ("agent", "controller")
    locked = {
        (each.name, each.version, each.marker): each
        for part in parts
        for each in read_lock(REPOSITORY / part / "requirements.lock")
    }
    with cache.locked():
        wheels = Wheels(cache, os.environ)
        # pipx brings its environments' pip up to date first.
        theirs = [*wheels.of(list(locked.values()), target), wheels.pip()]
    for wheel in (*theirs, *released.glob("*.whl")):
        home = folder / name_and_version(wheel)[0]
        home.mkdir(parents=True, exist_ok=True)
        (home / wheel.name).write_bytes(wheel.read_bytes())
    with served(folder.parent) as url:
        yield f"{url}/simple"


@pytest.mark.parametrize(
    ("distribution", "command", "answer"),
    [
        ("leadline-agent", ["leadline-agent", "--version"], f"leadline-agent {VERSION}"),
        (
            "leadline-controller",
            ["leadline-controller", "--version"],
            f"leadline-controller {VERSION}",
        ),
        ("leadline-controller", ["leadline", "strategies"], "netsched"),
    ],
    ids=["agent", "controller", "command"],
)
def test_pipx_runs_it_from_an_index(
    distribution: str, command: list[str], answer: str, index: str, tmp_path: Path
) -> None:
    cache = Cache(default_cache("image"))
    with cache.locked():
        programs = environment("release", release.LOCK, cache, os.environ) / "bin"
    environ = {
        **{k: v for k, v in clean_environ().items() if not k.startswith(("PIP_", "UV_"))},
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [programs / "pipx", "run", "--index-url", index, "--spec", distribution, *command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, answer in done.stdout) == (0, True), done


@pytest.mark.parametrize("part", ["agent", "controller"])
def test_the_bill_of_a_part_has_all_that_is_installed_with_licences(
    part: str, released: Path
) -> None:
    bill = read(released / f"leadline-{part}-{VERSION}.cdx.json")
    found = {each["name"].lower().replace("_", "-") for each in bill["components"]}
    python = f"3.{sys.version_info.minor}"
    target = Target(python, platform.machine())
    lock = read_lock(REPOSITORY / part / "requirements.lock")
    locked = {each.name for each in for_target(lock, target)}
    own = {"leadline-wire"}
    assert found - {f"leadline-{part}"} == locked | own
    assert bill["metadata"]["component"]["name"] == f"leadline-{part}"
    assert [each["name"] for each in bill["components"] if not each.get("licenses")] == []


@pytest.mark.parametrize("name", list(image.PACKAGES))
def test_the_bill_of_an_image_has_debians_packages(name: str, released: Path) -> None:
    bill = read(released / f"{name}-image-{VERSION}.cdx.json")
    purls = [each.get("purl", "") for each in bill["components"]]
    debian = [each for each in purls if each.startswith("pkg:deb/debian/")]
    assert len(set(debian)) == len(image.PACKAGES[name]) * ARCHITECTURES
    assert any(each.startswith("pkg:pypi/grpcio@") for each in purls) == (
        name == "leadline-controller"
    )
    assert [each["name"] for each in bill["components"] if not each.get("licenses")] == []


def test_the_same_source_gives_the_same_bytes_elsewhere(released: Path, tmp_path: Path) -> None:
    """As another clone of it makes them."""
    clone = tmp_path / "elsewhere"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("agent", "controller", "proto"):
        shutil.copytree(REPOSITORY / name, clone / name, symlinks=True, ignore=ignored)
    for name in ("LICENSE", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, clone / name)
    done = subprocess.run(
        [sys.executable, "-m", "leadline_bundle.release", "--source", clone],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "ansible/bundle")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sums = (released / "SHA256SUMS").read_text()
    assert (clone / "dist/release/SHA256SUMS").read_text() == sums
    there = {file.name for file in released.iterdir()} - {"SHA256SUMS"}
    assert {line.split()[1] for line in sums.splitlines()} == there


def test_helm_takes_the_chart(released: Path, tmp_path: Path) -> None:
    chart = released / f"leadline-{VERSION}.tgz"
    values = values_file(tmp_path, {"certificates": {"broker": ["leadline-broker-0"]}})
    packed, own = (
        helm("template", "leadline", each, "--namespace=kube-system", values, home=tmp_path)
        for each in (chart, CHART)
    )
    assert packed == own


def test_no_file_names_this_machine(released: Path) -> None:
    for bill in released.glob("*.cdx.json"):
        text = bill.read_text()
        assert not re.search(r"file://|/home/|/root/|/tmp/", text), bill
        assert str(REPOSITORY) not in text


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))
