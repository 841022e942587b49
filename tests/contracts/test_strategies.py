"""The contract of every strategy."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Strategy, decide
from leadline_controller.framework.model import Link
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.options import build, options_of, values_of
from leadline_controller.framework.view import ClusterView, Ints
from leadline_controller.strategies import DEFAULT_STRATEGY, STRATEGIES
from leadline_controller.strategies.registry import defect

from tests.contracts.clusters import Case, fingerprint, on_cases, reordered, with_metric
from tests.controller.builders import node, pod, view

every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def make(name: str) -> Strategy:
    strategy: Strategy = build(STRATEGIES[name], {})
    return strategy


def everyone(cluster: ClusterView) -> Ints:
    return np.arange(len(cluster))


@every_strategy
def test_a_strategy_describes_itself(name: str) -> None:
    strategy = STRATEGIES[name]
    assert strategy.name == name
    assert strategy.better in ("lower", "higher")
    assert strategy.paper
    assert set(strategy.needs) <= {*METRICS, "rtt_ms"}
    assert defect(strategy, name) is None, "a plug-in like this one would be accepted"
    assert "nknown" in (strategy.__doc__ or ""), "it says what it does where a metric is unknown"


@every_strategy
def test_options_have_defaults_in_their_range_and_say_what_they_are(name: str) -> None:
    for option in options_of(STRATEGIES[name]):
        assert option.help
        if option.choices:
            assert option.default in option.choices
        else:
            assert option.minimum <= float(option.default) <= option.maximum
        made = build(STRATEGIES[name], {option.name: str(option.default)})
        assert values_of(made) == values_of(make(name))


@every_strategy
@on_cases()
def test_its_own_filters_have_new_names_and_a_result_for_every_node(name: str, case: Case) -> None:
    own = Rule(make(name), {}).filters
    assert not own.keys() & FILTERS.keys()
    strict = replace(
        case.wanted, annotations=replace(case.wanted.annotations, response_time_ms=50.0)
    )
    for test in own.values():
        result = test(case.cluster, strict)
        assert result.passes.shape == (len(case.cluster),)
        assert all(result.reason(int(i)).strip() for i in np.flatnonzero(~result.passes))


def test_the_default_is_one_of_them() -> None:
    assert DEFAULT_STRATEGY in STRATEGIES


@every_strategy
@on_cases()
def test_scores_have_the_candidates_shape_and_no_infinities(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    candidates = everyone(cluster)[:: 2 if len(cluster) > 2 else 1]
    scores = make(name).score(cluster, wanted, candidates)
    assert scores.candidates.tolist() == candidates.tolist()
    for column in (scores.total, *scores.parts.values()):
        assert column.shape == candidates.shape
        assert not np.isinf(column).any()
    assert scores.finalists.size > 0
    assert set(scores.finalists.tolist()) <= set(range(candidates.size))
    for at in range(candidates.size):
        assert scores.why(at).strip()
        assert "\n" not in scores.why(at)
        assert "nan" not in scores.why(at)


@every_strategy
@on_cases()
def test_it_also_chooses_among_fewer(name: str, case: Case) -> None:
    everyone_ = everyone(case.cluster)
    scores = make(name).score(case.cluster, case.wanted, everyone_)
    assert 0 <= scores.leeway.tolerance < np.inf
    if scores.leeway.among is not None:
        assert scores.leeway.among(np.arange(everyone_.size)).tolist() == scores.finalists.tolist()
        some = np.arange(0, everyone_.size, 2)
        chosen = scores.leeway.among(some)
        assert chosen.size
        assert set(chosen.tolist()) <= set(some.tolist())


@every_strategy
@on_cases()
def test_a_seed_repeats_the_decision_and_a_rejected_node_is_never_chosen(
    name: str, case: Case
) -> None:
    cluster, wanted = case.cluster, case.wanted
    first, again = (
        decide(cluster, wanted, Rule(make(name), FILTERS, Random(case.seed))) for _ in range(2)
    )
    assert (first.node, first.why) == (again.node, again.why)
    assert first.node not in first.rejected()
    fitting = set(cluster.table.names) - set(first.rejected())
    assert (first.node in fitting) if fitting else first.node is None


@every_strategy
@on_cases()
def test_a_decision_does_not_change_the_view(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    before = fingerprint(cluster)
    decision = decide(cluster, wanted, Rule(make(name), FILTERS))
    decision.scores()
    decision.rejected()
    make(name).charge(cluster, wanted, 0)
    assert fingerprint(cluster) == before


@every_strategy
@on_cases(most=1)
def test_one_node_is_chosen_when_it_fits(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    decision = decide(cluster, wanted, Rule(make(name), {}))
    assert decision.node == "n0"


@every_strategy
def test_without_any_measurement_the_choice_is_random(name: str) -> None:
    cluster = view([node("a"), node("b"), node("c")])
    chosen = {decide(cluster, pod(), Rule(make(name), FILTERS, Random(s))).node for s in range(60)}
    assert chosen == {"a", "b", "c"}, "the nodes are equal, so the choice is random"


@every_strategy
@on_cases(least=2)
def test_the_order_of_the_nodes_does_not_matter(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    for metric in METRICS:  # no two alike: NetSched gives a tie to the first of them
        values = [10.0 + 7 * i for i in range(len(cluster))]
        cluster = with_metric(cluster, metric, values)
    order = Random(case.seed).sample(range(len(cluster)), len(cluster))
    there = make(name).score(cluster, wanted, everyone(cluster))
    here = make(name).score(reordered(cluster, order), wanted, everyone(cluster))
    np.testing.assert_allclose(here.total, there.total[order])
    for part, column in there.parts.items():
        np.testing.assert_allclose(here.parts[part], column[order], atol=1e-9)


@every_strategy
@on_cases(least=2)
def test_metrics_that_it_does_not_need_do_not_change_its_totals(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    idle = [metric for metric in METRICS if metric not in STRATEGIES[name].needs]
    before = make(name).score(cluster, wanted, everyone(cluster))
    random = Random(case.seed)
    for metric in idle:
        values = [random.uniform(0, 100) for _ in cluster.nodes]
        cluster = with_metric(cluster, metric, values)
    after = make(name).score(cluster, wanted, everyone(cluster))
    np.testing.assert_array_equal(before.total, after.total)


needed = pytest.mark.parametrize(
    ("name", "metric"),
    [(name, need) for name, s in STRATEGIES.items() for need in s.needs if need in METRICS],
)


@needed
@pytest.mark.parametrize("known", [0.0, 1.0, 50.0, 100.0])
def test_an_unknown_metric_never_beats_a_known_one(name: str, metric: str, known: float) -> None:
    same = {other: [50.0, 50.0] for other in METRICS}
    cluster = with_metric(
        view([node("unknown"), node("known")], metrics=same), metric, [math.nan, known]
    )
    for order in ([0, 1], [1, 0]):  # NetSched favours the first in the metrics that are equal
        turned = reordered(cluster, order)
        scores = make(name).score(turned, pod(), everyone(turned))
        alike = make(name).score(
            with_metric(turned, metric, [known, known]), pod(), everyone(turned)
        )
        at = order.index(0)
        gain = scores.total[at] - alike.total[at]
        better = gain > 0 if STRATEGIES[name].better == "higher" else gain < 0
        assert not better, "an unknown value must not be worth more than a known one"


@needed
@on_cases(least=2, most=4)
def test_a_good_measurement_of_the_winner_does_not_make_it_lose(
    name: str, metric: str, case: Case
) -> None:
    cluster, wanted = case.cluster, case.wanted
    column = getattr(cluster.metrics, metric).copy()
    column[0] = math.nan
    unknown = with_metric(cluster, metric, column.tolist())
    scores = make(name).score(unknown, wanted, everyone(cluster))
    outcomes = []
    for extreme in (-1.0, 1e6):
        column[0] = extreme
        known = with_metric(cluster, metric, column.tolist())
        outcomes.append(make(name).score(known, wanted, everyone(cluster)))
    sign = 1 if STRATEGIES[name].better == "higher" else -1
    good = max(outcomes, key=lambda outcome: np.nan_to_num(sign * outcome.total[0], nan=-np.inf))
    assert 0 not in scores.finalists or 0 in good.finalists


@pytest.mark.parametrize("name", [n for n, s in STRATEGIES.items() if "rtt_ms" in s.needs])
@pytest.mark.parametrize("known_ms", [0.0, 1.0, 500.0])
def test_an_unmeasured_round_trip_never_beats_a_measured_one(name: str, known_ms: float) -> None:
    nodes = [node("user"), node("unknown"), node("known")]
    cluster = view(nodes, links=[Link("user", "known", known_ms)])
    wanted = pod(annotations={"user-node": "user"})
    total = make(name).score(cluster, wanted, np.array([1, 2])).total
    assert total[0] >= total[1] if STRATEGIES[name].better == "lower" else total[0] <= total[1]


@every_strategy
@on_cases()
def test_a_charge_covers_the_request_and_overdraws_no_node_that_fits(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    decision = decide(cluster, wanted, Rule(make(name), FILTERS))
    if decision.node is None:
        return
    at = cluster.table.index[decision.node]
    charge = make(name).charge(cluster, wanted, at)
    after = cluster.with_placement(wanted, at, charge)
    for resource, amount in wanted.requests.items():
        assert charge[resource] >= amount
        if amount:
            assert after.free(resource)[at] >= 0
