"""What only the cluster in memory can do: fail on request and relist."""

from contextlib import aclosing

import pytest
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterError,
    Event,
    InvalidError,
    Relisted,
    UnavailableError,
)

from tests.support.memory_cluster import MemoryCluster


async def test_binds_fail_with_the_queued_errors() -> None:
    cluster = MemoryCluster([Node("n")], [Pod("default", "p")])
    (pod,) = cluster.pods
    errors: list[ClusterError] = [UnavailableError("no connection"), InvalidError("quota")]
    for error in errors:
        cluster.fail_next_bind(error)

    for error in errors:
        with pytest.raises(type(error), match=str(error)):
            await cluster.bind(pod, "n")
        assert cluster.pod("default/p").node_name is None
    await cluster.bind(pod, "n")

    assert cluster.pod("default/p").node_name == "n"


async def test_an_event_that_fails_is_not_recorded() -> None:
    cluster = MemoryCluster(pods=[Pod("default", "p")])
    (pod,) = cluster.pods
    event = Event("Normal", "Scheduled", "on n")
    cluster.fail_next_event(UnavailableError("no connection"))

    with pytest.raises(UnavailableError):
        await cluster.record_event(pod, event)
    assert [e.count for e in cluster.events] == []
    await cluster.record_event(pod, event)

    assert [(e.event, e.count) for e in cluster.events] == [(event, 1)]


async def test_a_relist_sends_the_whole_state_again() -> None:
    cluster = MemoryCluster([Node("n")])
    async with aclosing(cluster.watch()) as changes:
        assert await anext(changes) == Relisted((Node("n"),), ())
        pod = cluster.put_pod(Pod("default", "p"))
        await anext(changes)

        cluster.relist()

        assert await anext(changes) == Relisted((Node("n"),), (pod,))


async def test_a_closed_watch_gets_no_more_changes() -> None:
    cluster = MemoryCluster()
    async with aclosing(cluster.watch()) as changes:
        await anext(changes)
    cluster.put_node(Node("n"))

    with pytest.raises(StopAsyncIteration):
        await anext(changes)


def test_every_pod_gets_its_own_uid() -> None:
    cluster = MemoryCluster(
        pods=[Pod("default", "a"), Pod("default", "b"), Pod("x", "a", uid="mine")]
    )

    assert len({pod.uid for pod in cluster.pods}) == 3
    assert cluster.pod("x/a").uid == "mine"
