"""Infrastructure Aware's experiment: its stand-ins hold what the paper prints, and a run of all."""

from random import Random

import numpy as np
import pytest
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.options import build
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.infrastructure_aware import InfrastructureAware
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_experiments import infrastructure_aware
from leadline_experiments.infrastructure_aware import run
from leadline_experiments.infrastructure_aware.claims import METHODS, METRICS
from leadline_experiments.infrastructure_aware.simulation import (
    NODE_PODS,
    POINTS,
    SERVER_MBPS,
    Outcome,
    Setup,
    draw_applications,
    draw_topology,
    simulate,
    stand_in_images,
)
from leadline_experiments.result import tally


def test_the_network_has_the_papers_size_and_only_the_nodes_own_links_are_narrow() -> None:
    topology = draw_topology(Random(1))
    assert (len(POINTS), len(topology.routes)) == (28, 168)
    assert sum(name.endswith("-server") for name in topology.routes) == 28
    for name, links in topology.routes.items():
        own_mbps = topology.capacity_mbps[links[-1]]
        assert own_mbps == SERVER_MBPS if name.endswith("-server") else 10 <= own_mbps <= 60
    for link, capacity_mbps in topology.capacity_mbps.items():
        beyond = [links[-1] for links in topology.routes.values() if link in links[:-1]]
        demand_mbps = sum(topology.capacity_mbps[own] for own in beyond)
        assert demand_mbps <= capacity_mbps, f"{link} would be a bottleneck"


def test_the_images_sum_to_the_papers_totals() -> None:
    images = stand_in_images()
    layers = [layer for image in images for layer in image.layers]
    assert len(images) == 24
    assert sum(layer.size_mb for layer in layers) == pytest.approx(3436.45)
    once = {layer.digest: layer.size_mb for layer in layers}
    assert sum(once.values()) == pytest.approx(2152.78)
    assert all(layer.size_mb > 0 for layer in layers)
    assert all(once[layer.digest] == layer.size_mb for layer in layers)


@pytest.mark.parametrize("seed", range(5))
def test_the_workload_keeps_to_the_papers_ranges_and_totals(seed: int) -> None:
    applications = draw_applications(stand_in_images(), Random(seed))
    assert len(applications) == 350
    assert sum(a.replicas for a in applications) == 1250
    assert {a.replicas for a in applications} == {2, 3, 4, 5}
    made = [a.image.name for a in applications]
    assert all(5 <= made.count(image.name) <= 25 for image in stand_in_images())
    starts = [a.start_s for a in applications]
    assert starts == sorted(starts)
    assert 0 <= starts[0] <= starts[-1] <= 1000


def test_the_regions_have_room_for_their_applications() -> None:
    for seed in range(5):
        room = dict.fromkeys(POINTS, 6 * NODE_PODS)
        for application in draw_applications(stand_in_images(), Random(seed)):
            room[application.point] -= application.replicas
        assert min(room.values()) >= 0


def test_edge_links_are_whole_numbers() -> None:
    capacity_mbps = draw_topology(Random(2)).capacity_mbps
    own = [mbps for link, mbps in capacity_mbps.items() if "edge" in link]
    assert len(own) == 140
    assert all(mbps == int(mbps) for mbps in own)


FEW = 60


def few(setup: Setup = Setup(), strategy: Strategy | None = None) -> Outcome:  # noqa: B008
    images = stand_in_images()
    topology, applications = draw_topology(Random(1)), draw_applications(images, Random(1))
    chosen = strategy or KubeDefault(rounding="whole", spread="selector-spread")
    return simulate(topology, images, applications[:FEW], chosen, Random(1), setup)


def test_a_run_places_every_replica_and_counts_every_layer() -> None:
    applications = draw_applications(stand_in_images(), Random(1))[:FEW]
    outcome = few()
    replicas = sum(a.replicas for a in applications)
    assert len(outcome.provision_s) == sum(outcome.replicas) == replicas
    layers = sum(a.replicas * len(a.image.layers) for a in applications)
    assert outcome.hits + outcome.misses == layers
    fastest_s = min(sum(la.size_mb for la in a.image.layers) for a in applications) * 8 / 100
    assert max(outcome.provision_s) > fastest_s
    assert few() == outcome


