import math

import pytest
from leadline_controller.framework.model import CPU, MEMORY, PODS, HostPort

from tests.controller.builders import GIB, node, pod, view


def test_free_is_allocatable_less_requested() -> None:
    cluster = view([node("a", cores=4), node("b", cores=2)], requested={CPU: [1500, 2500]})
    assert cluster.free(CPU).tolist() == [2500, -500]
    assert cluster.free(MEMORY).tolist() == [8 * GIB, 8 * GIB]
    assert cluster.free("example.com/gpu").tolist() == [0, 0]


def test_bandwidth_is_stated_else_measured_else_unknown() -> None:
    cluster = view(
        [node("a", bandwidth_mbps=100.0), node("b"), node("c")],
        metrics={"bandwidth_mbps": [90.0, 80.0, math.nan]},
        bandwidth_requested_mbps=[30.0, 30.0, 30.0],
    )
    assert cluster.bandwidth_free_mbps()[:2].tolist() == [70.0, 50.0]
    assert math.isnan(cluster.bandwidth_free_mbps()[2])


def test_placing_a_pod_returns_a_new_view() -> None:
    before = view([node("a"), node("b")])
    wanted = pod(
        requests={"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
        annotations={"bandwidth-mbps": "20"},
        hostNetwork=True,
        containers=[{"name": "c", "ports": [{"containerPort": 80}]}],
    )
    after = before.with_placement(wanted, 1)
    assert after.requested_of(PODS).tolist() == [0, 1]
    assert after.bandwidth_requested_mbps.tolist() == [0.0, 20.0]
    assert after.placed_in_run.tolist() == [0, 1]
    assert after.recently_placed_pods().tolist() == [0, 1]
    assert after.host_ports == {1: (HostPort("0.0.0.0", "TCP", 80),)}
    assert before.requested_of(PODS).tolist() == [0, 0]
    assert before.bandwidth_requested_mbps.tolist() == [0.0, 0.0]
    assert before.placed_in_run.tolist() == [0, 0]
    assert before.host_ports == {}


def test_a_charge_replaces_the_requests_in_what_is_free_but_not_in_what_is_requested() -> None:
    before = view([node("a", cores=4), node("b", cores=4)])
    wanted = pod(requests={"cpu": "1"})
    after = before.with_placement(wanted, 0, {CPU: 2500, PODS: 1})
    assert after.free(CPU).tolist() == [1500, 4000]
    assert after.unrequested(CPU).tolist() == [3000, 4000]
    assert after.requested_of(CPU).tolist() == [1000, 0]
    assert after.requested_of(PODS).tolist() == [1, 0]
    twice = after.with_placement(pod("q", requests={"cpu": "1"}), 0, {CPU: 1250, PODS: 1})
    assert twice.free(CPU).tolist() == [250, 4000]
    assert (before.free(CPU).tolist(), before.charged_in_run) == ([4000, 4000], {})


def test_only_a_node_of_the_cluster_is_a_users() -> None:
    cluster = view([node("a"), node("b")])
    for name, at in (("b", 1), ("c", None)):
        assert cluster.user_node(pod(annotations={"user-node": name})) == at
    assert cluster.user_node(pod()) is None


def test_shared_columns_cannot_be_written() -> None:
    table = view([node("a")]).table
    for column in (table.allocatable(CPU), table.mask("m", lambda _: True)):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0


def test_invented_resource_names_take_no_memory() -> None:
    table = view([node("a")]).table
    for i in range(100):
        table.allocatable(f"example.com/{i}")
    assert set(table._allocatable) == set()
    table.allocatable(CPU)
    assert set(table._allocatable) == {CPU}
