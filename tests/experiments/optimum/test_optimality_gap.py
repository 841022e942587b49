"""The papers' own scenarios beside the optimum."""

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_controller.strategies.kubedsm.decision import Quality
from leadline_experiments.dacs import methods as of_dacs
from leadline_experiments.dacs.simulation import SCENARIO_1, SCENARIO_2, cluster
from leadline_experiments.kubedsm.logs import logs
from leadline_experiments.kubedsm.runs import BY_LOAD
from leadline_experiments.kubedsm.simulation import SERVICES, best_possible, empty_cluster, make_pod
from leadline_experiments.optimum import dacs, kubedsm
from leadline_experiments.optimum.study import DELAY

pytestmark = pytest.mark.experiment


def test_dacs_methods_stay_above_the_optimum_in_both_scenarios() -> None:
    rows = [
        row
        for scenario in (SCENARIO_1, SCENARIO_2)
        for row in of_dacs.optimality_gaps(scenario, of_dacs.METHODS, 0)
        if row.metric == DELAY
    ]
    assert len({row.case for row in rows}) == 6
    assert all(row.optimum is not None and row.optimum <= row.ours + 1e-9 for row in rows)
    dacs_rows = {row.case: row for row in rows if row.strategy == "dacs"}
    assert len(dacs_rows) == 6


def test_ten_equal_pods_on_three_equal_nodes_are_best_spread() -> None:
    view, pods = cluster(SCENARIO_1)
    found = dacs.best(view, pods, Dacs(), FILTERS)
    counts = sorted(list(found.placement.values()).count(name) for name in ("n1", "n2", "n3"))
    assert counts == [3, 3, 4]


@pytest.mark.parametrize("counts", [(3, 1, 3, 1), (6, 4, 5, 2), (9, 4, 9, 4), (1, 7, 2, 5)])
def test_kubedsms_best_qos_by_packings_is_that_of_the_programme(counts: tuple[int, ...]) -> None:
    objective = KubeDsm()
    pods = [
        make_pod(service, number)
        for service, count in zip(SERVICES, counts, strict=True)
        for number in range(count)
    ]
    found = kubedsm.best(empty_cluster(), pods, [], objective, FILTERS)
    total = np.array(counts)
    quality = Quality(total, np.ones(4), objective.a, objective.b, objective.gamma)
    assert found.proved
    assert best_possible(total, quality) == pytest.approx(found.value)


def test_the_best_edge_ratio_falls_from_the_lightest_to_the_heaviest_load() -> None:
    light, heavy = (
        np.mean([best_possible(pods) for log in logs()["kubedsm"][load] for pods in log.pods])
        for load in (BY_LOAD[0], BY_LOAD[-1])
    )
    assert 0 < heavy < light <= 1
