"""Running pods move in a plan where that is worth what it costs within their lives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from random import Random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.filters import FILTERS
from leadline_controller.framework.batch import (
    Move,
    Running,
    checked_plan,
    decide_batch,
    suggested_steps,
)
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY, PODS, DeclaredPeer, Link, Owner, Pod
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.leadline import Leadline, planning
from leadline_controller.strategies.leadline.moves import LEAST_GAIN, MOST_MOVING, moving_ms

from tests.controller.builders import node, view
from tests.controller.strategies.leadline.drawn import drawn, service, wanted
from tests.support.examples import examples

AWAY_MS = 1000 * 20.0**2 / (2 * 3600)  # for each request in a life of an hour


def at_most(count: int) -> Callable[[Sequence[Move]], bool]:
    """Whether there are no more moves than that."""
    return lambda moves: len(moves) <= count


def rule() -> Rule:
    return Rule(Leadline(), FILTERS)


def running_on(
    seed: int, nodes: int, pods: int, *, peers: bool = True
) -> tuple[ClusterView, list[Running], list[Pod]]:
    """A drawn cluster on which some of the drawn pods run, anywhere, and the others wait."""
    found, every = drawn(seed, nodes, pods)
    random, running, pending = Random(seed), list[Running](), list[Pod]()
    for pod in every:
        if not peers:
            alone = replace(pod.annotations, peers=(), bandwidth_mbps=None)
            pod = replace(pod, annotations=alone)
        at = random.randrange(nodes)
        fits = all(run(found, pod).passes[at] for run in FILTERS.values())
        if fits and random.random() < 0.7:
            running.append((pod, at))
            found = found.with_placement(pod, at)
        else:
            pending.append(pod)
    return found, running, pending


def waited_ms(
    found: ClusterView, pods: Sequence[tuple[Pod, int | None]], own: dict[str, int]
) -> float:
    """What the pods wait by their scores, one after the other with all others in place, and what
    moves from their own nodes cost; inf where they do not fit. The view is without them."""
    replicas = [each.labels["app"] for each, _ in pods if each.key in own]
    total = 0.0
    for pod, at in pods:
        if at is None:
            continue
        others = found
        for other, there in pods:
            if other is not pod and there is not None:
                others = others.with_placement(other, there)
        if not all(run(others, pod).passes[at] for run in FILTERS.values()):
            return inf
        total += float(Leadline().score(others, pod, np.arange(len(found))).total[at])
        if own.get(pod.key, at) != at and replicas.count(pod.labels["app"]) == 1:
            total += AWAY_MS
    return total


@pytest.mark.slow
@given(st.integers(0, 10**6))
@examples(40)
def test_no_plan_waits_longer_than_without_moves_or_far_longer_than_the_best(seed: int) -> None:
    """By the scores of all pods in each of all plans."""
    found, running, pending = running_on(seed, 3, 4, peers=False)
    own = {pod.key: at for pod, at in running}
    pods = [*(pod for pod, _ in running), *pending]
    without, _ = checked_plan(found, pending, running, rule(), lambda _: found.table.none())
    plan, _ = checked_plan(found, pending, running, rule())
    empty = found.without_placements(running)

    def ms(placed: dict[str, int]) -> float:
        return waited_ms(empty, [(pod, placed.get(pod.key)) for pod in pods], own)

    before = {**own, **without.placed}
    after = {**before, **plan.placed, **{move.pod.key: move.target for move in plan.moves}}
    assert len(after) >= len(before)
    if len(after) > len(before):
        return
    best = min(
        ms(dict(zip((pod.key for pod in pods), at, strict=True)))
        for at in product(range(3), repeat=len(pods))
    )
    if len(after) == len(pods):
        assert ms(after) <= ms(before) * (1 + 1e-6)
        # Less than it waits itself would have to be gained by a move that was not made.
        assert ms(after) <= best + LEAST_GAIN * ms(before) * (1 + 1e-6)


@given(st.integers(0, 10**6), st.booleans())
@examples(25)
def test_what_was_just_planned_does_not_move_again(seed: int, is_searched: bool) -> None:
    found, running, pending = running_on(seed, 3, 6)
    apps = [pod.labels["app"] for pod, _ in running]
    if any(apps.count(pod.labels["app"]) == 1 for pod in pending):
        return  # with a second pod of its service the first one can move and nobody waits
    with mock.patch.object(planning, "_is_small", return_value=not is_searched):
        decisions, plan, end = decide_batch(found, pending, running, rule())
        now = {pod.key: (pod, at) for pod, at in running}
        now |= {move.pod.key: (move.pod, move.target) for move in plan.moves}
        index = found.table.index
        now |= {each.pod.key: (each.pod, index[each.node]) for each in decisions if each.node}
        if len(now) < len(running) + len(pending):
            return  # one that is left over may find a place by another way
        again, _ = checked_plan(end, [], [*now.values()], rule())
        assert not again.moves


@given(st.integers(0, 10**6))
@examples(25)
@pytest.mark.slow
def test_each_move_passes_the_filters_and_no_board_gets_too_much(seed: int) -> None:
    found, running, pending = running_on(seed, 4, 9)
    _, plan, end = decide_batch(found, pending, running, rule())
    for resource in (CPU, MEMORY, PODS):
        assert (end.unrequested(resource) >= 0).all()
    for step in suggested_steps(found, running, rule()):
        without = found.without_placement(step.pod, step.source)
        assert all(run(without, step.pod).passes[step.target] for run in FILTERS.values())
        found = without.with_placement(step.pod, step.target)
    assert len({move.pod.key for move in plan.moves}) == len(plan.moves)


@given(st.integers(0, 10**6))
@examples(15)
def test_where_nothing_may_move_the_plan_is_as_if_nothing_ran(seed: int) -> None:
    found, running, pending = running_on(seed, 3, 6)
    still, _ = checked_plan(found, pending, running, rule(), lambda _: found.table.none())
    alone, _ = checked_plan(found, pending, [], rule())
    assert not still.moves
    assert (still.placed, still.why) == (alone.placed, alone.why)


@given(st.integers(0, 10**6))
@examples(15)
def test_a_pod_goes_only_where_it_may(seed: int) -> None:
    found, running, pending = running_on(seed, 3, 6)
    may = np.array([False, True, False])
    plan, _ = checked_plan(
        found, pending, running, rule(), lambda pod: may & (pod.name != running[0][0].name)
    )
    assert {move.target for move in plan.moves} <= {1}
    assert not running or running[0][0].key not in {move.pod.key for move in plan.moves}


def far_cloud(rtt_ms: float) -> ClusterView:
    """A user's board, an edge board 5 ms away, and the cloud."""
    boards = [node("home", cores=0.1), node("edge"), node("cloud", tier="cloud", cores=32)]
    return view(boards, links=[Link("home", "edge", 5.0), Link("home", "cloud", rtt_ms)])


