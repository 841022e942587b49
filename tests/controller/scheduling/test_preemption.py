"""Preemption by the scheduler, on a cluster in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from leadline_controller.scheduling.preemption import ENDING_S
from leadline_controller.scheduling.queue import LONGEST_UNSCHEDULABLE_S, SchedulingQueue

from tests.controller.scheduling.actions import HOST, term
from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod

HIGH = 100


class PreemptedCluster(CountingCluster):
    """Counts preemptions, and does what a test wants before a request is answered."""

    def __init__(self, nodes: list[Node], pods: list[Pod]) -> None:
        super().__init__(nodes, pods)
        self.preempted: Counter[str] = Counter()
        self.nominations: list[tuple[str, str | None]] = []
        self.at_nomination: Callable[[], Awaitable[None]] | None = None
        self.after_eviction: Callable[[], Awaitable[None]] | None = None
        self.errors: list[ClusterError] = []

    async def nominate(self, pod: Pod, node: str | None) -> None:
        if self.at_nomination is not None:
            act, self.at_nomination = self.at_nomination, None
            await act()
        await super().nominate(pod, node)
        self.nominations.append((pod.name, node))

    async def preempt(self, pod: Pod, message: str) -> None:
        if self.errors:
            raise self.errors.pop()
        await super().preempt(pod, message)
        self.preempted[pod.name] += 1
        if self.after_eviction is not None:
            await self.after_eviction()

    def end(self) -> None:
        """All pods that are terminating end."""
        for each in self.pods:
            if each.terminating:
                self.remove_pod(each.key)


def low(name: str, on: str, cpu: int = 4000, **fields: Any) -> Pod:
    return pod(name, cpu, node_name=on, **fields)


def started(
    nodes: list[Node] | None = None, pods: list[Pod] | None = None, **options: Any
) -> SchedulerHarness:
    made = [node("n1"), node("n2")] if nodes is None else nodes
    there = [low("a", "n1"), low("b", "n2", priority=5)] if pods is None else pods
    return SchedulerHarness(PreemptedCluster(made, there), **{"preemption": True, **options})


def cluster_of(harness: SchedulerHarness) -> PreemptedCluster:
    assert isinstance(harness.cluster, PreemptedCluster)
    return harness.cluster


async def the_watch_shows_it() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_least_important_pod_makes_room_and_is_told_why() -> None:
    harness = started()
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.put_pod(pod("p", 3000, priority=HIGH))
        await harness.clock.advance(0)
        assert cluster.preempted == {"a": 1}
        assert cluster.nominations == [("p", "n1")]
        assert harness.where()["p"] is None, "its room is not free yet"
        cluster.end()
        await harness.clock.advance(10)
        assert harness.where() == {"p": "n1", "b": "n2"}
        assert cluster.preempted == {"a": 1}
    assert harness.victims == [1]
    assert harness.phases == ["queue", "preempt", "decide", "queue", "decide", "bind"]
    (told,) = harness.events("a")
    assert (told.type, told.reason) == ("Normal", "Preempted")
    assert told.message == (
        "Preempted by default/p (priority 100) on node n1; this pod has priority 0"
    )
    by_reason = {each.reason: each.message for each in harness.events("p")}
    assert by_reason["Preempting"] == "default/a on n1 had to end: lower priority than 100"
    assert by_reason["FailedScheduling"] == (
        "0 of 2 nodes fit: 2 NodeResourcesFit; 2 of them run pods of lower priority; "
        "it preempts default/a on n1"
    )
    assert "it is nominated for this node" in by_reason["Scheduled"]


async def test_the_decision_says_whom_it_preempts() -> None:
    harness = started()
    async with harness.running():
        harness.cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(0)
    record = harness.decisions.get("default/p")
    assert record is not None
    assert "it preempts default/a on n1" in record.why


async def test_nobody_is_preempted_if_it_is_off_or_the_pod_may_not() -> None:
    for is_on, may in ((False, True), (True, False)):
        harness = started(preemption=is_on)
        async with harness.running():
            harness.cluster.put_pod(pod("p", priority=HIGH, preempts=may))
            await harness.clock.advance(LONGEST_UNSCHEDULABLE_S)
        assert not cluster_of(harness).preempted
        assert not cluster_of(harness).nominations


async def test_pods_of_the_same_priority_stay() -> None:
    harness = started(pods=[low("a", "n1", priority=HIGH), low("b", "n2", priority=HIGH)])
    async with harness.running():
        harness.cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(LONGEST_UNSCHEDULABLE_S)
    assert not cluster_of(harness).preempted


async def test_a_pod_that_ends_anyway_is_waited_for_but_not_for_ever() -> None:
    harness = started(pods=[low("a", "n1"), low("b", "n2", terminating=True, priority=HIGH)])
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(ENDING_S - 1)
        assert not cluster.preempted
        assert cluster.nominations == [("p", "n2")]
        await harness.clock.advance(LONGEST_UNSCHEDULABLE_S + 1)
        assert cluster.preempted == {"a": 1}


async def test_the_room_is_kept_from_pods_of_lower_or_equal_priority() -> None:
    harness = started()
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.put_pod(pod("p", 3000, priority=HIGH))
        await harness.clock.advance(0)
        cluster.end()
        for name, priority in (("q", 0), ("r", HIGH)):
            cluster.put_pod(pod(name, 3000, priority=priority, preempts=False))
        await harness.clock.advance(0)
        assert [harness.where()[name] for name in "pqr"] == [None] * 3
        await harness.clock.advance(10)
        assert harness.where() == {"p": "n1", "b": "n2", "q": None, "r": None}


async def test_room_that_is_not_needed_any_more_is_for_others_at_once() -> None:
    harness = started()
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.put_pod(pod("p", 3000, priority=HIGH))
        await harness.clock.advance(0)
        cluster.end()
        cluster.put_pod(pod("q", 3000, preempts=False))
        await harness.clock.advance(0)
        cluster.remove_pod("default/p")
        await harness.clock.advance(2)
        assert harness.where()["q"] == "n1"


async def test_whoever_leads_next_waits_for_the_victims() -> None:
    waiting = pod("p", priority=HIGH, nominated_node="n1")
    ends = low("a", "n1", terminating=True, preempted=True)
    harness = started(pods=[waiting, ends, low("b", "n2")])
    cluster = cluster_of(harness)
    async with harness.running():
        await harness.clock.advance(ENDING_S + LONGEST_UNSCHEDULABLE_S)
        assert not cluster.preempted, "also if they take long"
        cluster.end()
        await harness.clock.advance(10)
        assert harness.where() == {"p": "n1", "b": "n2"}


async def test_nobody_is_evicted_if_the_pod_fits_meanwhile() -> None:
    harness = started()
    cluster = cluster_of(harness)

    async def room_appears() -> None:
        cluster.put_node(node("n3"))
        await the_watch_shows_it()

    cluster.at_nomination = room_appears
    async with harness.running():
        cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(0)
        assert harness.where()["p"] == "n3"
    assert not cluster.preempted


async def test_nobody_is_evicted_if_the_room_would_not_be_enough_any_more() -> None:
    harness = started(nodes=[node("n1")], pods=[low("a", "n1")])
    cluster = cluster_of(harness)

    async def node_is_cordoned() -> None:
        cluster.put_node(node("n1", unschedulable=True))
        await the_watch_shows_it()

    cluster.at_nomination = node_is_cordoned
    async with harness.running():
        cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(LONGEST_UNSCHEDULABLE_S)
        assert not cluster.preempted
        assert cluster.nominations == [("p", "n1"), ("p", None)]


async def test_the_last_victims_stay_if_the_first_were_enough() -> None:
    """The node grows between the two evictions."""
    harness = started(nodes=[node("n1")], pods=[low("a", "n1", 2000), low("b", "n1", 2000)])
    cluster = cluster_of(harness)

    async def node_grows() -> None:
        cluster.put_node(node("n1", cpu=6000))
        await the_watch_shows_it()

    cluster.after_eviction = node_grows
    async with harness.running():
        cluster.put_pod(pod("p", 4000, priority=HIGH))
        await harness.clock.advance(0)
        assert sum(cluster.preempted.values()) == 1
        cluster.end()
        await harness.clock.advance(10)
        assert harness.where()["p"] == "n1"


async def test_two_preemptors_take_different_victims() -> None:
    harness = started()
    cluster = cluster_of(harness)
    async with harness.running():
        for name in ("p", "q"):
            cluster.put_pod(pod(name, 3000, priority=HIGH))
        await harness.clock.advance(2)
        assert cluster.preempted == {"a": 1, "b": 1}
        cluster.end()
        await harness.clock.advance(10)
        assert sorted(harness.where().items()) == [("p", "n1"), ("q", "n2")]


async def test_a_pod_of_higher_priority_takes_the_room_and_the_nomination() -> None:
    harness = started(nodes=[node("n1")], pods=[low("a", "n1")])
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.put_pod(pod("p", 3000, priority=HIGH))
        await harness.clock.advance(0)
        cluster.put_pod(pod("q", 3000, priority=2 * HIGH))
        await harness.clock.advance(0)
        assert cluster.preempted == {"a": 1}, "it ends already"
        cluster.end()
        await harness.clock.advance(10)
        assert harness.where() == {"p": None, "q": "n1"}
        assert cluster.pod("default/p").nominated_node is None


async def test_a_victim_that_is_gone_is_no_error() -> None:
    harness = started()
    cluster = cluster_of(harness)
    cluster.errors.append(NotFoundError("404"))
    async with harness.running():
        cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(0)
        cluster.remove_pod("default/a")
        await harness.clock.advance(10)
        assert harness.where()["p"] == "n1"
    assert not cluster.preempted
    assert not harness.victims
    assert "Preempting" not in {each.reason for each in harness.events("p")}


async def test_a_failed_eviction_is_tried_again_after_a_while() -> None:
    harness = started()
    cluster = cluster_of(harness)
    cluster.errors.append(UnavailableError("500"))
    async with harness.running():
        cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(0)
        assert not cluster.preempted
        await harness.clock.advance(2)
        assert cluster.preempted == {"a": 1}


async def test_without_the_rights_the_pod_says_so_and_waits() -> None:
    harness = started()
    cluster = cluster_of(harness)

    async def forbid() -> None:
        raise ForbiddenError("403: may not patch pods/status")

    cluster.at_nomination = forbid
    async with harness.running():
        cluster.put_pod(pod("p", 3000, priority=HIGH))
        await harness.clock.advance(0)
        assert harness.state.nominated() == []
        assert any(each.reason == "FailedPreemption" for each in harness.events("p"))


async def test_among_equal_nodes_the_strategy_chooses() -> None:
    """The default strategy likes the node that is left with most."""
    nodes = [node("n1", cpu=4000), node("n2", cpu=40_000)]
    stays = [low(f"s{each.name}", each.name, 400, priority=HIGH) for each in nodes]
    harness = started(nodes=nodes, pods=[low("a", "n1", 3600), low("b", "n2", 39_600), *stays])
    async with harness.running():
        harness.cluster.put_pod(pod("p", priority=HIGH))
        await harness.clock.advance(0)
    assert cluster_of(harness).preempted == {"b": 1}


async def test_a_pod_that_is_being_bound_can_be_a_victim() -> None:
    harness = started(nodes=[node("n1")], pods=[])
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.gate.clear()
        cluster.put_pod(pod("a", 3000))
        await harness.clock.advance(0)
        cluster.put_pod(pod("p", 3000, priority=HIGH))
        await harness.clock.advance(0)
        assert cluster.preempted == {"a": 1}
        cluster.gate.set()
        await harness.clock.advance(10)
        assert harness.where() == {"p": "n1"}


def test_the_nomination_alone_makes_no_unschedulable_pod_active() -> None:
    queue = SchedulingQueue()
    queue.put(pod("p"))
    assert queue.pop(0.0) is not None
    queue.mark_unschedulable("uid-p", 0.0)
    queue.put(replace(pod("p"), nominated_node="n1"))
    assert queue.pop(0.0) is None
    queue.put(pod("p"))
    assert queue.pop(0.0) is not None, "another took its room"


async def test_what_is_forbidden_is_not_tried_again_at_once() -> None:
    """Two pods that may not preempt would wake each other for ever."""

    class Forbidding(PreemptedCluster):
        async def nominate(self, pod: Pod, node: str | None) -> None:
            self.nominations.append((pod.name, node))
            raise ForbiddenError("403: may not patch pods/status")

    harness = SchedulerHarness(
        Forbidding([node("n1"), node("n2")], [low("a", "n1"), low("b", "n2")]), preemption=True
    )
    cluster = cluster_of(harness)
    async with harness.running():
        cluster.put_pod(pod("p", priority=HIGH))
        cluster.put_pod(pod("q", priority=HIGH))
        await harness.clock.advance(LONGEST_UNSCHEDULABLE_S - 1)
        assert Counter(name for name, _ in cluster.nominations) == {"p": 1, "q": 1}
        await harness.clock.advance(2 * LONGEST_UNSCHEDULABLE_S)
        assert len(cluster.nominations) > 2, "somebody may have given it the rights"


async def test_a_victim_that_has_left_the_node_stays() -> None:
    harness = started(nodes=[node("n1")], pods=[low("a", "n1", 2000), low("b", "n1", 2000)])
    cluster = cluster_of(harness)

    async def a_completes() -> None:
        (there,) = (each for each in cluster.pods if each.name == "a")
        cluster.put_pod(replace(there, finished=True))
        await the_watch_shows_it()

    cluster.at_nomination = a_completes
    async with harness.running():
        cluster.put_pod(pod("p", 4000, priority=HIGH))
        await harness.clock.advance(0)
        assert cluster.preempted == {"b": 1}


async def test_all_victims_go_at_once_also_if_the_first_is_seen_to_end() -> None:
    repelled = low("web", "n1", 1000, priority=1, labels={"app": "web"})
    harness = started(
        nodes=[node("n1", labels={HOST: "n1"})],
        pods=[repelled, low("db-1", "n1", 1500), low("db-2", "n1", 1500)],
    )
    cluster = cluster_of(harness)
    cluster.after_eviction = the_watch_shows_it
    async with harness.running():
        cluster.put_pod(replace(pod("p", 4000, priority=HIGH), anti_affinity=(term("web"),)))
        await harness.clock.advance(0)
        assert cluster.preempted == {"web": 1, "db-1": 1, "db-2": 1}
