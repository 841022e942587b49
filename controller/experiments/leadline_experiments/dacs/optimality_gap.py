"""The optimality gap of each method on the paper's two clusters, by DACS' own objective
(Eq. 3-7)."""

from collections.abc import Iterator, Sequence
from random import Random

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy
from leadline_controller.strategies.chance import Chance
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.elasticfog import ElasticFog
from leadline_controller.strategies.kcss import Kcss
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.nas import Nas
from leadline_controller.strategies.tsra import Tsra

from leadline_experiments.dacs.paper_values import ALPHAS
from leadline_experiments.dacs.scenarios import (
    SCENARIO_1,
    SCENARIO_2,
    WORKERS,
    Scenario,
    cluster,
)
from leadline_experiments.dacs.trials import LAMBDA_S, PHI
from leadline_experiments.optimum import dacs
from leadline_experiments.optimum.study import DELAY, OptimalityGap, place
from leadline_experiments.result import Row

TABLE = "Optimum, Eq. 3-7"
_RUNS = 10  # of each method, as ties are broken at random


def rows(seed: int) -> Sequence[Row]:
    """The average delay of each method in both scenarios for each alpha, beside the optimum."""
    return [
        row
        for scenario in (SCENARIO_1, SCENARIO_2)
        for alpha in ALPHAS
        for row in _rows(scenario, Dacs(alpha=alpha, phi=PHI, lambda_s=LAMBDA_S), seed)
    ]


def _rows(scenario: Scenario, objective: Dacs, seed: int) -> Iterator[Row]:
    view, pods = cluster(scenario)
    best, delays = dacs.best(view, pods, objective, FILTERS), dacs.delays(view, pods, objective)
    others: list[Strategy] = [KubeDefault(), ElasticFog(), Tsra(), Kcss(), Chance()]
    methods: list[tuple[Strategy, str, str | None]] = [
        (objective, "", None),
        *((each, "", None) for each in others),
        *((Nas(), f"{worker} preferred", worker) for worker in WORKERS),
    ]
    for strategy, option, preferred in methods:
        _, preferring = cluster(scenario, preferred)
        gap = OptimalityGap()
        for run in range(_RUNS):
            ties = Random(f"{scenario.title} {seed} {run}")
            placement = place(view, preferring, (), strategy, ties)
            pending = len(pods) - len(placement)
            ours = None if pending else delays.average_s(dacs.nodes_of(view, pods, placement))
            gap.add(ours, best, pending)
        case = f"{scenario.title}, alpha={objective.alpha:g}"
        yield from gap.rows(TABLE, case, strategy.name, option, DELAY)
