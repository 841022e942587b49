"""The build cache, with a fake go command."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kube.gobuild import built
from tests.kube.sources import RELEASES, ControlPlaneError, kubernetes_version

GO = """#!/bin/sh
[ "$1" = env ] && echo "$FAKE_VERSION" && exit
echo "$@" >> "$HOME/builds"
[ -n "$FAKE_FAILS" ] && echo "no such module" >&2 && exit 1
while [ "$1" != -o ]; do shift; done
sleep 0.2
echo binary > "$2"
"""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    program = tmp_path / "go"
    program.write_text(GO)
    program.chmod(0o755)
    return program


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "FAKE_VERSION": "go1.99"}


def builds(tmp_path: Path) -> int:
    return len((tmp_path / "builds").read_text().splitlines())


def test_concurrent_runs_share_one_build(go: Path, environ: dict[str, str], tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        binaries = list(pool.map(lambda _: built(go, environ), range(4)))
    assert builds(tmp_path) == 1
    assert {binary.read_text() for binary in binaries} == {"binary\n"}


def test_another_go_builds_another_binary(
    go: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    first = built(go, environ)
    second = built(go, {**environ, "FAKE_VERSION": "go1.100"})
    assert first != second
    assert builds(tmp_path) == 2


def test_the_oldest_kubernetes_is_another_binary_of_its_own_module_versions(
    go: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    newest = built(go, environ)
    oldest = {**environ, "LEADLINE_TEST_KUBERNETES": "oldest"}
    assert built(go, oldest) != newest
    first, second = (tmp_path / "builds").read_text().splitlines()
    assert "-modfile" not in first
    assert f"-modfile={RELEASES['oldest'] / 'go.mod'} " in second
    assert f"gitVersion={kubernetes_version(oldest)} " in second


def test_the_cache_follows_xdg(go: Path, environ: dict[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "elsewhere"
    assert built(go, {**environ, "XDG_CACHE_HOME": str(cache)}).is_relative_to(cache)


def test_a_failed_build_leaves_no_file_and_reports_the_reason(
    go: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ControlPlaneError, match="no such module"):
        built(go, {**environ, "FAKE_FAILS": "1"})
    assert list(tmp_path.glob(".cache/leadline/*/controlplane*")) == []
    assert built(go, environ).read_text() == "binary\n"
