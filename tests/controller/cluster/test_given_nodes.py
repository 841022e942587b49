"""A cluster view with the nodes that kube-scheduler sent."""

import numpy as np
from leadline_controller.cluster.given_nodes import with_given_nodes
from leadline_controller.cluster.state import ClusterState
from leadline_controller.framework.model import CPU, Pod
from leadline_controller.framework.ports import Relisted
from leadline_controller.framework.view import ClusterView

from tests.controller.builders import node
from tests.controller.telemetry.telemetry_builder import TelemetryBuilder

NOW_S = 100.0
HINTED = Pod("default", "p", uid="u", requests={CPU: 500}, node_name="n2")


def known(builder: TelemetryBuilder) -> ClusterView:
    state = ClusterState()
    state.apply(Relisted((node("n1"), node("n2")), (HINTED,)))
    return state.view(builder.state, NOW_S)


def test_unchanged_nodes_return_the_same_view() -> None:
    builder = TelemetryBuilder()
    view = known(builder)
    assert with_given_nodes(view, {}, builder.state, NOW_S) is view
    assert with_given_nodes(view, {"n2": node("n2")}, builder.state, NOW_S) is view


def test_given_nodes_replace_known_ones_and_the_pods_stay() -> None:
    builder = TelemetryBuilder("n1", "n2", "new")
    builder.report("new", 12.5, at_s=NOW_S)
    builder.rtt("new", "n1", 7.0, NOW_S)
    given = {"new": node("new", cores=1), "n2": node("n2", cores=2, bandwidth_mbps=50.0)}
    view = with_given_nodes(known(builder), given, builder.state, NOW_S)
    assert view.table.names == ("n1", "n2", "new")
    assert view.free(CPU).tolist() == [4000, 1500, 1000]
    assert view.bandwidth_free_mbps()[1:2].tolist() == [50.0]
    assert view.metrics.cpu_percent[2] == 12.5
    assert view.links.rtt_ms_from(2)[0] == 7.0
    assert view.placed_in_run.tolist() == [0, 0, 0]
    assert np.isnan(view.bandwidth_free_mbps()[0])


def test_the_original_view_is_not_changed() -> None:
    builder = TelemetryBuilder()
    view = known(builder)
    with_given_nodes(view, {"n2": node("n2", cores=9), "new": node("new")}, builder.state, NOW_S)
    assert view.table.names == ("n1", "n2")
    assert view.free(CPU).tolist() == [4000, 3500]
