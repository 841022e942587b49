"""What is published: wheels that run from an index by themselves, and what is in everything."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from leadline_bundle import image, release
from leadline_bundle.lock import for_target, name_and_version, read_lock
from leadline_bundle.targets import Target
from leadline_bundle.tools import Cache, default_cache
from leadline_bundle.wheels import Wheels, environment

from tests.system.daemons import clean_environ

pytestmark = [pytest.mark.chart, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).parents[2]
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
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
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()


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


def test_no_file_names_this_machine(released: Path) -> None:
    for bill in released.glob("*.cdx.json"):
        text = bill.read_text()
        assert not re.search(r"file://|/home/|/root/|/tmp/", text), bill
        assert str(REPOSITORY) not in text


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))
