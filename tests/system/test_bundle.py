"""The bundle as `make bundle` makes it: the same bytes each time, and all that an installation
without any network needs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from leadline_bundle.build import PARTS, fingerprint, is_bundle
from leadline_bundle.lock import LockedDistribution, for_target, name_and_version, read_lock
from leadline_bundle.targets import TARGETS, Target
from leadline_bundle.tools import sha256

from tests.ansible.plugins import load
from tests.support.release import REPOSITORY, VERSION
from tests.system.daemons import clean_environ

delivery = load("plugin_utils/bundle")
pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]

NO_NETWORK = ("unshare", "--net")


def checkout(folder: Path) -> Path:
    """What a bundle is made of, as another clone of it would have it."""
    folder.mkdir()
    for name in ("agent", "controller", "proto", "systemd"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    shutil.copyfile(REPOSITORY / "pyproject.toml", folder / "pyproject.toml")
    return folder


def command(source: Path, *prefix: str) -> list[str]:
    return [*prefix, sys.executable, "-m", "leadline_bundle", "--source", str(source)]


def environ() -> dict[str, str]:
    return {**clean_environ(), "PYTHONPATH": str(REPOSITORY / "ansible" / "bundle")}


def run(words: Sequence[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
    given = {**environ(), **more}
    return subprocess.run(words, env=given, capture_output=True, text=True, timeout=300)


def make(source: Path, *prefix: str) -> tuple[Path, str]:
    """Make a bundle, run by `prefix`; the folder and the release that it tells."""
    done = run(command(source, *prefix))
    assert done.returncode == 0, done.stderr
    out, _, release = done.stdout.strip().partition(": ")
    return Path(out), release


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("bundle") / "leadline")


@pytest.fixture(scope="module")
def bundle(source: Path) -> Path:
    out, release = make(source)
    assert is_bundle(out, release)
    return out


def files(folder: Path) -> dict[str, str]:
    found = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): sha256(file) for file in found}


def requirements(bundle: Path, part: str) -> tuple[LockedDistribution, ...]:
    return read_lock(bundle / part / "requirements.txt")


def test_another_checkout_and_umask_without_a_network_make_the_same_bytes(
    bundle: Path, tmp_path: Path
) -> None:
    restrictive = ("sh", "-c", 'umask 077; exec "$@"', "sh")
    again, release = make(checkout(tmp_path / "another"), *NO_NETWORK, *restrictive)
    assert files(again) == files(bundle)
    assert (bundle / "VERSION").read_text() == f"{release}\n"
    assert not [file for file in again.rglob("*") if not file.stat().st_mode & 0o004]


def test_a_second_time_touches_nothing(source: Path, bundle: Path) -> None:
    before = {file: file.stat() for file in (bundle, *bundle.rglob("*"))}
    make(source)
    assert {file: file.stat() for file in (bundle, *bundle.rglob("*"))} == before


def test_a_new_version_is_a_new_release_with_the_same_wheels_of_others(
    bundle: Path, tmp_path: Path
) -> None:
    newer = checkout(tmp_path / "newer")
    for file in (*newer.glob("**/pyproject.toml"), *newer.glob("**/leadline_*/__init__.py")):
        file.write_text(file.read_text().replace(f'"{VERSION}"', '"9.8.7"'))
    out, release = make(newer, *NO_NETWORK)
    assert release == f"9.8.7-{fingerprint(out)}"
    old, new = files(bundle / "wheels"), files(out / "wheels")
    assert {name_and_version(Path(name)) for name in new.keys() - old.keys()} == {
        (f"leadline-{name}", "9.8.7") for name in ("agent", "controller", "flows", "wire")
    }
    assert {name: new[name] for name in new if name in old} == {
        name: digest for name, digest in old.items() if not name.startswith("leadline_")
    }


def test_every_wheel_is_listed_with_its_hash_and_nothing_else_is(bundle: Path) -> None:
    there = {(*name_and_version(wheel), sha256(wheel)) for wheel in (bundle / "wheels").iterdir()}
    listed = {
        (each.name, each.version, digest)
        for part in PARTS
        for each in requirements(bundle, part)
        for digest in each.hashes
    }
    assert listed == there


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_target_has_one_wheel_of_everything(bundle: Path, part: str, target: Target) -> None:
    wanted = [(each.name, each.version) for each in for_target(requirements(bundle, part), target)]
    wheels = [wheel for wheel in (bundle / "wheels").iterdir() if target.takes(wheel)]
    found = sorted(name_and_version(wheel) for wheel in wheels if name_and_version(wheel) in wanted)
    assert found == wanted
    own = {f"leadline-{part}"} if part == "flows" else {f"leadline-{part}", "leadline-wire"}
    assert own <= {name for name, _ in found}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_rollout_finds_what_a_board_needs(bundle: Path, part: str, target: Target) -> None:
    packed = delivery.Bundle(bundle, part, f"{target.python}.2", target.machine).files()
    wheels = sorted(
        name_and_version(path) for name, path in packed.items() if name.startswith("wheels/")
    )
    wanted = for_target(requirements(bundle, part), target)
    assert wheels == [(each.name, each.version) for each in wanted]
    assert {"requirements.txt", f"units/leadline-{part}.service"} <= packed.keys()


def test_it_has_a_unit_for_each_part_and_one_pip(bundle: Path) -> None:
    units = {file.name: file.read_bytes() for file in (bundle / "units").iterdir()}
    names = {f"leadline-{part}.service" for part in PARTS}
    assert units == {name: (REPOSITORY / "systemd" / name).read_bytes() for name in names}
    assert [name_and_version(wheel)[0] for wheel in (bundle / "pip").iterdir()] == ["pip"]


def test_without_a_unit_there_is_no_bundle(tmp_path: Path) -> None:
    source = checkout(tmp_path / "leadline")
    missing = source / "systemd" / "leadline-agent.service"
    missing.unlink()
    done = run(command(source))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"bundle: {missing}: No such file or directory"
    assert not list((source / "dist").iterdir())


def test_a_part_of_another_version_is_refused(tmp_path: Path) -> None:
    source = checkout(tmp_path / "leadline")
    project = source / "agent" / "pyproject.toml"
    project.write_text(project.read_text().replace(f'"{VERSION}"', '"9.8.7"'))
    done = run(command(source))
    assert (done.returncode, done.stdout) == (1, "")
    message = f"bundle: {source / 'agent'}: leadline-agent is 9.8.7, the release {VERSION}"
    assert done.stderr.splitlines()[-1] == message


def test_nothing_is_for_another_machine_than_the_targets(bundle: Path) -> None:
    strangers = [
        wheel.name
        for wheel in (bundle / "wheels").iterdir()
        if not any(target.takes(wheel) for target in TARGETS)
    ]
    assert not strangers


def installed(bundle: Path, part: str, folder: Path) -> Path:
    """An environment as a board makes it: python3 alone, the bundle's pip, no network."""
    assert run([sys.executable, "-m", "venv", "--without-pip", folder]).returncode == 0
    (pip,) = (bundle / "pip").iterdir()
    fixed = ("install", "--no-index", "--require-hashes", "--no-cache-dir")
    given = ("--find-links", bundle / "wheels", "-r", bundle / part / "requirements.txt")
    into = ("--python", folder / "bin" / "python")
    done = run([*NO_NETWORK, sys.executable, pip / "pip", *into, *fixed, *given], HOME=str(folder))
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_the_agent_is_installed_without_a_network(bundle: Path, tmp_path: Path) -> None:
    programs = installed(bundle, "agent", tmp_path / "venv")
    version = run([programs / "leadline-agent", "--version"], PYTHONPATH="")
    assert version.stdout == f"leadline-agent {VERSION}\n"
    settings = tmp_path / "agent.toml"
    settings.write_text('node = "bare"\n')
    once = run([programs / "leadline-agent", "once", "--config", settings], PYTHONPATH="")
    assert (once.returncode, json.loads(once.stdout)["node"]) == (0, "bare")


