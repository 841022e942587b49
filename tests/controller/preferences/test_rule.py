"""How preferences join a strategy: among nodes that are nearly as good as its choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.cycle import (
    Leeway,
    Rule,
    Scores,
    Strategy,
    best,
    decide,
    decide_in_turn,
)
from leadline_controller.framework.model import Link, Owner, Pod
from leadline_controller.framework.preferences import nearly_best
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.preferences import rule
from leadline_controller.rescheduling.plan import PlanLimits, PlannedMove, Stay, propose
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.elasticfog import ElasticFog
from leadline_controller.strategies.response_time import ResponseTime

from tests.controller.builders import node, pod, view

HOST = "kubernetes.io/hostname"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Given(Strategy):
    """Totals by name, the lowest wins."""

    name = "given"
    better = "lower"
    paper = "none"
    needs = ()

    totals: Mapping[str, float]
    tolerance: float = 1.0

    def score(self, view: ClusterView, _: Pod, candidates: Ints) -> Scores:
        total = np.array([self.totals[view.table.names[i]] for i in candidates])

        def why(at: int) -> str:
            return f"{total[at]:g} of {candidates.size}"

        parts = {"given": total}
        return Scores(candidates, total, best(total, "lower"), why, parts, Leeway(self.tolerance))


def preferring(**weights: int) -> Pod:
    terms = [
        {
            "weight": weight,
            "preference": {
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]
            },
        }
        for name, weight in weights.items()
    ]
    return pod(affinity={"nodeAffinity": {PREFERRED: terms}})


NODES = [node(name) for name in ("a", "b", "c", "d")]
TOTALS = {"a": 1.0, "b": 1.5, "c": 2.0, "d": 9.0}


@pytest.mark.parametrize(
    ("wanted", "setting", "chosen"),
    [
        (pod(), "on", "a"),
        (preferring(b=10), "on", "b"),
        (preferring(b=10), "off", "a"),
        (preferring(b=10, c=20), "on", "c"),
        # d is too far away, so its preference has no say.
        (preferring(d=100, b=1), "on", "b"),
        (preferring(d=100), "on", "a"),
        (preferring(d=100), 8.0, "d"),
        (preferring(c=100, b=1), 0.5, "b"),
        (preferring(b=100), 0.0, "a"),
        # Both are preferred alike, and the strategy chooses between them.
        (preferring(b=10, c=10), "on", "b"),
    ],
)
def test_preferences_decide_within_the_tolerance(
    wanted: Pod, setting: str | float, chosen: str
) -> None:
    decision = decide(view(NODES), wanted, Rule(Given(TOTALS), FILTERS, Random(0), rule(setting)))
    assert decision.node == chosen


def test_both_parts_are_told() -> None:
    decision = decide(
        view(NODES), preferring(b=10, c=20), Rule(Given(TOTALS), FILTERS, Random(0), rule("on"))
    )
    assert decision.why == "2 of 4; preferred among 3 nodes nearly as good (NodeAffinity 100)"
    shown = {name: parts for name, (_, parts) in decision.scores().items()}
    assert shown["b"] == {"given": 1.5, "preference": 100.0, "NodeAffinity": 50.0}
    assert shown["d"] == {"given": 9.0, "preference": 0.0, "NodeAffinity": 0.0}
    alone = decide(view(NODES), pod(), Rule(Given(TOTALS), FILTERS, Random(0), rule("on")))
    assert alone.scores()["a"] == (1.0, {"given": 1.0})
    assert alone.why == "1 of 4"


def near(
    total: Sequence[float],
    finalists: Sequence[int],
    tolerance: float,
    base: float | None = None,
    rivals: Sequence[bool] | None = None,
) -> list[int]:
    at, columns = np.arange(len(total)), (np.array(total), np.array(finalists))
    among = None if rivals is None else np.array(rivals)
    scores = Scores(at, *columns, lambda _: "", leeway=Leeway(base=base, rivals=among))
    found: list[int] = nearly_best(scores, tolerance).tolist()
    return found


def test_the_nodes_nearly_as_good_as_the_strategys_choice() -> None:
    total = [1.0, 3.0, 2.0, np.nan, 4.0]
    assert near(total, [2], 1.0) == [0, 1, 2]
    assert near(total, [2], 0.0) == [2]
    assert near([np.nan] * 3, [0, 2], 5.0) == [0, 2]
    with np.errstate(all="raise"):
        for far in ([1e308, -1e308], [np.inf, np.inf]):
            assert near(far, [1], 1.0) == [1]


def test_each_of_the_strategys_choices_has_nodes_nearly_as_good() -> None:
    assert near([1.0, 2.0, 5.0], [0, 2], 1.0) == [0, 1, 2]
    assert near([1.0, 2.0, 5.0, 3.4], [0, 2], 1.0) == [0, 1, 2]
    assert near([1.0, np.nan, 5.0, 4.5], [0, 2, 1], 1.0) == [0, 1, 2, 3]


def test_the_tolerance_may_count_from_another_total_than_the_choices() -> None:
    assert near([0.0, 0.05, 0.10], [1], 0.05) == [0, 1, 2]
    assert near([0.0, 0.05, 0.10], [1], 0.05, base=0.0) == [0, 1]


def test_no_preference_leaves_those_among_which_the_strategy_chooses() -> None:
    assert near([1.0, 1.1, 1.2], [1], 1.0, rivals=[False, True, True]) == [1, 2]


@pytest.mark.parametrize(
    "strategy", [ResponseTime(), ElasticFog()], ids=lambda each: type(each).__name__
)
def test_each_node_has_a_first_replica_before_any_has_a_second(strategy: Strategy) -> None:
    cluster = view(
        [node(f"n{i}", labels={HOST: f"n{i}"}) for i in range(4)],
        links=[Link(f"n{i}", f"n{j}", 0.5) for i in range(4) for j in range(i)],
        metrics={
            "packets_received_per_s": [80.0, 20.0, 20.0, 20.0],
            "packets_sent_per_s": [80.0, 20.0, 20.0, 20.0],
        },
    )
    pods = [replace(each, preferences=preferring(n0=100).preferences) for each in six()[:4]]
    placed = decide_in_turn(cluster, pods, Rule(strategy, FILTERS, Random(0), rule("on")))
    assert sorted(str(decision.node) for decision, _ in placed) == ["n0", "n1", "n2", "n3"]


WEB = Owner("ReplicaSet", "web", "uid", "apps/v1")
WEB_SET = PodSelector("ReplicaSet", "default", "web", (Requirement("app", "In", ("web",)),))


def six() -> list[Pod]:
    size = {"cpu": "500m", "memory": "128Mi"}
    made = (pod(f"web-{i}", labels={"app": "web"}, requests=size, limits=size) for i in range(6))
    return [replace(each, owner=WEB) for each in made]


@pytest.mark.parametrize(("setting", "counts"), [("on", [2, 2, 1, 1]), ("off", [6])])
def test_a_deployment_of_6_on_4_boards_under_dacs(setting: str, counts: list[int]) -> None:
    """One board has far more room, so the paper's rule puts all six there."""
    boards = [
        node(f"n{i}", cores=cores, gib=cores, labels={HOST: f"n{i}"})
        for i, cores in enumerate((16, 4, 4, 4))
    ]
    cluster = view(boards, objects=[WEB_SET])
    placed = decide_in_turn(cluster, six(), Rule(Dacs(), FILTERS, Random(0), rule(setting)))
    nodes = [decision.node for decision, _ in placed]
    assert sorted((nodes.count(each) for each in set(nodes)), reverse=True) == counts


def test_a_move_does_not_undo_a_preference() -> None:
    wanted = replace(preferring(b=10), uid="u", node_name="b")
    cluster = view(NODES, assigned_pods=[wanted], requested={"pods": [0, 1, 0, 0]})
    by = Given(TOTALS)
    limits = PlanLimits(min_gain=0.1)
    alone = propose(cluster, wanted, "b", Rule(by, FILTERS), limits)
    assert isinstance(alone, PlannedMove)
    both = Rule(by, FILTERS, prefer=rule("on"))
    assert isinstance(propose(cluster, wanted, "b", both, limits), Stay)
