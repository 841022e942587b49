"""The study on random clusters, made small: what its rows say of strategies and optimum."""

from dataclasses import replace

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import CPU
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_experiments.optimum import dacs, kubedsm, study
from leadline_experiments.optimum.programme import Optimum


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "SIZES", ((4, 6), (6, 10)))
    monkeypatch.setattr(study, "CLUSTERS", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_every_strategy_is_measured_and_none_beats_the_optimum() -> None:
    shares: list[float] = []
    rows = study.dacs_rows(1, shares.append)
    assert {row.strategy for row in rows} == set(STRATEGIES)
    assert {row.case for row in rows} == {"4 nodes, 6 pods", "6 nodes, 10 pods"}
    delays = [row for row in rows if row.metric == study.DELAY]
    assert delays
    assert all(row.optimum is not None and row.optimum <= row.ours + 1e-9 for row in delays)
    assert shares[-1] == 1.0


@pytest.mark.usefixtures("small")
def test_edge_strategies_stay_below_the_optimum() -> None:
    rows = study.kubedsm_rows(1, lambda _: None)
    named = {row.strategy for row in rows}
    assert named >= {"kubedsm", "bef", "sef", "cloud-first", "kube-default"}
    assert named == {"kube-default"} | {n for n, s in STRATEGIES.items() if "KubeDSM" in s.paper}
    worth = [row for row in rows if row.metric == study.QOS]
    assert worth
    assert all(row.optimum is not None and row.ours <= row.optimum + 1e-9 for row in worth)


@pytest.mark.experiment
@pytest.mark.usefixtures("small")
def test_a_seed_repeats_all_of_it_and_another_does_not() -> None:
    first, again, other = (study.dacs_rows(seed, lambda _: None) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_pending_pods_are_counted_and_not_compared() -> None:
    best = Optimum(1.0, {}, "optimal", 0.0)
    gaps = [study.Gap(1.5, best), study.Gap(None, best, 3)]
    rows = study.gap_rows("t", "c", "s", "", "m", gaps)
    assert [(row.metric, row.ours, row.optimum) for row in rows] == [
        ("m", 1.5, 1.0),
        (study.PENDING, 1.5, 0.0),
    ]


def test_an_optimum_that_was_not_proved_is_none() -> None:
    proved = study.Gap(1.5, Optimum(1.0, {}, "optimal", 0.0))
    unproved = study.Gap(1.5, Optimum(1.2, {}, "time limit", 0.1))
    rows = study.gap_rows("t", "c", "s", "", "m", [proved, unproved])
    assert [row.optimum for row in rows] == [None]


@pytest.mark.experiment
@pytest.mark.parametrize("seed", [0, 1])
def test_twenty_nodes_and_forty_pods_are_solved_to_the_end(seed: int) -> None:
    view, pods = study.edge_cluster(20, 40, seed)
    least = dacs.best(view, pods, Dacs(), FILTERS)
    assert (least.status, least.gap, least.why) == ("optimal", 0.0, "")
    assert len(least.placement) == 40
    view, pending, running = study.cloud_assisted(20, 40, seed)
    most = kubedsm.best(view, pending, running, KubeDsm(), FILTERS)
    assert (most.status, most.gap, most.why) == ("optimal", 0.0, "")


def test_the_optimum_falls_as_nodes_grow() -> None:
    view, pods = study.edge_cluster(5, 8, 0)
    roomy = [
        replace(node, allocatable={**node.allocatable, CPU: 2 * node.allocatable[CPU]})
        for node in view.nodes
    ]
    twice = replace(view, table=type(view.table)(roomy))
    before = dacs.best(view, pods, Dacs(), FILTERS)
    assert dacs.best(twice, pods, Dacs(), FILTERS).value <= before.value