def test_the_controller_is_installed_without_a_network(bundle: Path, tmp_path: Path) -> None:
    programs = installed(bundle, "controller", tmp_path / "venv")
    version = run([programs / "leadline-controller", "--version"], PYTHONPATH="")
    assert version.stdout == f"leadline-controller {VERSION}\n"
    assert run([programs / "leadline", "strategies"], PYTHONPATH="").returncode == 0


def test_a_wheel_that_was_tampered_with_is_not_installed(bundle: Path, tmp_path: Path) -> None:
    forged = tmp_path / "bundle"
    shutil.copytree(bundle, forged)
    (wheel,) = (forged / "wheels").glob("paho_mqtt-*")
    with wheel.open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(AssertionError, match="DO NOT MATCH THE HASHES"):
        installed(forged, "agent", tmp_path / "venv")


@pytest.fixture
def killed(source: Path, bundle: Path) -> Iterator[None]:
    """A run of the builder was killed while it had half of a changed bundle."""
    changed = source / "agent" / "leadline_agent" / "__init__.py"
    text = changed.read_text()
    changed.write_text(f"{text}\nCHANGED = True\n")
    words = command(source)
    with subprocess.Popen(words, env=environ(), stderr=subprocess.PIPE, text=True) as builder:
        assert builder.stderr is not None
        next(line for line in builder.stderr if "(2 of" in line)
        os.kill(builder.pid, signal.SIGKILL)
    yield
    changed.write_text(text)


def test_a_killed_run_changes_nothing_and_the_next_one_sweeps_up(
    source: Path, bundle: Path, killed: None
) -> None:
    before = (bundle / "VERSION").read_text().strip()
    assert is_bundle(bundle, before)
    assert len(list(bundle.parent.iterdir())) == 2
    _, release = make(source)
    assert release != before
    assert is_bundle(bundle, release)
    assert list(bundle.parent.iterdir()) == [bundle]
