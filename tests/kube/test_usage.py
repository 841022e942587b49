"""The metrics API's odd answers, which must hold up nobody else. tests/lab has a real one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.framework.ports import ClusterError
from leadline_controller.kube.cluster import KubeCluster

from tests.kube.wire import Answer, FakeServer, json_answer, made, no_answer, refusal, served

USAGE, SECRET = "/apis/metrics.k8s.io/v1beta1/pods", "/api/v1/namespaces/a/secrets/b"


def metrics(name: str, cpu: str = "20m") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "timestamp": "2030-01-01T00:00:00Z",
        "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": "1Mi"}}],
    }


def listed(*items: object) -> Answer:
    return json_answer({"kind": "PodMetricsList", "metadata": {}, "items": items})


async def test_a_pod_that_cannot_be_read_costs_no_other_its_reading(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(USAGE, listed(metrics("a"), metrics("b", "many"), 7, *map(metrics, "cdefgh")))
    async with served(wire, tmp_path) as login, KubeCluster.connect(login) as cluster:
        found = await cluster.pod_usage()
    assert "".join(each.name for each in found) == "acdefgh"


@pytest.mark.parametrize(
    "answer",
    [
        refusal(503, Retry_After="3600"),
        refusal(429, Retry_After="3600"),
        refusal(404),
        refusal(403),
        json_answer({"kind": "PodMetricsList", "metadata": {}, "items": 7}),
        json_answer({"kind": "Pod", "metadata": {}}),
        json_answer("<html>"),
    ],
)
async def test_a_metrics_api_that_fails_keeps_no_request_waiting(
    answer: Answer, tmp_path: Path
) -> None:
    wire = FakeServer()
    wire.answer(USAGE, answer)
    wire.answer(SECRET, made("Secret"))
    async with served(wire, tmp_path) as login, KubeCluster.connect(login) as cluster:
        with pytest.raises(ClusterError):
            await cluster.pod_usage()
        async with asyncio.timeout(20):
            await cluster.read_secret("a/b")


async def test_one_that_does_not_answer_keeps_no_request_waiting(tmp_path: Path) -> None:
    wire = FakeServer()
    wire.answer(USAGE, no_answer())
    wire.answer(SECRET, made("Secret"))
    async with served(wire, tmp_path) as login, KubeCluster.connect(login) as cluster:
        asking = asyncio.ensure_future(cluster.pod_usage())
        await cluster.read_secret("a/b")
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
