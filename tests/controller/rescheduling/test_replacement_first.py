"""Which pods are replaced before they go, and which are evicted."""

from typing import Any

import pytest
from leadline_controller.framework.model import Owner, Pod
from leadline_controller.framework.ports import Workload
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller

from tests.support.memory_cluster import MemoryCluster

WEB = Pod("default", "web-1", "uid-1", owner=Owner("ReplicaSet", "web-set", "uid-set"))


@pytest.mark.parametrize(
    ("fields", "comes_first"),
    [({}, True), ({"autoscaled": True}, False), ({"recreates": True}, False)],
)
async def test_no_pod_runs_beside_one_of_a_deployment_that_recreates(
    fields: dict[str, Any], comes_first: bool
) -> None:
    cluster = MemoryCluster()
    cluster.put_workload(Workload("default", "web", "uid-web", "", 1, **fields), "web-set")
    rescheduler = Controller(Settings(), cluster).rescheduler

    found = await rescheduler._executor.replacement_first(WEB)

    assert (found is not None) == comes_first
