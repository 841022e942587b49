"""The controller's account and a scheduler with its rights, for the volume tests, and short waits
for the tests with a fake API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.kube import reflector

from tests.kube.account import applied, granted, login, wait_allowed, wait_for_policy
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.controllers import kube_controller_manager
from tests.kube.volume_bench import Bench, scheduling


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let failed lists and watches be repeated after a twentieth of the time."""
    backoffs_s = reflector.backoffs_s
    monkeypatch.setattr(
        reflector, "backoffs_s", lambda *limits_s: (each / 20 for each in backoffs_s(*limits_s))
    )


@pytest.fixture(scope="module")
def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig with only the rights of the manifests, all of them in force."""
    admin = Api(plane.kubeconfig)
    with applied(admin):
        file = login(admin, plane.kubeconfig, tmp_path_factory.mktemp("account") / "kubeconfig")
        for right in granted():
            wait_allowed(Api(file), True, **right.attributes)
        wait_for_policy(admin, Api(file))
        yield file


@pytest.fixture
async def state(account: Path) -> AsyncIterator[ClusterState]:
    async with scheduling(account) as running:
        yield running


@pytest.fixture
def bench(api: Api) -> Iterator[Bench]:
    made = Bench(api)
    try:
        yield made
    finally:
        made.clean()


@pytest.fixture(scope="module")
def volume_controllers(plane: ControlPlane) -> Iterator[None]:
    controllers = ["persistentvolume-binder-controller", "ephemeral-volume-controller"]
    with kube_controller_manager(plane, controllers):
        yield
