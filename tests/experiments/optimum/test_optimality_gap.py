"""The papers' own scenarios beside the optimum."""

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.strategies.dacs import Dacs
from leadline_experiments.dacs import methods as of_dacs
from leadline_experiments.dacs.simulation import SCENARIO_1, SCENARIO_2, cluster
from leadline_experiments.kubedsm import simulation as of_kubedsm
from leadline_experiments.kubedsm.simulation import BY_LOAD
from leadline_experiments.optimum import dacs
from leadline_experiments.optimum.study import DELAY, QOS


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


@pytest.mark.experiment
def test_kubedsm_methods_stay_below_the_optimum_in_all_workloads() -> None:
    rows = [row for row in of_kubedsm.optimality_gaps(0) if row.metric == QOS]
    assert len({row.case for row in rows}) == 10
    assert all(row.optimum is not None and row.ours <= row.optimum + 1e-9 for row in rows)


def test_the_best_edge_ratio_falls_from_the_lightest_to_the_heaviest_load() -> None:
    light, heavy = (of_kubedsm.best_ratio_percent(each, 0) for each in (BY_LOAD[0], BY_LOAD[-1]))
    assert 0 < heavy < light <= 100
