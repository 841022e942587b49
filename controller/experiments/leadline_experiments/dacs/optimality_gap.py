"""How far from the optimum of DACS' own problem (Eq. 3-7) each method's placements are, on the
paper's two clusters."""

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
from leadline_experiments.optimum.study import DELAY, OptimalityGap, placed
from leadline_experiments.result import Row

TABLE = "Optimum, Eq. 3-7"
_RUNS = 10  # of each method, as ties are broken at random


def rows(seed: int) -> Sequence[Row]:
    """The average delay of each method in both scenarios at each alpha, beside the least that any
    placement has."""
    return [
        row
        for scenario in (SCENARIO_1, SCENARIO_2)
        for alpha in ALPHAS
        for row in _rows(scenario, Dacs(alpha=alpha, phi=PHI, lambda_s=LAMBDA_S), seed)
    ]


def _rows(scenario: Scenario, objective: Dacs, seed: int) -> Iterator[Row]:
    view, pods = cluster(scenario)
    best, cost = dacs.best(view, pods, objective, FILTERS), dacs.delays(view, pods, objective)
    others: list[Strategy] = [KubeDefault(), ElasticFog(), Tsra(), Kcss(), Chance()]
    methods: list[tuple[Strategy, str, str | None]] = [
        (objective, "", None),
        *((each, "", None) for each in others),
    ]
    methods += [(Nas(), f"{worker} preferred", worker) for worker in WORKERS]
    for strategy, option, preferred in methods:
        _, asked = cluster(scenario, preferred)
        distance = OptimalityGap()
        for run in range(_RUNS):
            ties = Random(f"{scenario.title} {seed} {run}")
            at = placed(view, asked, (), strategy, ties)
            left = len(pods) - len(at)
            ours = None if left else cost.of(dacs.nodes_of(view, pods, at))
            distance.add(ours, best, left)
        case = f"{scenario.title}, alpha={objective.alpha:g}"
        yield from distance.rows(TABLE, case, strategy.name, option, DELAY)
