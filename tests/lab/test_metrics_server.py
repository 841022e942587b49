"""What pods use, by a real metrics-server that asks real kubelets, over the aggregation layer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.settings import Settings
from leadline_controller.wiring.controller import Controller
from leadline_controller.wiring.work import running
from leadline_lab.spec import BoardSpec

from tests.kube.account import applied, granted, login, wait_allowed
from tests.kube.api import Api
from tests.kube.metrics_server import GROUP, KUBELET, metrics_server
from tests.lab.lab_images import HTTPD, push_image, until_told
from tests.lab.running import RunningLab, running_lab, running_pod
from tests.support.tasks import until

pytestmark = [pytest.mark.network, pytest.mark.cluster]

COUNT = "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done"
BUSY = until_told(f"sh -c 'while :; do {COUNT}; sleep 0.1; done'")
IDLE, WORKING = (("default", frozenset({("app", app)})) for app in ("idle", "busy"))
BOARDS = ("a", "b")


@pytest.mark.timeout(1200)
async def test_the_controller_knows_what_the_pods_of_each_service_use(tmp_path: Path) -> None:
    boards = [BoardSpec(name) for name in BOARDS]
    with running_lab(boards, kubelet=KUBELET) as lab, applied(lab.api):
        start_pods(lab)
        account = login(lab.api, lab.plane.kubeconfig, tmp_path / "kubeconfig")
        for right in granted():
            if right.group == GROUP:
                await asyncio.to_thread(wait_allowed, Api(account), True, **right.attributes)
        async with KubeCluster.connect(account) as cluster:
            controller = Controller(Settings(), cluster, usage=cluster)
            with metrics_server(lab):
                async with running(controller.follow(), controller.follow_usage(cluster)):
                    recent = controller.state.recent
                    await until(lambda: {IDLE, WORKING} <= recent.expected.usage.keys(), 300)
    idle_cores, idle_bytes = recent.expected.usage[IDLE]
    busy_cores, busy_bytes = recent.expected.usage[WORKING]
    print(f"idle: {idle_cores:.4f} cores, {idle_bytes:.0f} bytes")
    print(f"busy: {busy_cores:.4f} cores, {busy_bytes:.0f} bytes")
    assert 0 <= idle_cores < 0.02 < busy_cores < 1
    assert 1e5 < min(idle_bytes, busy_bytes) < max(idle_bytes, busy_bytes) < 1e8


def start_pods(lab: RunningLab) -> None:
    """A pod of each service on each board."""
    names = []
    for app, command in (("idle", HTTPD), ("busy", BUSY)):
        image = push_image(lab.lab, app, command=command)
        for board in BOARDS:
            made = running_pod(f"{app}-{board}", image, nodeName=board)
            made["metadata"]["labels"] = {"app": app}
            names.append(lab.create(made))
    for name in names:
        lab.wait_running(name)