def used_at_home(name: str, app: str = "web", cpu: int = 500) -> Pod:
    pod = wanted(name, app, cpu=cpu)
    return replace(pod, annotations=replace(pod.annotations, user_node="home"))


def suggested(found: ClusterView, *running: Running) -> tuple[Move, ...]:
    for pod, at in running:
        found = found.with_placement(pod, at)
    return suggested_steps(found, running, rule())


def test_a_pod_comes_from_the_cloud_if_that_pays_in_its_life() -> None:
    """Worked by hand: 20 s away in a life of 3600 s are 20 * 20 / 2 / 3600 s for each request."""
    none = np.zeros(1)
    assert moving_ms(none, none, 3600.0).tolist() == [pytest.approx(55.6, abs=0.05)]
    assert moving_ms(np.array([10.0]), none, 3600.0).tolist() == [pytest.approx(125.0)]
    # A restart takes 20 s, also where starts are quicker.
    assert moving_ms(none, np.array([3.0]), 3600.0).tolist() == [pytest.approx(55.6, abs=0.05)]
    assert moving_ms(none, np.array([60.0]), 3600.0).tolist() == [pytest.approx(500.0)]
    (move,) = suggested(far_cloud(105.0), (used_at_home("web-0"), 2))
    assert (move.pod.name, move.source, move.target) == ("web-0", 2, 1)
    assert move.room_for == ()
    assert "waits 43.3 ms" in move.why
    assert move.why.endswith("less on edge, with 55.6 ms for its move in its life of 3600 s")
    assert suggested(far_cloud(55.0), (used_at_home("web-0"), 2)) == ()