def test_replicas_stay_in_their_region() -> None:
    applications = draw_applications(stand_in_images(), Random(1))[:FEW]
    wanted = dict.fromkeys(POINTS, 0)
    for application in applications:
        wanted[application.point] += application.replicas
    found = few().replicas
    assert [sum(found[at * 6 : at * 6 + 6]) for at in range(28)] == list(wanted.values())
    anywhere = few(Setup(by_region=False)).replicas
    assert sum(anywhere) == sum(found)
    assert max(anywhere) < max(found), "with all nodes to choose from, no two pods share one early"


def test_times_without_waits_are_those_of_the_links_alone() -> None:
    outcome = few()
    pairs = list(zip(outcome.provision_s, outcome.with_waits_s, strict=True))
    assert all(waits_s >= alone_s - 1e-6 for alone_s, waits_s in pairs)
    assert any(waits_s > alone_s + 1 for alone_s, waits_s in pairs)
    aware = few(strategy=InfrastructureAware(w=20))
    assert sum(aware.provision_s) < sum(outcome.provision_s)


def test_the_bandwidth_of_the_moment_keeps_infrastructure_aware_from_busy_nodes() -> None:
    strategy = InfrastructureAware(w=20, rounding="whole", spread="selector-spread")
    now = few(strategy=strategy)
    idle = few(Setup(bandwidth_now=False), strategy)
    assert np.count_nonzero(now.replicas) > np.count_nonzero(idle.replicas)


@pytest.mark.parametrize("name", list(STRATEGIES.built_in))
def test_every_strategy_can_place_the_replicas(name: str) -> None:
    strategy: Strategy = build(STRATEGIES[name], {})
    assert sum(few(strategy=strategy).replicas) == sum(few().replicas)


@pytest.mark.experiment
@pytest.mark.parametrize("name", ["netsched", "layer-locality"])
def test_a_strategy_joins_and_changes_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one draw of few applications; only who joins matters."""
    monkeypatch.setattr(infrastructure_aware, "DRAWS", 1)
    monkeypatch.setattr(
        infrastructure_aware,
        "draw_applications",
        lambda images, random: draw_applications(images, random)[:FEW],
    )
    monkeypatch.setattr(infrastructure_aware, "LATEST_S", 100.0)
    alone = run(0, lambda _: None)
    result = run(0, lambda _: None, build(STRATEGIES[name], {}))
    label = f"{name} (joined)" if name in METHODS else name
    joined = [row for row in result.rows if row.strategy == label]
    assert {row.metric for row in joined} > set(METRICS)
    assert [row for row in result.rows if row.strategy != label] == alone.rows
    assert result.claims == alone.claims
    assert [series.label for series in result.figures[0].series] == [*METHODS, label]


@pytest.mark.experiment
def test_the_papers_claims() -> None:
    shares: list[float] = []
    result = run(1, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    papers = {(r.strategy, r.metric): r.paper for r in result.rows if r.paper is not None}
    assert len(papers) == 4 * 12
    ours, least, most = (
        {(r.strategy, r.metric): r.ours for r in result.rows if r.case == f"{which} of 12 draws"}
        for which in ("mean", "least", "most")
    )
    for key in ours:
        assert least[key] <= ours[key] <= most[key]
    for metric in ("provision_avg_s", "storage_avg_mb", "replicas_std_dev", "used_nodes"):
        for method in METHODS:
            assert ours[method, metric] == pytest.approx(papers[method, metric], rel=0.15)
    held = {claim.says for claim in result.claims if claim.holds}
    assert "The more a method knows, the sooner." in held
    assert "Infrastructure Aware against kube." in held
    assert len(result.claims) == 28
    assert {kind: held_of[1] for kind, held_of in tally(result.claims).items()} == {
        "independent": 5,
        "fitted": 23,
    }
    assert all(claim.why for claim in result.misses)
    # Each of these parts of the reading is needed.
    in_all = sum(claim.holds for claim in result.claims)
    for changed in ("no region", "no SelectorSpread", "queue=literal"):
        (left,) = (r.ours for r in result.rows if r.case == changed and not r.strategy)
        assert left <= in_all - 2, changed
    assert len([row for row in result.rows if row.is_headline]) == 15
