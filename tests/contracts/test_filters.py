"""The contract of every filter."""

from dataclasses import replace
from random import Random
from types import MappingProxyType

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import FilterResult, Rule, decide
from leadline_controller.framework.model import Node
from leadline_controller.framework.view import ClusterView, NodeTable
from leadline_controller.strategies.kube_default import KubeDefault

from tests.contracts.clusters import CASES, Case, case, fingerprint, on_cases, reordered
from tests.controller.builders import node, pod, view

every_filter = pytest.mark.parametrize("name", FILTERS)


@every_filter
@on_cases()
def test_every_rejected_node_has_a_reason(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    result = FILTERS[name](cluster, wanted)
    assert result.passes.shape == (len(cluster),)
    assert result.passes.dtype == np.bool_
    for i in np.flatnonzero(~result.passes):
        reason = result.reason(int(i))
        assert reason.strip()
        assert "\n" not in reason
        assert name not in reason


@every_filter
@on_cases()
def test_a_filter_does_not_change_the_view(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    before = fingerprint(cluster)
    FILTERS[name](cluster, wanted)
    assert fingerprint(cluster) == before


@every_filter
@on_cases()
def test_the_result_for_one_pod_does_not_change_the_result_for_the_next(
    name: str, case: Case
) -> None:
    """Filters share the columns that they compute for the nodes."""
    cluster, wanted = case.cluster, case.wanted
    fresh = replace(cluster, table=NodeTable(cluster.nodes))
    expected = FILTERS[name](fresh, wanted).passes
    for test in FILTERS.values():
        test(cluster, wanted)
    assert FILTERS[name](cluster, wanted).passes.tolist() == expected.tolist()
    assert FilterResult.all_pass(cluster).passes.all()


def test_the_result_that_filters_share_is_read_only() -> None:
    shared = FilterResult.all_pass(view([node("a"), node("b")])).passes
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = False


def roomier(cluster: ClusterView) -> ClusterView:
    """The same nodes with more room and without taints and other obstacles."""

    def freed(each: Node) -> Node:
        allocatable = {name: amount * 2 for name, amount in each.allocatable.items()}
        bandwidth = None if each.bandwidth_mbps is None else each.bandwidth_mbps + 10
        return replace(
            each,
            allocatable=MappingProxyType(allocatable),
            taints=(),
            unschedulable=False,
            ready=True,
            bandwidth_mbps=bandwidth,
        )

    return replace(
        cluster,
        table=NodeTable([freed(each) for each in cluster.nodes]),
        requested={name: column // 2 for name, column in cluster.requested.items()},
        bandwidth_requested_mbps=cluster.bandwidth_requested_mbps / 2,
        host_ports={},
    )


@every_filter
@on_cases()
def test_more_room_never_turns_a_node_away(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    before = FILTERS[name](cluster, wanted).passes
    after = FILTERS[name](roomier(cluster), wanted).passes
    assert (after | ~before).all()


@every_filter
@on_cases()
def test_a_pod_that_asks_for_less_fits_wherever_it_did(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    modest = replace(
        wanted,
        requests={resource: amount // 2 for resource, amount in wanted.requests.items()},
        host_ports=wanted.host_ports[:1],
        node_selector={},
        affinity=(),
        anti_affinity=(),
        spread=(),
        claims=(),
        annotations=replace(wanted.annotations, bandwidth_mbps=None),
    )
    before = FILTERS[name](cluster, wanted).passes
    after = FILTERS[name](cluster, modest).passes
    assert (after | ~before).all()


@every_filter
@on_cases(least=2)
def test_the_order_of_the_nodes_does_not_change_the_result(name: str, case: Case) -> None:
    cluster, wanted = case.cluster, case.wanted
    order = Random(case.seed).sample(range(len(cluster)), len(cluster))
    here = FILTERS[name](cluster, wanted).passes
    there = FILTERS[name](reordered(cluster, order), wanted).passes
    assert there.tolist() == here[order].tolist()


@every_filter
def test_a_plain_pod_fits_a_plain_node_and_an_empty_cluster_is_no_error(name: str) -> None:
    assert FILTERS[name](view([node("n")]), pod()).passes.tolist() == [True]
    assert FILTERS[name](view([]), pod()).passes.tolist() == []


def test_of_the_pods_of_the_cases_some_find_a_node() -> None:
    rule = Rule(KubeDefault(), FILTERS)
    placed = [decide(each.cluster, each.wanted, rule).node for each in map(case, range(CASES))]
    assert 3 <= len([node for node in placed if node is not None]) <= CASES - 3
