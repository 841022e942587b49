"""NAS with numbers worked by hand."""

import numpy as np
import pytest
from leadline_controller.framework.model import Link
from leadline_controller.framework.options import build
from leadline_controller.framework.preferences import nearly_best
from leadline_controller.strategies.nas import PREFERRED_LABEL, Nas

from tests.controller.builders import node, pod, view

NODES = [node("n1"), node("n2"), node("n3")]
# Table 4 of the DACS paper, ms.
LINKS = [Link("n1", "n2", 50.0), Link("n1", "n3", 60.0), Link("n2", "n3", 10.0)]


@pytest.mark.parametrize(
    ("preferred", "total", "nearest"),
    [("n1", [0, 50, 60], 1), ("n2", [50, 0, 10], 2), ("n3", [60, 10, 0], 1)],
)
def test_the_preferred_node_and_then_the_nearest_to_it(
    preferred: str, total: list[float], nearest: int
) -> None:
    cluster = view(NODES, links=LINKS)
    wanted = pod(annotations={"user-node": preferred})
    scores = Nas().score(cluster, wanted, np.arange(3))
    assert scores.total.tolist() == total
    at = int(preferred[1]) - 1
    assert scores.finalists.tolist() == [at]
    assert scores.why(at) == f"{preferred} is a preferred node"
    others = np.array([i for i in range(3) if i != at])  # it can no longer serve pods
    scores = Nas().score(cluster, wanted, others)
    assert others[scores.finalists].tolist() == [nearest]


def test_no_other_node_is_as_good_as_a_preferred_one_however_near_it_is() -> None:
    links = [Link("n1", "n2", 0.0), Link("n1", "n3", 0.2), Link("n2", "n3", 0.2)]
    cluster = view(NODES, links=links)
    scores = Nas().score(cluster, pod(annotations={"user-node": "n1"}), np.arange(3))
    assert scores.finalists.tolist() == [0]
    assert nearly_best(scores, scores.leeway.tolerance).tolist() == [0]
    rest = Nas().score(cluster, pod(annotations={"user-node": "n1"}), np.array([1, 2]))
    assert nearly_best(rest, rest.leeway.tolerance).tolist() == [0, 1]


def test_the_reason_shows_the_distance() -> None:
    wanted = pod(annotations={"user-node": "n1"})
    scores = Nas().score(view(NODES, links=LINKS), wanted, np.array([1]))
    assert scores.why(0) == "50 ms from the nearest preferred node"


def test_designated_nodes_go_before_the_users_and_the_nearest_of_them_counts() -> None:
    designated = {PREFERRED_LABEL: "true"}
    nodes = [
        node("n1", labels=designated),
        node("n2"),
        node("n3", labels=designated),
        node("n4", labels={PREFERRED_LABEL: "false"}),
    ]
    links = [*LINKS, Link("n1", "n4", 5.0), Link("n3", "n4", 70.0), Link("n2", "n4", 1.0)]
    cluster = view(nodes, links=links)
    scores = Nas().score(cluster, pod(annotations={"user-node": "n2"}), np.arange(4))
    assert scores.total.tolist() == [0, 10, 0, 5]
    assert scores.finalists.tolist() == [0, 2]
    assert scores.why(2) == "n3 is a preferred node"
    rest = Nas().score(cluster, pod(), np.array([1, 3]))  # the preferred nodes are full
    assert rest.finalists.tolist() == [1]


def test_without_a_preferred_node_all_nodes_tie() -> None:
    scores = Nas().score(view(NODES, links=LINKS), pod(), np.arange(3))
    assert np.isnan(scores.total).all()
    assert scores.finalists.tolist() == [0, 1, 2]
    assert scores.why(0) == "no node is preferred"


def test_an_unmeasured_round_trip_counts_as_those_to_boards_like_it_or_as_the_longest() -> None:
    cluster = view(NODES, links=[Link("n1", "n2", 50.0), Link("n2", "n3", 80.0)])
    for unknown, n3 in (("like-boards", 50), ("worst", 80)):
        scores = Nas(unknown=unknown).score(
            cluster, pod(annotations={"user-node": "n1"}), np.arange(3)
        )
        assert scores.total.tolist() == [0, 50, n3]


def test_without_any_round_trip_the_option_is_used_and_never_zero() -> None:
    wanted = pod(annotations={"user-node": "n1"})
    scores = build(Nas, {"unknown_rtt": 30}).score(view(NODES), wanted, np.arange(3))
    assert scores.total.tolist() == [0, 30, 30]
