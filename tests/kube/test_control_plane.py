"""The test control plane: real servers are started, used, restarted and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane, ControlPlaneError, control_plane
from tests.kube.gobuild import built
from tests.kube.objects import namespace, node, pod
from tests.kube.scheduler import kube_scheduler
from tests.kube.sources import GoToolchain, find_source, kubernetes_version
from tests.support.ports import wait_until

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/namespaces/default/pods"

own = {name: value for name, value in os.environ.items() if name != "LEADLINE_TEST_KUBECONFIG"}


def processes_of(folder: Path) -> list[int]:
    """Every process that has `folder` in its command line, as each server of a plane does."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str(folder) in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


@pytest.mark.cluster
def test_the_api_is_ready_and_reports_its_version(api: Api) -> None:
    assert api.text("GET", "/readyz") == "ok"
    version = api.get("/version")["gitVersion"]
    is_built = isinstance(find_source(os.environ), GoToolchain)
    assert version == kubernetes_version(os.environ) if is_built else version.startswith("v1.")


@pytest.mark.cluster
def test_a_restart_keeps_address_credentials_and_data(tmp_path: Path) -> None:
    with control_plane(tmp_path, own) as plane:
        api = Api(plane.kubeconfig)
        api.add_node(node("n1"))
        before = plane.pid
        plane.restart()
        assert plane.pid != before
        assert api.get("/api/v1/nodes/n1")["metadata"]["name"] == "n1"


@pytest.mark.cluster
def test_no_process_is_left_after_the_end(tmp_path: Path) -> None:
    with control_plane(tmp_path, own) as plane:
        assert plane.pid in processes_of(tmp_path)
    assert plane.pid is None
    assert processes_of(tmp_path) == []


@pytest.mark.cluster
def test_no_process_is_left_when_the_test_run_is_killed(tmp_path: Path) -> None:
    code = (
        "import pathlib, time; from tests.kube.control_plane import control_plane\n"
        f"with control_plane(pathlib.Path({str(tmp_path)!r})): time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=own)
    try:
        wait_until((tmp_path / "kubeconfig").exists, "the plane runs", 300)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    wait_until(lambda: not processes_of(tmp_path), "its processes end")


@pytest.mark.cluster
def test_released_binaries_serve_in_the_same_way(tmp_path: Path) -> None:
    assets = own.get("KUBEBUILDER_ASSETS") or str(built_assets(tmp_path / "assets"))
    folder = tmp_path / "plane"
    folder.mkdir()

    with control_plane(folder, {**own, "KUBEBUILDER_ASSETS": assets}) as plane:
        api = Api(plane.kubeconfig)
        assert api.text("GET", "/readyz") == "ok"
        api.create("/api/v1/namespaces", namespace("other"))
        api.create("/api/v1/namespaces/other/pods", pod("p1"))
        assert len(processes_of(folder)) == 3
        plane.restart()
        assert api.get("/api/v1/namespaces/other/pods/p1")["metadata"]["name"] == "p1"
    assert processes_of(folder) == []


def built_assets(folder: Path) -> Path:
    """The Go control plane also serves in place of each released program."""
    source = find_source(own)
    assert isinstance(source, GoToolchain)
    folder.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{built(source.go, own)}" {name} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.cluster
def test_an_invalid_configuration_of_kube_scheduler_is_reported(plane: ControlPlane) -> None:
    with (
        pytest.raises(ControlPlaneError, match=r"kube-scheduler did not start.*percentageOfNodes"),
        kube_scheduler(plane, {"percentageOfNodesToScore": 1000}),
    ):
        pass


def test_a_control_plane_that_ends_early_is_reported_with_its_last_output(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path / "kubeconfig", ["/bin/sh", "-c", "echo no room >&2; exit 3"])
    with pytest.raises(ControlPlaneError, match=r"ended while starting.*no room"):
        plane.start()
    assert plane.pid is None


def test_an_external_cluster_is_neither_stopped_nor_restarted(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    with control_plane(environ={"LEADLINE_TEST_KUBECONFIG": str(kubeconfig)}) as plane:
        assert (plane.kubeconfig, plane.pid) == (kubeconfig, None)
        with pytest.raises(ControlPlaneError, match="may not restart"):
            plane.restart()
    assert kubeconfig.exists()
