"""What the papers' experiments showed the rule `leadline`: replicas on one board, data that one
thread handles, memory that only requests tell, tiers of which no round trip is known, and readings
that are wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.framework.model import Pod
from leadline_controller.framework.view import ClusterView, Floats
from leadline_controller.strategies.leadline import Leadline
from leadline_controller.strategies.leadline.terms import (
    MOST_BUSY,
    WRONG,
    crowded,
    over_error,
    slowdown,
)

from tests.controller.builders import GIB, node, pod, view

WEB = {"app": "web"}


def terms_ms(seen: ClusterView, term: str, **annotations: str) -> list[float]:
    asking = pod("new", labels=WEB, annotations=annotations)
    scores = Leadline().score(seen, asking, np.arange(len(seen)))
    return [float(ms) for ms in scores.parts.get(term, np.zeros(len(seen)))]


def replicas(*nodes: str) -> list[Pod]:
    return [pod(f"web-{i}", labels=WEB, nodeName=name) for i, name in enumerate(nodes)]


@given(st.floats(0.01, 5.0), st.floats(0.01, 5.0), st.floats(1.0, 16.0))
def test_each_further_replica_is_worse(one: float, other: float, cores: float) -> None:
    low, high = sorted((one, other))
    found = crowded(np.array([low, high]), np.array([cores, cores]))
    assert found[0] <= found[1]
    if high <= MOST_BUSY:
        assert (found == slowdown(np.array([low, high]), np.array([cores, cores]))).all()
    if low > MOST_BUSY and high > low * 1.01:
        assert found[1] > found[0]


def test_a_board_whose_cores_have_replicas_is_left() -> None:
    boards = [node("one", cores=1), node("two", cores=2), node("four", cores=4)]
    seen = view(boards, assigned_pods=replicas("one", "two", "four"))
    profile = '{"one": 10, "two": 10, "four": 10}'
    one, two, four = terms_ms(seen, "work_ms", **{"profile-ms": profile})
    assert one > 100, "its core is busy"
    assert 10 < four < two < 20, "they have a core left"


def test_a_first_replica_has_its_core_alone() -> None:
    seen = view([node("one", cores=1), node("four", cores=4)])
    one, four = terms_ms(seen, "work_ms", **{"profile-ms": '{"one": 10, "four": 10}'})
    assert four <= one < 11.5


def test_data_are_handled_by_one_thread_and_shared_evenly() -> None:
    boards = [node("one", cores=1), node("two", cores=2)]
    assert terms_ms(view(boards), "work_ms", **{"data-mb": "1"}) == [1000, 1000]
    seen = view(boards, assigned_pods=replicas("two", "two", "two"))
    assert terms_ms(seen, "work_ms", **{"data-mb": "1"}) == [1000, 2000]


def test_memory_that_is_only_requested_is_not_lacking() -> None:
    boards = [node("full", gib=1), node("empty", gib=1)]
    full = {"memory": [GIB, 0]}
    found = terms_ms(view(boards, requested=full), "memory_ms")
    assert found == pytest.approx([0, 0], abs=1e-6)
    measured = view(boards, requested=full, metrics={"memory_percent": [95, 10]})
    lacking, enough = terms_ms(measured, "memory_ms")
    assert lacking > 100 > 1 > enough


def test_of_tiers_without_round_trips_the_edge_is_near_and_the_cloud_is_far() -> None:
    boards = [node("board"), node("cloud", tier="cloud")]
    near, far = terms_ms(view(boards), "users_ms")
    assert 0 < near < far / 5


def test_a_board_whose_report_may_be_wrong_fills_up_and_then_is_left() -> None:
    boards = [node("liar", gib=4), node("one", gib=4), node("two", gib=4)]
    reported = {"memory_percent": [0.0, 50.0, 50.0], "cpu_percent": [0.0, 10.0, 10.0]}

    def total_ms(gib: int) -> list[float]:
        seen = view(boards, metrics=reported, requested={"memory": [gib * GIB, 0, 0]})
        return [float(ms) for ms in Leadline().score(seen, pod("new"), np.arange(3)).total]

    liar, one, _ = total_ms(0)
    assert liar <= one
    liar, one, _ = total_ms(3)
    assert liar > 1.5 * one, "with 3 of 4 GiB requested it cannot be empty"


@given(st.floats(0, 1), st.floats(0, 0.3), st.floats(-1, 2))
def test_what_a_wrong_report_may_hide_makes_no_wait_shorter(
    value: float, error: float, if_wrong: float
) -> None:
    def wait_ms(share: Floats) -> Floats:
        return 100 * np.clip(share, 0, 1) ** 2

    columns = np.array([value]), np.array([error])
    without = over_error(wait_ms, *columns)
    found = over_error(wait_ms, *columns, np.array([if_wrong]))
    unknown = over_error(wait_ms, *columns, np.array([np.nan]))
    assert unknown == without
    assert found.value == without.value
    assert found.mean >= found.value
    if if_wrong <= value:
        assert found.mean == without.mean
    elif not error:
        worse = WRONG * (wait_ms(np.array([if_wrong])) - without.value)
        assert found.mean - found.value == pytest.approx(worse, abs=1e-9)
