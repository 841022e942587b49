"""The values of measures: what is unknown is left out and counted, pods are where they are."""

from dataclasses import replace

import pytest
from leadline_lab.replay.measures import MEASURES, nodes, stays
from leadline_lab.replay.outcomes import Outcome, PodOutcome

BY_KEY = {measure.key: measure for measure in MEASURES}
PLACED = PodOutcome("default/a", "default/a", 10.0, "n1", 12.0, 20.0, None, 5.0)
PENDING = PodOutcome("default/b", "default/b", 100.0)


def outcome(*pods: PodOutcome, length_s: float = 600.0, **more: object) -> Outcome:
    return replace(Outcome("dacs", 0, length_s, pods), **more)  # type: ignore[arg-type]


def values(key: str, found: Outcome) -> list[float]:
    return [float(value) for value in BY_KEY[key].values(found).value]


@pytest.mark.parametrize(
    ("key", "of_placed", "of_pending"),
    [
        ("ready_s", [10.0], []),
        ("wait_s", [2.0], [500.0]),
        ("pull_s", [5.0], []),
        ("start_s", [3.0], []),
        ("pending", [0.0], [1.0]),
        ("user_rtt_ms", [], []),
        ("transfer_s", [], []),
        ("contention", [], []),
        ("moves", [0.0], [0.0]),
        ("ready_over_best_s", [], []),
        ("rtt_over_best_ms", [], []),
        ("edge", [], []),
    ],
)
def test_what_is_unknown_is_left_out_and_counted(
    key: str, of_placed: list[float], of_pending: list[float]
) -> None:
    found = outcome(PLACED, PENDING)
    assert values(key, found) == [*of_placed, *of_pending]
    _, _, weight, known, unknown = BY_KEY[key].values(found)
    assert (known, unknown) == (len(of_placed + of_pending), 2 - len(of_placed + of_pending))
    assert weight.tolist() == [1.0] * known


def test_a_pod_that_was_deleted_without_a_node_waited_until_then_and_is_not_pending() -> None:
    found = outcome(replace(PENDING, ended_s=130.0))
    assert values("wait_s", found) == [30.0]
    assert values("pending", found) == [0.0]


def test_the_distance_to_the_best_possible() -> None:
    pod = replace(PLACED, best_ready_s=4.0, user_rtt_ms=9.0, best_rtt_ms=2.5)
    assert values("ready_over_best_s", outcome(pod)) == [6.0]
    assert values("rtt_over_best_ms", outcome(pod)) == [6.5]


def test_a_node_without_a_tier_is_on_the_edge() -> None:
    pods = [replace(PLACED, node=node) for node in ("n1", "n2", "n3")]
    assert values("edge", outcome(*pods, tiers={"n1": "edge", "n2": "cloud"})) == [1, 0, 1]


def test_a_pod_is_on_one_board_after_the_other() -> None:
    pod = replace(PLACED, moved=((50.0, "n2"), (80.0, "n3")), ended_s=900.0)
    assert list(stays(pod, 600.0)) == [("n1", 12, 50), ("n2", 50, 80), ("n3", 80, 600)]
    assert list(stays(replace(pod, ended_s=60.0), 600.0)) == [("n1", 12, 50), ("n2", 50, 60)]
    assert list(stays(replace(PLACED, bound_s=-30.0), 600.0)) == [("n1", 0, 600)]
    assert list(stays(PENDING, 600.0)) == []
    assert nodes(outcome(pod, tiers={"n9": "cloud"})) == ["n1", "n2", "n3", "n9"]


def test_unevenness_is_the_variation_at_each_moment_over_all_boards_and_time() -> None:
    zones = {"n1": "a", "n2": "a", "n3": "b"}
    # One pod on one of three boards for 300 s, then one on each board for 300 s.
    pods = [
        PodOutcome("p/1", "p/1", 0, "n1", 0.0),
        PodOutcome("p/2", "p/2", 0, "n2", 300.0),
        PodOutcome("p/3", "p/3", 0, "n3", 300.0),
    ]
    found = outcome(*pods, zones=zones)
    at_s, value, weight, known, unknown = BY_KEY["board_variation"].values(found)
    assert (at_s.tolist(), weight.tolist(), known, unknown) == ([0, 300], [300, 300], 3, 0)
    assert value.tolist() == pytest.approx([2**0.5, 0.0])
    # Half a pod a board in zone a and none in zone b; then one a board in both.
    assert values("zone_variation", found) == pytest.approx([1.0, 0.0])


def test_unevenness_takes_each_span_between_changes_for_as_long_as_it_lasts() -> None:
    pods = [PodOutcome("p/1", "p/1", 0, "n1", 0.0), PodOutcome("p/2", "p/2", 0, "n2", 100.0)]
    found = outcome(*pods, length_s=300.0, zones={"n1": "a", "n2": "a"})
    assert values("board_variation", found) == pytest.approx([1.0 * 100 / 300])
    assert values("zone_variation", found) == []  # there is one zone


def test_time_without_any_pod_counts_for_no_spread() -> None:
    pod = replace(PLACED, bound_s=300.0, ended_s=400.0)
    at_s, _, weight, *_ = BY_KEY["board_variation"].values(outcome(pod, tiers={"n2": "edge"}))
    assert (at_s.tolist(), weight.tolist()) == ([300], [100])


def test_a_run_without_pods_has_no_values() -> None:
    for measure in MEASURES:
        assert measure.values(outcome(tiers={"n1": "edge", "n2": "edge"})).value.size == 0
