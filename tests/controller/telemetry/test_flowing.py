"""What pods use of a link while its bandwidth is tested."""

import numpy as np
import pytest
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import Pod, PodAnnotations
from leadline_controller.framework.ports import PodDeleted, Relisted
from leadline_controller.telemetry.bandwidth import BandwidthTest, NodeLink
from leadline_controller.telemetry.collectors import BoardReading

from tests.controller.builders import node
from tests.controller.telemetry.telemetry_builder import TTL, TelemetryBuilder, table

NODES = table("n1", "n2", "never-heard")


def measured(flowing_mbps: float, link_mbps: float | None = None) -> TelemetryBuilder:
    """n1 and n2 test each other while pods on n1 use so much of its link."""
    built = TelemetryBuilder("n1", "n2")
    if link_mbps is not None:
        reading = BoardReading({"link_mbps": link_mbps})
        built.state.report("n1", built.stamp("n1", measured_s=0.0), reading)
    test = BandwidthTest("n1", "n2", 60.0, 1.0, 0.0, flowing_mbps={"n1": flowing_mbps})
    built.state.bandwidth(test)
    return built


@pytest.mark.parametrize(
    ("used", "wanted", "flowing"), [(40.0, 50.0, 40.0), (40.0, 0.0, 0.0), (0.0, 50.0, 0.0)]
)
def test_only_what_pods_request_flows_for_them(used: float, wanted: float, flowing: float) -> None:
    assert NodeLink("n1", used_mbps=used, wanted_mbps=wanted).flowing_mbps == flowing


@pytest.mark.parametrize(
    ("flowing", "link_mbps", "expected"),
    [(40.0, None, 40.0), (40.0, 1000.0, 40.0), (70.0, 100.0, 40.0), (40.0, 50.0, 0.0)],
)
def test_a_link_does_no_more_than_its_interface(
    flowing: float, link_mbps: float | None, expected: float
) -> None:
    metrics = measured(flowing, link_mbps=link_mbps).state.metrics(NODES, 0.0)
    assert metrics.bandwidth_flowing_mbps.tolist() == [expected, 0.0, 0.0]


def test_it_is_forgotten_with_the_bandwidth() -> None:
    metrics = measured(40.0).state.metrics(NODES, TTL.bandwidth_s + 1)
    assert np.isnan(metrics.bandwidth_mbps[0])
    assert metrics.bandwidth_flowing_mbps.tolist() == [0.0, 0.0, 0.0]


def test_it_belongs_to_the_test_that_counts_and_a_change_of_it_is_told() -> None:
    built = measured(40.0)
    told = built.state.bandwidth_changes
    built.state.bandwidth(BandwidthTest("n1", "n2", 60.0, 1.0, 1.0, flowing_mbps={"n1": 10.0}))
    assert built.state.metrics(NODES, 1.0).bandwidth_flowing_mbps[0] == 10.0
    assert built.state.bandwidth_changes > told


def test_a_running_pod_leaves_to_the_next_what_its_link_still_has() -> None:
    """A link of 100 Mbit/s; the pod that runs asks for 50 and uses 40 of them."""
    running = Pod(
        *("default", "running"),
        uid="u",
        node_name="n1",
        annotations=PodAnnotations(bandwidth_mbps=50.0),
    )
    cluster = ClusterState()
    cluster.apply(Relisted((node("n1"), node("n2")), (running,)))
    view = cluster.view(measured(40.0).state, 0.0)
    assert view.metrics.bandwidth_mbps.tolist() == [60.0, 60.0]
    assert view.bandwidth_free_mbps().tolist() == [50.0, 60.0]
    cluster.apply(PodDeleted(running))
    assert cluster.view(measured(40.0).state, 0.0).bandwidth_free_mbps().tolist() == [100.0, 60.0]
