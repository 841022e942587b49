"""The loops that tell of misspelt labels of nodes, and ask what pods use."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest
from leadline_controller import loops
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    Event,
    ForbiddenError,
    InvalidError,
    Leadership,
    NotFoundError,
    PodUsage,
    UnavailableError,
)
from leadline_controller.leaderelection.elector import SOLE_LEADER

from tests.controller.inspect.harness import FakeLeadership
from tests.support.manual_clock import ManualClock
from tests.support.memory_cluster import MemoryCluster

TYPO = "label leadline.dev/teir means nothing: did you mean leadline.dev/tier?"
LATER_S = 60.0


@asynccontextmanager
async def warning(
    cluster: MemoryCluster, leadership: Leadership = SOLE_LEADER
) -> AsyncIterator[ManualClock]:
    clock = ManualClock()

    def nodes() -> dict[str, Node]:
        return {node.name: node for node in cluster.nodes}

    task = asyncio.create_task(loops.warn_about_nodes(cluster, nodes, leadership, clock))
    try:
        await clock.advance(LATER_S)
        yield clock
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def told(cluster: MemoryCluster) -> list[tuple[str, str, str, int]]:
    return [
        (each.about.name, each.event.reason, each.event.message, each.count)
        for each in cluster.events
    ]


async def test_a_misspelt_label_is_told_once_for_each_node_and_not_at_each_update() -> None:
    right, wrong = Node("n1", {}), Node("n2", {}, warnings=(TYPO,))
    cluster = MemoryCluster([right, wrong])
    async with warning(cluster) as clock:
        assert told(cluster) == [("n2", "UnknownAnnotation", TYPO, 1)]
        cluster.put_node(replace(wrong, unschedulable=True))
        cluster.put_node(replace(right, warnings=(TYPO,)))
        await clock.advance(LATER_S)
    assert told(cluster) == [
        ("n2", "UnknownAnnotation", TYPO, 1),
        ("n1", "UnknownAnnotation", TYPO, 1),
    ]


async def test_a_restart_does_not_tell_it_again() -> None:
    cluster = MemoryCluster([Node("n1", {}, warnings=(TYPO,))])
    for _ in range(2):
        async with warning(cluster):
            pass
    assert [count for *_, count in told(cluster)] == [1]


async def test_many_nodes_are_not_a_storm_of_writes() -> None:
    cluster = MemoryCluster([Node(f"n{i}", {}, warnings=(TYPO,)) for i in range(400)])
    async with warning(cluster) as clock:
        assert len(told(cluster)) <= 5 * LATER_S + 1
        await clock.advance(LATER_S)
    assert len(told(cluster)) == 400


async def test_what_the_api_server_refuses_is_tried_again() -> None:
    cluster = MemoryCluster([Node("n1", {}, warnings=(TYPO,))])
    cluster.fail_next_event(UnavailableError("503: later"))
    async with warning(cluster):
        assert [name for name, *_ in told(cluster)] == ["n1"]


class RefusesOneNode(MemoryCluster):
    """An API server to which every event on one node is invalid."""

    async def record_event(self, about: Pod | Node, event: Event) -> None:
        if about.name == "n1":
            raise InvalidError("422: invalid")
        await super().record_event(about, event)


async def test_an_event_that_is_refused_for_good_keeps_no_other_node_waiting() -> None:
    cluster = RefusesOneNode([Node(name, {}, warnings=(TYPO,)) for name in ("n1", "n2")])
    async with warning(cluster):
        assert [name for name, *_ in told(cluster)] == ["n2"]


async def test_no_error_ends_the_loop() -> None:
    cluster = MemoryCluster([Node("n1", {}, warnings=(TYPO,))])
    cluster.fail_next_event(ValueError("unexpected"))
    async with warning(cluster):
        assert [name for name, *_ in told(cluster)] == ["n1"]


async def test_a_standby_tells_nothing() -> None:
    cluster, standby = MemoryCluster([Node("n1", {}, warnings=(TYPO,))]), FakeLeadership()
    standby.leading = False
    async with warning(cluster, standby):
        assert told(cluster) == []


class Metered:
    """A metrics API that answers or fails, at times that it notes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.error: Exception | None = None
        self.asked_s: list[float] = []

    async def pod_usage(self) -> Sequence[PodUsage]:
        self.asked_s.append(self.clock.now_s())
        if self.error is not None:
            raise self.error
        return [USED]


USED = PodUsage("default", "web-1", 0.5, 1e6, 1e9)


@pytest.mark.parametrize(
    "error", [NotFoundError("404"), ForbiddenError("403"), UnavailableError("503"), ValueError("?")]
)
async def test_a_metrics_api_that_is_away_costs_one_line_and_is_asked_ever_more_rarely(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, used, is_listed = ManualClock(), list[Sequence[PodUsage]](), False
    source = Metered(clock)
    task = asyncio.create_task(loops.follow_usage(source, lambda: is_listed, used.append, clock))
    await clock.advance(100.0)
    assert source.asked_s == []
    is_listed = True
    await clock.advance(60.5)  # at 101 and 161 s: the pods are looked for each second
    assert (used, source.asked_s) == ([[USED]], [101.0])
    source.error = error
    await clock.advance(7200.0)
    waits_s = [later - at for at, later in pairwise(source.asked_s)]
    assert waits_s[:6] == [60.0, 120.0, 240.0, 480.0, 900.0, 900.0]
    assert set(waits_s[6:]) == {900.0}
    assert used == [[USED], ()]
    source.error = None
    await clock.advance(960.0)
    assert used[-1] == [USED]
    assert len([each for each in caplog.records if "metrics API" in each.message]) == 1
    source.error = error
    await clock.advance(60.0)
    assert len([each for each in caplog.records if "metrics API" in each.message]) == 2
    task.cancel()
