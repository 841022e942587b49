"""A pod counts on its expected node until the watch shows its node; others wait meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from leadline_controller.extender.service import ExtenderArgs
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import PodChanged, PodDeleted
from leadline_controller.history.log import PENDING

from tests.controller.extender.harness import (
    NAMES,
    PATIENCE_S,
    ExtenderHarness,
    extender_args,
    listed,
    nodes_with_mbps,
    pending,
    pod_manifest,
    replacement_manifest,
)


async def test_a_pod_counts_on_our_choice_until_the_watch_shows_its_node(
    harness: ExtenderHarness,
) -> None:
    pod = harness.put("web", 60)
    arguments = extender_args(pod_manifest("web", 60, data_mb="100"), NAMES)
    harness.extender_service.filter(arguments)
    harness.extender_service.prioritize(arguments)
    assert harness.free_mbps() == {"n1": 10, "n2": 100, "n3": 940}
    harness.hear(PodChanged(replace(pod, node_name="n2")))
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}
    await harness.extender_service.close()
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}


async def test_a_burst_does_not_pile_up_on_one_link(harness: ExtenderHarness) -> None:
    best = []
    for name in ("a", "b", "c"):
        harness.put(name, 600)
        arguments = extender_args(pod_manifest(name, 600), NAMES)
        best.append(harness.extender_service.filter(arguments)[0])
    assert best == [["n3"], [], []]


@asynccontextmanager
async def waiting_for_bandwidth(
    harness: ExtenderHarness, arguments: ExtenderArgs
) -> AsyncIterator["asyncio.Task[None]"]:
    """A call that waits until the nodes of the pods before it are known."""
    waiting = asyncio.create_task(harness.extender_service.wait_for_bandwidth(arguments))
    try:
        await asyncio.sleep(0)
        yield waiting
        async with asyncio.timeout(PATIENCE_S):
            await waiting
    finally:
        waiting.cancel()


@pytest.mark.parametrize("bound_by_us", [True, False])
async def test_no_link_is_promised_twice_where_kube_scheduler_chose_otherwise(
    bound_by_us: bool,
) -> None:
    """kube-scheduler asks about the next pod before the watch shows which node it took."""
    harness = listed(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    first, _ = harness.put("a", 60), harness.put("b", 60)
    arguments = extender_args(pod_manifest("a", 60, data_mb="100"), NAMES[:2])
    assert harness.extender_service.filter(arguments)[0] == ["n1", "n2"]
    assert harness.extender_service.prioritize(arguments)["n2"] == 10
    following = extender_args(pod_manifest("b", 60, data_mb="100"), NAMES[:2])
    async with waiting_for_bandwidth(harness, following) as waiting:
        assert not waiting.done()
        if bound_by_us:
            await harness.bind(first, "n1")
        else:
            harness.hear(PodChanged(replace(first, node_name="n1")))
    assert harness.extender_service.filter(following)[0] == ["n2"]


async def test_the_wait_for_a_pod_that_kube_scheduler_gave_up_is_short() -> None:
    harness = listed(nodes_with_mbps(100, 1000), uncertain_s=0.05)
    harness.put("a", 60)
    harness.put("b", 60)
    harness.prioritize(pod_manifest("a", 60), NAMES[:2])
    for _ in range(2):
        async with waiting_for_bandwidth(harness, extender_args(pod_manifest("b", 60), NAMES[:2])):
            pass
    assert harness.free_mbps() in ({"n1": 40, "n2": 1000}, {"n1": 100, "n2": 940})


async def test_a_replacement_does_not_wait_because_of_the_room_that_is_kept_for_it() -> None:
    """n1 has 100 Mbit/s for it, which 30 of another pod make no difference to."""
    harness = listed(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    harness.keep_room(60, "n1")
    first = harness.put("first", 30)
    harness.prioritize(pod_manifest("first", 30, data_mb="1"), NAMES[:2])
    harness.hear(PodChanged(harness.cluster.put_pod(pending(replacement_manifest("web", 60)))))
    following = extender_args(replacement_manifest("web", 60), NAMES[:2])
    async with waiting_for_bandwidth(harness, following) as waiting:
        assert waiting.done()
        harness.hear(PodChanged(replace(first, node_name="n2")))


async def test_a_pod_that_the_watch_does_not_show_yet_waits() -> None:
    harness = listed(nodes_with_mbps(100), uncertain_s=PATIENCE_S)
    async with waiting_for_bandwidth(
        harness, extender_args(pod_manifest("new", 60), ["n1"])
    ) as waiting:
        assert not waiting.done()
        harness.put("new", 60)
    harness.filter(pod_manifest("new", 60), ["n1"])
    assert harness.free_mbps() == {"n1": 40}


async def test_a_pod_without_bandwidth_or_with_a_certain_node_delays_no_other() -> None:
    harness = listed(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    for name, mbps in (("any", None), ("wide", 500), ("next", 60), ("last", None)):
        harness.put(name, mbps)
    harness.prioritize(pod_manifest("any"), NAMES[:2])
    harness.filter(pod_manifest("wide", 500), NAMES[:2])  # one node only
    async with waiting_for_bandwidth(
        harness, extender_args(pod_manifest("next", 60), NAMES[:2])
    ) as waiting:
        assert waiting.done()
    harness.prioritize(pod_manifest("next", 60), NAMES[:2])
    for name, mbps in (("last", None), ("next", 60)):  # itself again
        async with waiting_for_bandwidth(
            harness, extender_args(pod_manifest(name, mbps), NAMES[:2])
        ) as waiting:
            assert waiting.done()


@pytest.mark.parametrize(("mbps", "waits"), [(4, False), (50, True), (100, True), (170, False)])
async def test_a_pod_does_not_wait_if_the_others_make_no_difference(
    mbps: float, waits: bool
) -> None:
    harness = listed(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    first, _ = harness.put("first", 60), harness.put("second", mbps)
    harness.prioritize(pod_manifest("first", 60, data_mb="1"), NAMES[:2])
    async with waiting_for_bandwidth(
        harness, extender_args(pod_manifest("second", mbps), NAMES[:2])
    ) as waiting:
        assert waiting.done() != waits
        harness.hear(PodChanged(replace(first, node_name="n1")))


async def test_a_second_call_does_not_count_the_pod_itself(harness: ExtenderHarness) -> None:
    harness.put("web", 600)
    for _ in range(3):
        assert harness.filter(pod_manifest("web", 600), NAMES)[0] == ["n3"]


async def test_an_expectation_expires() -> None:
    harness = listed(nodes_with_mbps(1000), expected_s=0.05)
    harness.put("web", 600)
    harness.filter(pod_manifest("web", 600), ["n1"])
    assert harness.free_mbps() == {"n1": 400}
    for _ in range(4500):
        await asyncio.sleep(0.02)
        if harness.free_mbps() == {"n1": 1000}:
            break
    assert harness.free_mbps() == {"n1": 1000}


async def test_close_withdraws_expected_pods(harness: ExtenderHarness) -> None:
    harness.put("web", 600)
    harness.filter(pod_manifest("web", 600), NAMES)
    await harness.extender_service.close()
    assert harness.free_mbps()["n3"] == 1000


async def test_a_deleted_pod_leaves_nothing_behind(harness: ExtenderHarness) -> None:
    pod = harness.put("web", 600)
    harness.filter(pod_manifest("web", 600), NAMES)
    harness.hear(PodDeleted(pod))
    assert harness.free_mbps()["n3"] == 1000
    again = Pod("default", "web", uid="another", node_name="n1")
    harness.hear(PodChanged(again))
    assert harness.outcome("web") == ("n3", PENDING)
