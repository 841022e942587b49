"""An API server without an optional kind: the kind has no objects, and scheduling works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.volume_bench import Bench, node_of, scheduling
from tests.system.audit import audited_plane

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("volume_controllers")]

KIND = "csistoragecapacities"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    flag = f"--runtime-config=storage.k8s.io/v1/{KIND}=false"
    with audited_plane(tmp_path_factory.mktemp("trimmed"), flag) as (trimmed, _):
        yield trimmed


async def test_a_pod_with_a_claim_is_scheduled_without_storage_capacities(
    bench: Bench, account: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.node("a")
    bench.storage_class()
    bench.volume("pv", f"{bench.name}-a")
    async with scheduling(account):
        assert await node_of(bench.api, bench.pod(bench.claim())) == f"{bench.name}-a"

    (message,) = [each for each in caplog.messages if KIND in each]
    assert "the API server does not serve them: 404" in message
