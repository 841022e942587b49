"""The order in which replicas are removed follows the strategy's own scores, of workloads that ask
for it, and is written only when it changes."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.cluster_objects import NamespaceLabels
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Owner, Pod
from leadline_controller.scheduling.deletion_costs import Replica, costs, in_order, is_ours
from leadline_controller.strategies import STRATEGIES

from tests.controller.keda.scene import PING_MS, replica
from tests.controller.scheduling.replica_scene import Scene

SET = Owner("ReplicaSet", "web", "set")


def asking(name: str, node: str, *, asks: bool | None = True, **changed: Any) -> Pod:
    owner = changed.pop("owner", SET)
    made = replica(name, node, response_time_ms=None, owner=owner, **changed)
    return replace(made, annotations=replace(made.annotations, deletion_order=asks))


def measure(scene: Scene, **changed_ms: float) -> None:
    """Round trips as in PING_MS, but for these."""
    for name, rtt_ms in (PING_MS | changed_ms).items():
        scene.told.rtt("gate", name, rtt_ms, scene.clock.now_s())


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    made.cluster.put_node(Node("gate", {CPU: 0, PODS: 0}))
    measure(made)
    async with made.running():
        yield made


@pytest.mark.parametrize("name", [*STRATEGIES])
async def test_every_strategy_orders_replicas_by_its_own_score(name: str) -> None:
    """Of equal ones the older stays."""
    strategy, random = STRATEGIES[name](), Random(name)
    scene, names = Scene(strategy), [f"n{at}" for at in range(6)]
    for at, node in enumerate(names):
        scene.told.birth(node)
        room = {CPU: random.choice((1000, 2000, 4000)), MEMORY: 4 << 30, PODS: 20}
        labels = {"leadline.dev/preferred-node": "true"} if at == 0 else {}
        tier = random.choice(("edge", "cloud"))
        scene.cluster.put_node(Node(node, room, labels, tier=tier))
        values = [random.uniform(0, 90) for _ in range(5)]
        scene.told.report(node, *values, at_s=1000.0)
        for peer in names[:at]:
            scene.told.rtt(node, peer, random.uniform(1, 100), 1000.0)
    for at in range(12):
        pod = asking(f"web-{at}", random.choice(names), created_s=random.randrange(100))
        scene.cluster.put_pod(replace(pod, requests={CPU: 50, MEMORY: 1 << 28, PODS: 1}))
    async with scene.running():
        await scene.clock.advance(1.0)
    assert len(scene.cluster.written) == 12
    view = scene.step.view()
    view = replace(view, placed_in_run=np.zeros(len(view), dtype=np.int64))
    on = np.unique([view.table.index[pod.node_name or ""] for pod in scene.cluster.pods])

    def place(pod: Pod) -> tuple[float, float]:
        """How good it is, the least best."""
        node = view.table.index[pod.node_name or ""]
        total = strategy.score(view.without_placement(pod, node), pod, on).total
        score = float(total[on.tolist().index(node)])
        score = score if strategy.better == "lower" else -score
        return np.inf if np.isnan(score) else score, pod.created_s or 0.0

    ranked = [place(scene.cluster.pod(f"default/{each}")) for each in scene.ranked()]
    assert ranked == sorted(ranked)


async def test_a_changed_rank_is_written_once_and_not_within_a_minute(scene: Scene) -> None:
    for name in ("w1", "w2", "w3"):
        scene.cluster.put_pod(asking(name, name))
    await scene.clock.advance(1.0)
    assert scene.ranked() == ["w1", "w2", "w3"]
    await scene.clock.advance(20.0)
    measure(scene, w1=300.0)
    scene.cluster.put_pod(asking("w4", "w4"))  # which has all ranked again
    await scene.clock.advance(30.0)
    assert scene.ranked() == ["w1", "w2", "w3", "w4"]
    await scene.clock.advance(70.0)
    assert scene.ranked() == ["w2", "w3", "w4", "w1"]
    assert [name for name, _ in scene.cluster.written] == ["w1", "w2", "w3", "w4", "w1"]


async def test_a_steady_cluster_writes_nothing(scene: Scene) -> None:
    """Round trips scatter by a millisecond, and the board that is best changes all the time."""
    for at in range(100):
        scene.cluster.put_pod(asking(f"web-{at}", f"w{at % 4 + 1}", created_s=at))
    random = Random(1)
    for _ in range(60):
        measure(scene, **{name: 20 + random.uniform(-0.5, 0.5) for name in PING_MS})
        await scene.clock.advance(10.0)
    assert Counter(name for name, _ in scene.cluster.written).total() == 100


async def test_in_an_unsteady_cluster_each_pod_is_written_once_a_minute(scene: Scene) -> None:
    for at in range(8):
        scene.cluster.put_pod(asking(f"web-{at}", f"w{at % 4 + 1}", created_s=at))
    random = Random(1)
    for _ in range(60):
        measure(scene, **{name: random.uniform(1, 300) for name in PING_MS})
        await scene.clock.advance(10.0)
    written = Counter(name for name, _ in scene.cluster.written)
    assert 2 < max(written.values()) <= 11


async def test_a_namespace_asks_for_its_pods_but_a_pod_may_refuse(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    daemon_set = Owner("DaemonSet", "web", "set")
    scene.cluster.put_pod(asking("asks", "w1", app="a"))
    scene.cluster.put_pod(asking("silent", "w1", app="b", asks=None))
    scene.cluster.put_pod(asking("refuses", "w1", app="c", asks=False))
    scene.cluster.put_pod(asking("of-each-node", "w1", app="d", owner=daemon_set))
    await scene.clock.advance(1.0)
    for text in ("maybe", "true"):
        assert [name for name, _ in scene.cluster.written] == ["asks"]
        scene.cluster.put_object(NamespaceLabels("default", {}, text))
        await scene.clock.advance(1.0)
    assert [name for name, _ in scene.cluster.written] == ["asks", "silent"]
    assert caplog.messages == [
        "namespace default: annotation leadline.dev/deletion-order: expected true or false, got "
        "text 'maybe'; it counts as false"
    ]


async def test_a_threshold_keeps_the_order_of_the_paper(scene: Scene) -> None:
    """The newest goes first, also where an older one is in a worse place."""
    for at, node in enumerate(("w3", "w1", "w2")):
        pod = replica(f"web-{at}", node, created_s=at, owner=SET)
        asks = replace(pod.annotations, deletion_order=True)
        scene.cluster.put_pod(replace(pod, annotations=asks))
    await scene.clock.advance(200.0)
    assert scene.ranked() == ["web-0", "web-1", "web-2"]
    assert len(scene.cluster.written) == 3


async def test_a_strategy_that_fails_does_not_end_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(type(scene.step.rule.strategy), "score", lambda *_: 1 / 0)
        scene.cluster.put_pod(asking("web-0", "w1"))
        await scene.clock.advance(1.0)
    assert "ZeroDivisionError" in caplog.text
    await scene.clock.advance(10.0)
    assert scene.cost("web-0") is not None


RANKS = st.lists(st.integers(0, 8).map(float), max_size=9)


def replicas_of(scores: list[float], given: list[int | None] | None = None) -> list[Replica]:
    known = given or [None] * len(scores)
    return [
        Replica(Pod("d", str(at), uid=str(at)), cost, (float(at), 0.0, 0, str(at)), score)
        for at, (score, cost) in enumerate(zip(scores, known, strict=True))
    ]


@given(RANKS, st.sampled_from((0.0, 1.0, 3.0)))
def test_the_most_scores_are_in_order(scores: list[float], tolerance: float) -> None:
    kept = in_order(np.array(scores), tolerance).tolist()
    assert kept == sorted(set(kept))

    def fits(positions: list[int]) -> bool:
        return all(
            scores[b] <= scores[a] + tolerance for a in positions for b in positions if a < b
        )

    assert fits(kept)
    subsets = ([at for at in range(len(scores)) if bits >> at & 1] for bits in range(512))
    assert len(kept) == max(len(each) for each in subsets if fits(each))


@given(RANKS, RANKS, st.sampled_from((0.0, 2.0)), st.randoms())
def test_costs_fall_with_the_scores_and_most_are_kept(
    before: list[float], after: list[float], tolerance: float, random: Random
) -> None:
    """Some replicas had costs by other scores, and some of them left."""
    first = costs(replicas_of(before))
    stayed = {each.pod.uid: cost for each, cost in first if random.random() < 0.8}
    given_costs = [stayed.get(str(at)) for at in range(len(after))]
    ranked = costs(replicas_of(after, given_costs), tolerance)
    assert Counter(each.pod.uid for each, _ in ranked) == {str(at): 1 for at in range(len(after))}
    assert all(a > b for (_, a), (_, b) in pairwise(ranked))
    assert all(is_ours(cost) for _, cost in ranked)
    scores = np.array([each.score for each, _ in ranked])
    assert in_order(scores, tolerance).size == scores.size
    again = [Replica(each.pod, cost, each.age, each.score) for each, cost in ranked]
    assert costs(again, tolerance) == [(each, each.cost) for each in again]
    by_cost = [each for each in again if given_costs[int(each.pod.uid)] is not None]
    by_cost.sort(key=lambda each: -(given_costs[int(each.pod.uid)] or 0))
    could_stay = in_order(np.array([each.score for each in by_cost]), tolerance).size
    kept = sum(each.cost == given_costs[int(each.pod.uid)] for each in by_cost)
    assert kept == could_stay


def test_where_there_is_no_room_between_two_costs_all_are_new() -> None:
    found = costs(replicas_of([3.0, 1.0, 2.0], [1_000_000_000, 999_999_999, None]))
    assert [each.pod.uid for each, _ in found] == ["0", "2", "1"]
    assert [cost for _, cost in found] == [1_000_000_000, 999_990_000, 999_980_000]
