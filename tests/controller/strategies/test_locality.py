"""image-locality and layer-locality, worked by hand.

Four empty nodes have 10 points for spreading. The image is 600 MB: a base of 400 MB that three
nodes have, and 200 MB of its own that two of them have.
"""

from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.framework.cycle import Scores, Strategy
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import CPU, MEMORY, Image, Layer, Pod
from leadline_controller.framework.options import build
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies import STRATEGIES
from leadline_controller.strategies.shared.locality import share_points, threshold_points

from tests.controller.builders import GIB, node, view

BASE, OWN = Layer("base", 400.0), Layer("own", 200.0)
HELD = (frozenset[str](), frozenset({"base"}), frozenset({"base", "own"}))
POD = Pod("default", "p", images=("app:1",))


def cluster(*, busy: int = 0) -> ClusterView:
    nodes = [node(f"n{i}", image_layers=HELD[min(i, 2)]) for i in range(4)]
    requested = {CPU: [0, 0, 0, busy * 400], MEMORY: [0, 0, 0, busy * 8 * GIB // 10]}
    images = ImageTable.of([Image("app:1", (BASE, OWN))])
    return replace(view(nodes, requested=requested), images=images)


def score(name: str, view: ClusterView, pod: Pod = POD, **options: object) -> Scores:
    strategy: Strategy = build(STRATEGIES[name], options)
    return strategy.score(view, pod, np.arange(len(view)))


def test_the_thresholds_are_kube_schedulers() -> None:
    sizes_mb = [0.0, 23.0, 120.0, 121.0, 511.5, 999.0, 1000.0, 5000.0]
    everywhere = np.array([True])
    points = [threshold_points([(size, everywhere, everywhere)], 1, 1)[0] for size in sizes_mb]
    assert points == [0, 0, 0, 1, 5, 9, 10, 10]
    # Two containers: from 23 to 2000 MB, and 1011.5 is half way.
    assert threshold_points([(1011.4, everywhere, everywhere)], 1, 2).tolist() == [4]
    assert threshold_points([(1011.5, everywhere, everywhere)], 1, 2).tolist() == [5]


def test_the_share_is_in_whole_points_of_a_hundred() -> None:
    all_, first = np.array([True, True, True]), np.array([True, False, False])
    pieces = [
        (2.0, all_, np.array([True, True, False])),
        (1.0, all_, np.array([True, False, True])),
    ]
    assert share_points(pieces, 3).tolist() == [100.0, 66.0, 33.0]
    assert share_points([], 3).tolist() == [0.0, 0.0, 0.0]
    assert share_points([(0.0, all_, first)], 3).tolist() == [0.0, 0.0, 0.0]
    # What only nodes of another architecture need does not count.
    assert share_points([*pieces, (9.0, first, first)], 3).tolist() == [100.0, 66.0, 33.0]


@pytest.mark.parametrize(
    ("name", "points", "locality", "total", "why"),
    [
        # Whole images only.
        ("image-locality", "share", [0, 0, 100, 100], [10, 10, 20, 20], "100 points of 100"),
        # The base is 400 of 600 MB: 66.7 of 100 points, rounded down.
        ("layer-locality", "share", [0, 66, 100, 100], [10, 16.6, 20, 20], "100 points of 100"),
        # 600 MB on 2 of 4 nodes: 300 MB, (300 - 23) / 977 of 10 points = 2.8.
        ("image-locality", "thresholds", [0, 0, 2, 2], [10, 10, 12, 12], "2 points of 10"),
        # base: 400 * 3 / 4 = 300 MB; own: 200 * 2 / 4 = 100 MB. 277 and 377 of 977: 2.8 and 3.9.
        ("layer-locality", "thresholds", [0, 2, 3, 3], [10, 12, 13, 13], "3 points of 10"),
    ],
)
def test_what_is_there_gives_points(
    name: str, points: str, locality: list[float], total: list[float], why: str
) -> None:
    scores = score(name, cluster(), points=points)
    assert scores.parts["locality"].tolist() == locality
    assert scores.parts["cached_mb"].tolist() == [0.0, 400.0, 600.0, 600.0]
    assert scores.total.tolist() == pytest.approx(total)
    assert scores.finalists.tolist() == [2, 3]
    assert scores.why(2) == f"600 MB of its layers are there: {why}, 10 for spreading"


def test_a_small_layer_moves_the_share_but_not_the_old_points() -> None:
    small = Layer("base", 30.0), Layer("own", 70.0)
    view = replace(cluster(), images=ImageTable.of([Image("app:1", small)]))
    assert score("layer-locality", view).parts["locality"].tolist() == [0.0, 30.0, 100.0, 100.0]
    old = score("layer-locality", view, points="thresholds")
    assert old.parts["locality"].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_selector_spread_is_added_in_whole_points() -> None:
    crowded = cluster(busy=5).with_placement(replace(POD, labels={"app": "a"}), 2, charge={})
    pod = replace(POD, name="q", labels={"app": "a"})
    scores = score("layer-locality", crowded, pod, spread="selector-spread", rounding="whole")
    # LeastRequested 10, 10, 10, 5; SelectorSpread 10, 10, 0, 10.
    assert scores.parts["spread"].tolist() == [20.0, 20.0, 10.0, 15.0]


@pytest.mark.parametrize("name", ["image-locality", "layer-locality"])
def test_spreading_outweighs_locality_on_a_busy_node(name: str) -> None:
    # Half of n3 is asked for: 5 points for spreading.
    scores = score(name, cluster(busy=5))
    assert scores.parts["spread"].tolist() == pytest.approx([10.0, 10.0, 10.0, 5.0])
    assert scores.finalists.tolist() == [2]
    # n3 has the whole image, w points, and the empty node n0 has 5 more for spreading.
    assert score(name, cluster(busy=5), w=4.0).total[3] < 10.0
    assert score(name, cluster(busy=5), w=6.0).total[3] > 10.0


@pytest.mark.parametrize("name", ["image-locality", "layer-locality"])
def test_with_an_unknown_image_only_spreading_counts(name: str) -> None:
    strange = Pod("default", "p", images=("strange:1",))
    scores = score(name, cluster(busy=5), strange)
    assert scores.total.tolist() == pytest.approx([10.0, 10.0, 10.0, 5.0])
    assert scores.why(0) == "no layers of its images are known; 10 points for spreading"


@pytest.mark.parametrize("name", ["image-locality", "layer-locality"])
def test_queued_layers_do_not_count(name: str) -> None:
    before = cluster()
    waiting = before.with_placement(POD, 0, charge={})
    np.testing.assert_array_equal(
        score(name, waiting).parts["locality"], score(name, before).parts["locality"]
    )
