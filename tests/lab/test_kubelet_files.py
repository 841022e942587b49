"""What kubelets on a lab's boards are given, as far as it needs neither root nor a cluster."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from leadline_lab import cgroups, image_builder
from leadline_lab.errors import LabError
from leadline_lab.kubelets import BINARIES, find_binaries, pod_subnet
from leadline_lab.spec import BoardSpec, LabSpec

from tests.lab.lab_images import random_layer


def test_what_is_missing_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "kubelet").write_bytes(b"")
    (tmp_path / "kubelet").chmod(0o755)
    with pytest.raises(LabError) as error:
        find_binaries(tmp_path)
    assert str(error.value) == (
        "the lab needs containerd, containerd-shim-runc-v2: run make kubelets in Leadline's source,"
        " or give the folder with --kubelet-binaries"
    )


def test_packages_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BINARIES:
        (tmp_path / name).write_bytes(b"")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="install runc, docker-registry, socat, busybox-static"):
        find_binaries(tmp_path)


def test_pods_have_a_subnet_for_each_board_apart_from_the_lab() -> None:
    boards = (BoardSpec("a"), BoardSpec("b"))
    spec = LabSpec(boards=boards)
    assert [str(pod_subnet(spec, each.name)) for each in boards] == [
        "10.244.1.0/24",
        "10.244.2.0/24",
    ]
    spec = LabSpec(subnet=IPv4Network("10.244.0.0/16"), boards=boards)
    assert str(pod_subnet(spec, "a")) == "10.245.1.0/24"


def test_a_layer_is_a_gzipped_tar_and_the_same_for_the_same_files() -> None:
    files = {"bin/a": b"program", "etc/b": b"text"}
    made = image_builder.layer(files, {"bin/sh": "a"})
    assert made == image_builder.layer(files, {"bin/sh": "a"})
    assert made.digest != image_builder.layer(files).digest
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made.blob))) as tar:
        assert tar.getnames() == ["bin/a", "etc/b", "bin/sh"]
        assert tar.getmember("bin/sh").linkname == "a"
        assert tar.getmember("bin/a").mode == 0o755


def test_random_layers_stay_as_large_as_they_were_asked_to_be() -> None:
    assert len(random_layer(1.5, seed=1).blob) == pytest.approx(1.5e6, rel=0.01)
    assert random_layer(0.1, seed=1) == random_layer(0.1, seed=1)
    assert random_layer(0.1, seed=1).digest != random_layer(0.1, seed=2).digest


def test_a_process_of_another_pid_namespace_is_named_and_not_killed_as_our_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: [tmp_path])
    monkeypatch.setattr(cgroups, "_END_S", 0.05)
    board = tmp_path / cgroups.name("lab", "n1")
    board.mkdir()
    (board / "cgroup.procs").write_text("0\n4194305\n")
    with pytest.raises(LabError, match=r"processes \[0, 4194305\] did not end"):
        cgroups.end("lab")
    assert set(killed) == {4194305}
