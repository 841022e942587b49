"""Strategies that decide without effect: what they find, and that nobody waits for them."""

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.cluster.state import ClusterState
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Decision, Filter, FilterResult, Rule, Scores, decide
from leadline_controller.framework.model import Owner, Pod
from leadline_controller.framework.options import build
from leadline_controller.framework.ports import Relisted
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.history.shadowed import ShadowDecision
from leadline_controller.history.times import Moment
from leadline_controller.preferences import rule as preferences
from leadline_controller.scheduling.shadow import (
    DIFFERENT,
    FAILED,
    SAME,
    SKIPPED,
    TIED,
    Shadow,
    rest_s,
)
from leadline_controller.strategies import STRATEGIES
from leadline_controller.telemetry.state import TelemetryState, TimesToLive

from tests.bench.decision import cluster, pods
from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod
from tests.controller.scheduling.paper_cluster import SCENARIOS, online

AT = Moment("boot", 5.0, 1_800_000_000.0)


class Ordered:
    """Prefers nodes in an order of its own; `refuses` are not good enough for it."""

    better, paper, needs = "higher", "none", ()

    def __init__(self, name: str, order: Sequence[str], refuses: Sequence[str] = ()) -> None:
        self.name, self._order, self._refuses = name, order, refuses

    def filters(self) -> dict[str, Filter]:
        if not self._refuses:
            return {}

        def good(view: ClusterView, _: Pod) -> FilterResult:
            passes = np.array([each not in self._refuses for each in view.table.names])
            return FilterResult(passes, lambda _: "not good enough")

        return {f"Good{self.name}": good}

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        names = [view.table.names[i] for i in candidates]
        total = np.array([float(self._order[::-1].index(each)) for each in names])
        return Scores(candidates, total, np.array([int(total.argmax())]), lambda _: "the first")

    def charge(self, view: ClusterView, pod: Pod, node: int) -> Any:
        return pod.requests


def ordered(name: str, order: Sequence[str], refuses: Sequence[str] = ()) -> Any:
    return Ordered(name, order, refuses)


class Raising(Ordered):
    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        raise ValueError("cannot count")


class Hanging(Ordered):
    """Waits in the middle of its work."""

    def __init__(self) -> None:
        super().__init__("hanging", ["n1", "n2", "n3"])
        self.began, self.may_end = threading.Event(), threading.Event()

    def score(self, view: ClusterView, pod: Pod, candidates: Ints) -> Scores:
        self.began.set()
        assert self.may_end.wait(60)
        return super().score(view, pod, candidates)


def shadow_of(*strategies: Any, rule: Rule | None = None, **options: Any) -> tuple[Shadow, Any]:
    """A shadow whose thread is this one, and what it found."""
    found: list[ShadowDecision] = []
    real = rule or Rule(ordered("real", ["n1", "n2", "n3"]), FILTERS)
    shadow = Shadow(strategies, real, found.extend, lambda: AT, rest=lambda _: None, **options)
    return shadow, found


def decided(real: Any, names: Sequence[str] = ("n1", "n2", "n3"), **fields: Any) -> Decision:
    return decide(view_of(names), pod("web-1", **fields), Rule(real, FILTERS, Random(1)))


def view_of(names: Sequence[str]) -> ClusterView:
    state = ClusterState()
    state.apply(Relisted(tuple(node(each) for each in names), ()))
    return state.view(TelemetryState(TimesToLive()), 0.0)


REAL = ordered("real", ["n1", "n2", "n3"])


def test_what_is_found_of_a_choice_that_differs() -> None:
    shadow, found = shadow_of(ordered("other", ["n3", "n1", "n2"]))
    owner = Owner("ReplicaSet", "web-5d4c", "uid")
    labels = {"pod-template-hash": "5d4c"}
    shadow.put(decided(REAL, owner=owner, labels=labels))
    shadow.work()
    (one,) = found
    assert (one.strategy, one.decided_by, one.workload) == ("other", "real", "default/web")
    assert (one.node, one.choice, one.rank, one.candidates) == ("n1", "n3", 2, 3)
    assert (one.total, one.total_of_node, one.tied, one.at) == (2.0, 1.0, False, AT)
    assert one.pod_cpu_percent == pytest.approx(12.5)  # half a core of four
    assert shadow.counts()["other", DIFFERENT] == 1


