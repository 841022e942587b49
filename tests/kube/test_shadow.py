"""On a real API server, pods are bound while another strategy decides beside, and `leadline
compare` answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from leadline_controller import wiring
from leadline_controller.history.store import HistorySettings
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.scheduling.shadow import ShadowSettings
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import Settings

from tests.controller.cli.calling import calling
from tests.kube.api import Api
from tests.kube.objects import pod
from tests.kube.volume_bench import NAME, PODS, Bench, until
from tests.support.tasks import until as eventually

pytestmark = pytest.mark.cluster


async def test_pods_are_bound_and_the_comparison_counts_them(
    account: Path, api: Api, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"runs": bench.name}
    for name in ("a", "b", "c"):
        await asyncio.to_thread(bench.node, name, cpu="4", memory="8Gi", labels=labels)
    settings = Settings(
        kubeconfig=account,
        scheduler_name=NAME,
        strategy="kube-default",
        warm_up_s=0.0,
        serve=GrpcSettings("127.0.0.1:0"),
        shadow=ShadowSettings(("netsched",), 0.5),
        decisions=HistorySettings(tmp_path / "decisions.db"),
    )
    async with KubeCluster.connect(account) as cluster:
        controller = wiring.Controller(settings, cluster)
        async with (
            controller.storing_decisions(),
            wiring.Servers(controller).serving() as addresses,
            wiring.running(*controller.placing()),
        ):
            for number in range(6):
                made = pod(
                    f"{bench.name}-{number}",
                    "100m",
                    "64Mi",
                    scheduler=NAME,
                    node_selector=labels,
                )
                await asyncio.to_thread(bench.add, PODS, made)
            for number in range(6):
                path = f"{PODS}/{bench.name}-{number}"
                await until(api, path, lambda found: found["spec"].get("nodeName"))
            shadow = controller.shadow
            assert shadow is not None
            await eventually(lambda: sum(shadow.counts().values()) == 6)
            leadline = calling(capsys, "--address", addresses["grpc"])
            as_json = await leadline("compare", "--since", "1h", "-o", "json")
            shown = await leadline("compare")
    (one,) = json.loads(as_json.out)["comparisons"]
    assert (one["strategy"], one["decided_by"]) == ("netsched", "kube-default")
    assert one["decisions"] + one["missed"] <= 6
    assert one["same"] + one["tied"] + one["different"] == one["decisions"] > 0
    assert (shown.code, shown.err) == (0, "")
    assert "not measured yet" in shown.out
