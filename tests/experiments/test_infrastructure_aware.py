"""Infrastructure Aware's experiment: its stand-ins hold what the paper prints, and a run of all."""

import heapq
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
    draw_links,
    simulate,
    stand_in_images,
)
from leadline_experiments.result import tally

# The backbone about 2021: a 100 Gbit/s ring in the north-east, 10 Gbit/s elsewhere, less in the far
# north. The registry is at SP, behind 10 Gbit/s.
LINKS_GBPS = (
    *(("SP", "RJ", 100), ("SP", "PR", 10), ("SP", "RS", 10), ("SP", "MG", 10), ("SP", "DF", 10)),
    *(("SP", "MS", 10), ("SP", "CE", 100), ("RJ", "MG", 10), ("RJ", "ES", 10), ("RJ", "DF", 10)),
    *(("PR", "SC", 10), ("SC", "RS", 10), ("PR", "MS", 10), ("MS", "MT", 10), ("MT", "GO", 10)),
    *(("GO", "DF", 10), ("GO", "TO", 10), ("MG", "DF", 10), ("MG", "BA", 10), ("ES", "BA", 10)),
    *(("BA", "SE", 100), ("SE", "AL", 100), ("AL", "PE", 100), ("PE", "CG", 100)),
    *(("CG", "PB", 100), ("CG", "RN", 100), ("RN", "CE", 100), ("BA", "CE", 100)),
    *(("CE", "PI", 10), ("PI", "MA", 10), ("PI", "PE", 10), ("MA", "PA", 10), ("PA", "TO", 10)),
    *(("MT", "RO", 10), ("RO", "AC", 3), ("RO", "AM", 3), ("PA", "AM", 3), ("PA", "AP", 1)),
    *(("AM", "RR", 1),),
)


def ways_from_sp() -> dict[str, list[tuple[str, str]]]:
    """The links to each point on the path with the fewest links; of these, the widest."""
    ways: dict[str, list[tuple[str, str]]] = {}
    waiting: list[tuple[float, str, list[tuple[str, str]]]] = [(0.0, "SP", [])]
    while waiting:
        cost, point, way = heapq.heappop(waiting)
        if point not in ways:
            ways[point] = way
            for a, b, gbps in LINKS_GBPS:
                if point in (a, b):
                    other = b if point == a else a
                    heapq.heappush(waiting, (cost + 1 + 1e-3 / gbps, other, [*way, (a, b)]))
    return ways


def test_the_network_has_the_papers_size_and_only_the_nodes_own_links_are_narrow() -> None:
    own_mbps, ways = draw_links(Random(1)), ways_from_sp()
    assert (len(POINTS), set(POINTS), len(own_mbps)) == (28, set(ways), 168)
    assert sum(name.endswith("-server") for name in own_mbps) == 28
    for name, mbps in own_mbps.items():
        assert mbps == SERVER_MBPS if name.endswith("-server") else 10 <= mbps <= 60
    assert sum(own_mbps.values()) <= 10_000
    for a, b, gbps in LINKS_GBPS:
        beyond = {point.lower() for point, way in ways.items() if (a, b) in way}
        demand_mbps = sum(mbps for name, mbps in own_mbps.items() if name[:2] in beyond)
        assert demand_mbps <= gbps * 1000, f"{a}-{b} would be a bottleneck"


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
    own = [mbps for name, mbps in draw_links(Random(2)).items() if "edge" in name]
    assert len(own) == 140
    assert all(mbps == int(mbps) for mbps in own)


FEW = 60


def few(setup: Setup = Setup(), strategy: Strategy | None = None) -> Outcome:  # noqa: B008
    images = stand_in_images()
    links_mbps, applications = draw_links(Random(1)), draw_applications(images, Random(1))
    chosen = strategy or KubeDefault(rounding="whole", spread="selector-spread")
    return simulate(links_mbps, images, applications[:FEW], chosen, Random(1), setup)


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
    applications = draw_applications(stand_in_images(), Random(1))[:FEW]
    strategy: Strategy = build(STRATEGIES[name], {})
    assert sum(few(strategy=strategy).replicas) == sum(a.replicas for a in applications)


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
    assert len([row for row in result.rows if row.is_headline]) == 12
