"""Algorithm 1 with numbers worked by hand.

An image of 100 MB, 60 of them a base. fast has 80 Mbit/s and 50 MB in its queue, slow has 8
Mbit/s and the base, none has 40 Mbit/s. Missing: 100, 40, 100 MB.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, Scores, decide
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import CPU, MEMORY, Image, Layer, Pod
from leadline_controller.framework.options import build
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.infrastructure_aware import (
    InfrastructureAware,
    rescaled,
    time_to_instantiate_s,
)

from tests.controller.builders import GIB, node, view

NAN = math.nan
POD = Pod("default", "p", images=("app:1",))


def cluster(mbps: Sequence[float | None] = (80.0, 8.0, 40.0)) -> ClusterView:
    nodes = [
        node("fast", registry_mbps=mbps[0], pulling_mb=50.0),
        node("slow", registry_mbps=mbps[1], image_layers=frozenset({"base"})),
        node("none", registry_mbps=mbps[2]),
    ]
    images = ImageTable.of([Image("app:1", (Layer("base", 60.0), Layer("own", 40.0)))])
    return replace(view(nodes), images=images)


def score(cluster: ClusterView, pod: Pod = POD, **options: object) -> Scores:
    strategy: InfrastructureAware = build(InfrastructureAware, options)
    return strategy.score(cluster, pod, np.arange(len(cluster)))


def test_the_literal_variant_ignores_the_queue() -> None:
    # 800 Mbit / 80 = 10 s, 320 / 8 = 40 s, 800 / 40 = 20 s; 10 - 10 * (t - 10) / 30.
    scores = score(cluster(), queue="literal")
    assert scores.parts["missing_mb"].tolist() == [100.0, 40.0, 100.0]
    assert scores.parts["time_s"].tolist() == [10.0, 40.0, 20.0]
    assert scores.parts["speed"].tolist() == pytest.approx([10.0, 0.0, 20 / 3])
    assert scores.total.tolist() == pytest.approx([20.0, 10.0, 10 + 20 / 3])
    assert scores.finalists.tolist() == [0]
    assert scores.why(0) == "10 s to pull 100 MB behind 50 MB: 10 points, 10 for spreading"


def test_the_wait_variant_adds_the_queue() -> None:
    # (100 + 50) * 8 / 80 = 15 s.
    scores = score(cluster())
    assert scores.parts["time_s"].tolist() == [15.0, 40.0, 20.0]
    assert scores.parts["speed"].tolist() == pytest.approx([10.0, 0.0, 8.0])


def test_a_layer_in_the_queue_is_not_missing_any_more() -> None:
    after = cluster().with_placement(POD, 2, charge={})
    assert score(after, queue="literal").parts["time_s"].tolist() == [10.0, 40.0, 0.0]
    assert score(after).parts["time_s"].tolist() == [15.0, 40.0, 20.0]


@pytest.mark.parametrize("queue", ["wait", "literal"])
def test_a_node_that_has_every_layer_waits_for_nothing(queue: str) -> None:
    layers = frozenset({"base", "own"})
    nodes = [
        node("full", registry_mbps=8.0, pulling_mb=400.0, image_layers=layers),
        node("fast", registry_mbps=800.0),
    ]
    scores = score(replace(view(nodes), images=cluster().images), queue=queue)
    assert scores.parts["time_s"].tolist() == [0.0, 1.0]
    assert scores.finalists.tolist() == [0]
    assert scores.why(0).startswith("0 s to pull 0 MB behind 0 MB")


def test_w_is_the_maximum_for_the_time() -> None:
    assert score(cluster(), w=3).parts["speed"].tolist() == pytest.approx([3.0, 0.0, 2.4])
    assert score(cluster(), w=0).finalists.tolist() == [0, 1, 2]


def test_equal_times_give_w_to_all() -> None:
    assert rescaled(np.array([7.0, 7.0]), 10).tolist() == [10.0, 10.0]
    assert score(cluster(), Pod("default", "q", images=("strange:1",))).total.tolist() == [20.0] * 3


def test_spreading_is_added() -> None:
    crowded = replace(
        cluster(), requested={CPU: np.array([4000, 0, 0]), MEMORY: np.array([8 * GIB, 0, 0])}
    )
    scores = score(crowded)
    assert scores.parts["spread"].tolist() == [0.0, 10.0, 10.0]
    assert scores.finalists.tolist() == [2]


def test_what_is_there_counts_where_it_has_a_weight() -> None:
    # slow has the base: 60 of 100 MB, and no whole image.
    plain = score(cluster())
    assert "locality" not in plain.parts
    layers = score(cluster(), w_layers=5, w_images=7)
    assert layers.parts["locality"].tolist() == pytest.approx([0.0, 3.0, 0.0])
    assert (layers.total - plain.total).tolist() == pytest.approx([0.0, 3.0, 0.0])
    assert layers.why(1).endswith("0 points, 10 for spreading, 3 for what is there")
    whole = replace(cluster(), images=ImageTable.of([Image("app:1", (Layer("base", 60.0),))]))
    assert score(whole, w_layers=5, w_images=7).parts["locality"].tolist() == [0.0, 12.0, 0.0]


def test_selector_spread_is_added_in_whole_points() -> None:
    pod = replace(POD, labels={"app": "a"})
    crowded = cluster().with_placement(pod, 2, charge={CPU: 1000, MEMORY: 2 * GIB})
    scores = score(crowded, replace(pod, name="q"), spread="selector-spread", rounding="whole")
    # none: a quarter asked for, 7.5 points, rounded down; the service's only replica is there.
    assert scores.parts["spread"].tolist() == [20.0, 20.0, 7.0]


def test_line_15_time_to_instantiate() -> None:
    times_s = time_to_instantiate_s(np.array([10.0, 10.0]), np.array([8.0, 80.0]))
    assert times_s.tolist() == [10.0, 1.0]


def test_an_unknown_bandwidth_counts_as_boards_like_it_or_as_the_slowest_known() -> None:
    seen = cluster((None, 8.0, 80.0))
    for unknown, mbps in (("like-boards", 44.0), ("worst", 8.0)):
        found = score(seen, unknown=unknown, queue="literal").parts
        assert found["time_s"][0] == pytest.approx(found["missing_mb"][0] * 8 / mbps)


def test_where_no_bandwidth_is_known_the_missing_layers_decide() -> None:
    assert score(cluster((None, None, None)), queue="literal").finalists.tolist() == [1]


def test_a_link_that_is_down_is_the_worst_but_finite() -> None:
    total = score(cluster((80.0, 0.0, 40.0))).total
    assert np.isfinite(total).all()
    assert total.argmin() == 1


def test_measured_bandwidth_replaces_missing_stated_bandwidth() -> None:
    measured = view([node("a"), node("b")], metrics={"bandwidth_mbps": [10.0, 90.0]})
    known = replace(measured, images=cluster().images)
    assert decide(known, POD, Rule(InfrastructureAware(), FILTERS)).node == "b"