def test_the_same_choice_and_one_that_only_chance_decides() -> None:
    shadow, found = shadow_of(ordered("alike", ["n1", "n3", "n2"]), build(STRATEGIES["random"], {}))
    for number in range(12):
        decision = decided(REAL)
        shadow.put(replace(decision, pod=replace(decision.pod, uid=f"uid-{number}")))
        shadow.work()
    counts = shadow.counts()
    assert counts["alike", SAME] == 12
    assert counts["random", SAME] + counts["random", TIED] == 12
    assert counts["random", TIED] > 0
    assert {each.rank for each in found} == {1}


def test_a_strategy_with_filters_of_its_own() -> None:
    """The real one's do not hold for others, and a shadow's may leave nothing."""
    real = ordered("real", ["n1", "n2", "n3"], refuses=["n2", "n3"])
    rule = Rule(real, FILTERS)
    free = ordered("free", ["n2", "n1", "n3"])
    strict = ordered("strict", ["n1", "n2", "n3"], refuses=["n1", "n2", "n3"])
    picky = ordered("picky", ["n1", "n2", "n3"], refuses=["n1"])
    shadow, found = shadow_of(free, strict, picky, rule=rule)
    shadow.put(decide(view_of(("n1", "n2", "n3")), pod("web-1"), replace(rule, random=Random(1))))
    shadow.work()
    assert {each.strategy: (each.choice, each.rank) for each in found} == {
        "free": ("n2", 2),
        "strict": (None, None),
        "picky": ("n2", None),
    }


def test_a_decision_for_a_single_node_or_for_none_is_no_choice() -> None:
    shadow, found = shadow_of(ordered("other", ["n2", "n1", "n3"]))
    shadow.put(decided(REAL, ["n1"]))
    shadow.put(decided(REAL, cpu=10**9))
    shadow.put(decided(REAL).without_basis())
    shadow.put(decided(REAL))
    shadow.work()
    assert len(found) == 1
    assert sum(shadow.counts().values()) == 1


def test_one_node_is_no_choice_also_beside_a_strategy_with_filters_of_its_own() -> None:
    real = ordered("real", ["n1", "n2", "n3"], refuses=["n3"])
    shadow, found = shadow_of(ordered("other", ["n1", "n2", "n3"]), rule=Rule(real, FILTERS))
    for names in (["n1"], ["n1", "n2"]):
        shadow.put(decide(view_of(names), pod("web-1"), Rule(real, FILTERS, Random(1))))
        shadow.work()
    assert [each.candidates for each in found] == [2]


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n not in ("kubedsm", "random")])
def test_each_strategy_finds_in_a_shadow_what_it_would_find_in_force(name: str) -> None:
    view, strategy = cluster(100), build(STRATEGIES[name], {})
    prefer = preferences("on")
    real = Rule(build(STRATEGIES["kube-default"], {}), FILTERS, Random(1), prefer)
    shadow, found = shadow_of(strategy, rule=real)
    for each in pods(100):
        own = decide(view, each, Rule(strategy, FILTERS, Random(0), prefer))
        shadow.put(decide(view, each, real))
        shadow.work()
        scores = own.basis()[2]
        assert scores is not None
        finalists = {view.table.names[i] for i in scores.candidates[scores.finalists]}
        assert found.pop().choice in finalists
        assert not found


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_what_is_found_depends_on_the_pod_and_not_on_the_others(
    order: list[int], left_out: set[int]
) -> None:
    decision = decided(REAL)

    def found_in(numbers: Sequence[int]) -> dict[str, str | None]:
        shadow, found = shadow_of(build(STRATEGIES["random"], {}))
        for number in numbers:
            shadow.put(replace(decision, pod=replace(decision.pod, uid=f"uid-{number}")))
            shadow.work()
        return {each.uid: each.choice for each in found}

    every = found_in(range(8))
    some = found_in([number for number in order if number not in left_out])
    assert some.items() <= every.items()


def test_few_decisions_wait_and_those_that_are_left_out_are_counted() -> None:
    shadow, found = shadow_of(ordered("other", ["n2", "n1", "n3"]))
    for _ in range(10):
        shadow.put(decided(REAL))
    for _ in range(4):
        shadow.work()
    shadow.put(decided(REAL))
    shadow.work()
    assert [each.missed for each in found] == [0, 0, 0, 0, 6]
    assert shadow.counts() == {
        ("other", SKIPPED): 6,
        ("other", SAME): 0,
        ("other", TIED): 0,
        ("other", DIFFERENT): 5,
        ("other", FAILED): 0,
    }


