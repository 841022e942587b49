"""Pods with volumes on a real API server, whose own volume controller binds the claims."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.scheduling import volumes

from tests.kube.volume_bench import (
    CLAIMS,
    PODS,
    PROVISIONER,
    VOLUMES,
    Bench,
    event_on,
    is_bound,
    node_of,
    scheduling,
    until,
)
from tests.kube.volumes import SELECTED_NODE

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("volume_controllers")]

MADE_BY = "volume.kubernetes.io/storage-provisioner"


async def test_an_unbound_claim_gets_a_local_volume_and_its_pod_runs_there(
    bench: Bench, state: ClusterState
) -> None:
    for suffix in "abc":
        bench.node(suffix)
    bench.storage_class()
    there = bench.volume("pv", f"{bench.name}-b")
    wanted = bench.claim()

    pod_name = bench.pod(wanted)

    assert await node_of(bench.api, pod_name) == f"{bench.name}-b"
    # The pod is bound once the claim's spec is; the status follows a moment later.
    found = await until(bench.api, f"{CLAIMS}/{wanted}", is_bound)
    assert found["spec"]["volumeName"] == there
    kept = bench.api.get(f"{VOLUMES}/{there}")
    assert kept["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    assert kept["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_a_pod_runs_where_the_volume_of_its_bound_claim_is(
    bench: Bench, state: ClusterState
) -> None:
    for suffix in "abc":
        bench.node(suffix)
    bench.storage_class(waits=False)
    bench.volume("pv", f"{bench.name}-c")
    wanted = bench.claim()
    await until(bench.api, f"{CLAIMS}/{wanted}", is_bound)

    pod_names = [bench.pod(wanted, f"pod{i}") for i in range(3)]

    assert {await node_of(bench.api, each) for each in pod_names} == {f"{bench.name}-c"}


async def test_a_pod_waits_until_its_immediate_claim_is_bound(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(waits=False)
    wanted = bench.claim()
    pod_name = bench.pod(wanted)
    await event_on(bench.api, pod_name, f'persistentvolumeclaim "{wanted}" is not bound')
    assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]

    bench.volume("pv", f"{bench.name}-a")

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"
    await until(bench.api, f"{CLAIMS}/{wanted}", is_bound)


async def test_a_missing_claim_is_named_and_the_pod_waits_for_it(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class()
    bench.volume("pv", f"{bench.name}-a")
    pod_name = bench.pod(f"{bench.name}-claim")
    await event_on(bench.api, pod_name, f'persistentvolumeclaim "{bench.name}-claim" not found')

    bench.claim()

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


async def selected(bench: Bench, claim_name: str) -> str:
    """The claim's selected node, once its provisioner may start: that needs an annotation of the
    volume controller besides the scheduler's."""

    def may_start(claim: Any) -> bool:
        annotations = claim["metadata"].get("annotations", {})
        return SELECTED_NODE in annotations and annotations.get(MADE_BY) == PROVISIONER

    found = await until(bench.api, f"{CLAIMS}/{claim_name}", may_start)
    return str(found["metadata"]["annotations"][SELECTED_NODE])


async def test_a_volume_is_provisioned_on_the_chosen_node_before_the_pod_is_bound(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    pod_name = bench.pod(wanted)

    assert await selected(bench, wanted) == f"{bench.name}-a"
    assert "nodeName" not in bench.api.get(f"{PODS}/{pod_name}")["spec"]
    bench.provision(wanted, f"{bench.name}-a")

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"
    await until(bench.api, f"{CLAIMS}/{wanted}", is_bound)


async def test_more_pods_may_wait_for_volumes_than_are_bound_concurrently(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    claims = [bench.claim(f"claim{i}") for i in range(40)]
    for wanted in claims:
        bench.pod(wanted, f"pod-of-{wanted}")
    for wanted in claims:
        await selected(bench, wanted)

    other = bench.claim("last")
    bench.provision(other, f"{bench.name}-a")
    await until(bench.api, f"{CLAIMS}/{other}", is_bound)
    pod_name = bench.pod(other)

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


async def test_a_pod_is_rescheduled_when_its_volume_cannot_be_provisioned(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    pod_name = bench.pod(wanted)
    await selected(bench, wanted)

    bench.node("b")
    bench.api.patch(f"{CLAIMS}/{wanted}", {"metadata": {"annotations": {SELECTED_NODE: None}}})
    await event_on(bench.api, pod_name, "no volume could be made")
    again = await selected(bench, wanted)
    bench.provision(wanted, again)

    assert await node_of(bench.api, pod_name) == again


async def test_a_pod_that_is_deleted_during_provisioning_is_forgotten(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    path = f"{PODS}/{bench.pod(wanted)}"
    uid = bench.api.get(path)["metadata"]["uid"]
    await selected(bench, wanted)
    assert state.is_assumed(uid)

    bench.api.delete(path)
    again = bench.pod(wanted)
    bench.provision(wanted, f"{bench.name}-a")

    assert await node_of(bench.api, again) == f"{bench.name}-a"
    assert not state.is_assumed(uid)


async def test_a_restarted_scheduler_continues_a_started_plan(bench: Bench, account: Path) -> None:
    bench.node("a")
    bench.node("b")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    async with scheduling(account):
        pod_name = bench.pod(wanted)
        chosen = await selected(bench, wanted)

    bench.provision(wanted, chosen)

    async with scheduling(account):
        assert await node_of(bench.api, pod_name) == chosen


async def test_provisioning_that_times_out_gets_an_event_and_is_retried(
    bench: Bench, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes, "TIMEOUT_S", 2.0)
    bench.node("a")
    bench.storage_class(PROVISIONER)
    wanted = bench.claim()
    async with scheduling(account) as state:
        pod_name = bench.pod(wanted)
        events = await event_on(bench.api, pod_name, "its volumes were not bound within 2 s")
        (event,) = [e for e in events["items"] if "not bound within" in e["note"]]
        assert (event["type"], event["reason"]) == ("Warning", "FailedBinding")
        uid = bench.api.get(f"{PODS}/{pod_name}")["metadata"]["uid"]
        while not state.is_assumed(uid):  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.02)
        bench.provision(wanted, f"{bench.name}-a")

        assert await node_of(bench.api, pod_name) == f"{bench.name}-a"


async def test_an_ephemeral_volume_is_provisioned_once_its_claim_exists(
    bench: Bench, state: ClusterState
) -> None:
    bench.node("a")
    bench.storage_class(PROVISIONER)
    pod_name = bench.ephemeral_pod()
    wanted = f"{pod_name}-data"

    await until(
        bench.api, CLAIMS, lambda all_: wanted in [c["metadata"]["name"] for c in all_["items"]]
    )
    assert await selected(bench, wanted) == f"{bench.name}-a"
    bench.provision(wanted, f"{bench.name}-a")

    assert await node_of(bench.api, pod_name) == f"{bench.name}-a"
