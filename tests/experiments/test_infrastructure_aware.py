"""Infrastructure Aware's experiment: its stand-ins hold what the paper prints, and a run of all."""

from random import Random

import pytest
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_experiments.infrastructure_aware import run
from leadline_experiments.infrastructure_aware.simulation import (
    POINTS,
    SERVER_MBPS,
    draw_applications,
    draw_topology,
    simulate,
    stand_in_images,
)

KUBE, IMAGE, LAYER, INFRA = (
    *("kube-default", "image-locality"),
    *("layer-locality", "infrastructure-aware"),
)


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


def test_a_run_places_every_replica_and_counts_every_layer() -> None:
    images = stand_in_images()
    topology, applications = draw_topology(Random(1)), draw_applications(images, Random(1))
    few = applications[:40]
    outcome = simulate(topology, images, few, KubeDefault(), Random(1))
    replicas = sum(a.replicas for a in few)
    assert len(outcome.provision_s) == sum(outcome.replicas) == replicas
    layers = sum(a.replicas * len(a.image.layers) for a in few)
    assert outcome.hits + outcome.misses == layers
    fastest_s = min(sum(layer.size_mb for layer in a.image.layers) for a in few) * 8 / SERVER_MBPS
    assert max(outcome.provision_s) > fastest_s
    again = simulate(topology, images, few, KubeDefault(), Random(1))
    assert again == outcome


@pytest.mark.experiment
def test_the_papers_claims() -> None:
    shares: list[float] = []
    result = run(1, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    papers = {(r.strategy, r.metric): r.paper for r in result.rows if r.paper is not None}
    assert len(papers) == 4 * 12
    ours = {(r.strategy, r.metric): r.ours for r in result.rows if r.option != "queue=wait"}
    average = [ours[name, "provision_avg_s"] for name in (INFRA, LAYER, IMAGE, KUBE)]
    assert average == sorted(average)
    assert average[0] < average[1] < average[3]
    held = {claim.says for claim in result.claims if claim.holds}
    assert "Infrastructure Aware against kube." in held
    assert all(claim.why for claim in result.misses)
    # What kube-scheduler comes to depends on network and images alone: the stand-ins are sound.
    assert ours[KUBE, "provision_avg_s"] == pytest.approx(28.03, rel=0.1)
    assert ours[KUBE, "provision_99_s"] == pytest.approx(207.27, rel=0.1)
    assert ours[KUBE, "storage_avg_mb"] == pytest.approx(749.31, rel=0.1)