def test_views_are_not_kept() -> None:
    shadow, found = shadow_of(ordered("other", ["n2", "n1", "n3"]))
    decision = decided(REAL)
    view = weakref.ref(decision.basis()[0])
    shadow.put(decision)
    shadow.work()
    del decision
    assert found
    assert view() is None


def test_it_rests_so_long_that_its_work_has_its_share() -> None:
    times, rests = iter([0.0, 0.25]), list[float]()
    shadow = Shadow(
        [ordered("other", ["n2", "n1", "n3"])],
        Rule(REAL, FILTERS),
        lambda _: None,
        lambda: AT,
        0.2,
        timer=lambda: next(times),
        rest=rests.append,
    )
    shadow.put(decided(REAL))
    shadow.work()
    assert rests == [pytest.approx(1.0)]


@given(st.floats(0.0, 100.0), st.floats(0.001, 0.5))
def test_the_share_of_work_and_rest_is_the_share(took_s: float, share: float) -> None:
    assert took_s == pytest.approx(share * (took_s + rest_s(took_s, share)))


def test_an_error_is_logged_once_and_the_other_strategies_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shadow, found = shadow_of(Raising("raising", []), ordered("other", ["n2", "n1", "n3"]))
    for _ in range(3):
        shadow.put(decided(REAL))
        shadow.work()
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert errors == ["the shadow strategy raising failed: ValueError('cannot count')"]
    assert [each.strategy for each in found] == ["other"] * 3
    assert (shadow.counts()["raising", FAILED], shadow.counts()["other", FAILED]) == (3, 0)


def test_what_failed_counts_as_not_seen_once_the_strategy_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raising = Raising("sometimes", ["n2", "n1", "n3"])
    shadow, found = shadow_of(raising)
    for fails in (True, True, False):
        if not fails:
            monkeypatch.setattr(Raising, "score", Ordered.score)
        shadow.put(decided(REAL))
        shadow.work()
    assert [each.missed for each in found] == [2]


async def burst(on_decision: Any) -> tuple[SchedulerHarness, list[tuple[str, str | None, str]]]:
    """The pods of a scenario, placed by the real scheduler; and its decisions in their order."""
    nodes, arrived, telemetry = online(SCENARIOS[1])
    made: list[tuple[str, str | None, str]] = []

    def decided(decision: Decision) -> None:
        made.append((decision.pod.name, decision.node, decision.why))
        on_decision(decision)

    harness = SchedulerHarness(
        CountingCluster(nodes, arrived),
        strategy=build(STRATEGIES["dacs"], {}),
        telemetry=telemetry,
        prefer=preferences("on"),
        on_decision=decided,
    )
    async with harness.running():
        for number in range(30):
            harness.cluster.put_pod(pod(f"more-{number}", cpu=10))
        await harness.clock.advance(0.5)
    return harness, made


async def test_shadows_that_hang_or_fail_neither_delay_nor_change_decisions() -> None:
    alone, expected = await burst(lambda _: None)
    hanging, found = Hanging(), list[ShadowDecision]()
    real = alone.step.rule
    strategies = [hanging, Raising("raising", []), build(STRATEGIES["netsched"], {})]
    shadow = Shadow(strategies, real, found.extend, lambda: AT, 0.5)
    shadow.start()
    try:
        # The burst ends while the first decision is still being looked at.
        harness, made = await burst(shadow.put)
        assert hanging.began.wait(60)
        assert not found
        skipped = shadow.counts()["hanging", SKIPPED]
    finally:
        hanging.may_end.set()
        shadow.stop()
    assert made == expected
    assert harness.where() == alone.where()
    assert Counter(harness.where().values())[None] == 0
    assert len(made) == 40
    assert skipped >= len(made) - 5  # one at work and four that wait


async def test_a_thread_of_its_own_looks_at_decisions_and_ends() -> None:
    done, found = threading.Event(), list[ShadowDecision]()

    def tell(decisions: Sequence[ShadowDecision]) -> None:
        found.extend(decisions)
        done.set()

    shadow = Shadow([build(STRATEGIES["netsched"], {})], Rule(REAL, FILTERS), tell, lambda: AT, 0.5)
    shadow.start()
    await burst(shadow.put)
    assert done.wait(60)
    before = threading.active_count()
    shadow.stop()
    assert threading.active_count() == before - 1
    assert {each.strategy for each in found} == {"netsched"}