def test_where_another_pod_of_the_service_serves_nobody_waits_for_the_move() -> None:
    replicas = (used_at_home("web-0"), 2), (used_at_home("web-1"), 1)
    (move,) = suggested(far_cloud(55.0), *replicas)
    assert move.pod.name == "web-0"
    assert move.why.endswith("1 other pods of its service serve while it moves")
    nearly = far_cloud(5.5)
    assert suggested(nearly, *replicas) == (), "readings differ by as much"


def test_where_not_all_moves_may_be_made_the_first_are() -> None:
    found, running = far_cloud(200.0), list[Running]()
    for app in ("a", "b", "c"):
        pod = replace(used_at_home(f"{app}-0", app), uid=app)
        running.append((pod, 2))
        found = found.with_placement(pod, 2)
    every = suggested_steps(found, running, rule())
    assert len(every) == 3
    for most in range(3):
        part = suggested_steps(found, running, rule(), fits=at_most(most))
        assert part == every[:most]


def test_one_pod_leaves_the_edge_for_two() -> None:
    """No move and no exchange alone helps, also where not all plans are tried."""
    found = far_cloud(500.0)
    running = [(used_at_home("wide", "a", cpu=4000), 1)]
    running += [(used_at_home(f"small-{i}", f"b{i}", cpu=2000), 2) for i in range(2)]
    for pod, at in running:
        found = found.with_placement(pod, at)
    with mock.patch.object(planning, "_is_small", return_value=False):
        plan, _ = checked_plan(found, [], running, rule())
    targets = {move.pod.name: move.target for move in plan.moves}
    assert targets == {"wide": 2, "small-0": 1, "small-1": 1}
    assert "makes room for default/small-0, default/small-1; wide waits" in plan.moves[0].why


def test_a_pod_makes_way_for_one_that_has_no_other_place() -> None:
    """Only the big board can take the big pod."""
    found = view([node("small", cores=1), node("big", cores=2)])
    here = wanted("here", "a", cpu=600)
    wide = wanted("wide", "b", cpu=1800)
    placed = found.with_placement(here, 1)
    decisions, plan, _ = decide_batch(placed, [wide], [(here, 1)], rule())
    assert [each.node for each in decisions] == ["big"]
    (move,) = plan.moves
    assert (move.pod.name, move.target, move.room_for) == ("here", 0, ("default/wide",))
    assert move.why.startswith("makes room for default/wide; here waits ")
    assert "and 1 that move" in plan.why["default/wide"]
    assert plan.is_worth(plan.moves)
    assert not plan.is_worth(()), "without it there is no room"


def test_a_pod_follows_its_database() -> None:
    found = view([node("n0"), node("n1")], links=[Link("n0", "n1", 80.0)], objects=[service("db")])
    app = wanted("app", "web", peers=[DeclaredPeer("db", 1.0, 10.0)])
    database = wanted("db-0", "db")
    (move,) = suggested(found, (app, 1), (database, 0))
    assert move.target != move.source
    near = suggested(found, (app, 1), (database, 1))
    assert near == ()


def test_pods_of_jobs_stay() -> None:
    """They would begin again."""
    job = replace(used_at_home("j", "batch"), owner=Owner("Job", "j", "uid-j"))
    assert suggested(far_cloud(900.0), (job, 2)) == ()
    assert suggested(far_cloud(900.0), (used_at_home("j", "batch"), 2))


def test_of_many_running_pods_those_with_the_most_to_gain_take_part() -> None:
    far = [(used_at_home(f"far-{i}", "far", cpu=10), 2) for i in range(10)]
    near = [(used_at_home(f"near-{i}", "near", cpu=10), 1) for i in range(MOST_MOVING)]
    found = far_cloud(300.0)
    for pod, at in [*near, *far]:
        found = found.with_placement(pod, at)
    plan, _ = checked_plan(found, [used_at_home("new")], [*near, *far], rule())
    assert {move.pod.name for move in plan.moves} == {pod.name for pod, _ in far}
    assert plan.why["default/new"].endswith(
        f"; of {MOST_MOVING + 10} running pods {MOST_MOVING} took part"
    )


def test_a_pod_on_a_board_that_takes_no_more_may_stay_there() -> None:
    """More is requested than there is, as after a resize."""
    found = view([node("n0", cores=1), node("n1", cores=1)])
    pods = [wanted(f"p{i}", f"a{i}", cpu=800) for i in range(2)]
    for each in pods:
        found = found.with_placement(each, 0)
    plan, _ = checked_plan(found, [], [(each, 0) for each in pods], rule())
    assert len(plan.moves) <= 1
