"""The preference Peers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import workload_of
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import Link, Pod, PodAnnotations
from leadline_controller.framework.traffic import NO_TRAFFIC, PeerTraffic, Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.peers import read_peers
from leadline_controller.preferences import PREFERENCES, rule
from leadline_controller.preferences.peers import peers
from leadline_controller.strategies.kube_default import KubeDefault

from tests.controller.builders import node, pod, view

LINKS = [Link("a", "b", 2.0), Link("a", "c", 10.0)]


def wanted(declared: str) -> Pod:
    made = pod("web", labels={"app": "web"})
    return replace(made, annotations=PodAnnotations(peers=read_peers(declared) if declared else ()))


def cluster(traffic: Traffic = NO_TRAFFIC) -> ClusterView:
    nodes = [node(name, bandwidth_mbps=100.0) for name in "abcd"]
    return view(nodes, links=LINKS, traffic=traffic)


def test_less_wait_is_better_and_an_unknown_one_counts_as_the_longest() -> None:
    scores = peers(cluster(), wanted("node/a=0@10rps"), np.arange(4))
    assert scores is not None
    assert scores.raw.tolist() == [0, 20_000, 100_000, 100_000]
    assert scores.normalized.tolist() == [100, 80, 0, 0]


@pytest.mark.parametrize("declared", ["", "gone", "node/d@1rps"])
def test_without_a_known_wait_there_is_no_preference(declared: str) -> None:
    assert peers(cluster(), wanted(declared), np.arange(3)) is None


def test_equal_nodes_are_equal() -> None:
    scores = peers(cluster(), wanted("node/a=0@0rps"), np.arange(4))
    assert scores is not None
    assert set(scores.normalized.tolist()) == {100}


@pytest.mark.parametrize("declared", ["node/c=5@20rps, node/a=1", ""])
def test_it_decides_among_equals_and_explains(declared: str) -> None:
    counted = PeerTraffic("c", "node/c", 5.0, 20.0, 20.0), PeerTraffic("a", "node/a", 1.0, 4.0, 4.0)
    traffic = NO_TRAFFIC if declared else Traffic({workload_of(wanted("")): counted})
    decision = decide(
        cluster(traffic), wanted(declared), Rule(KubeDefault(), FILTERS, prefer=rule("on"))
    )
    assert decision.node == "c"
    assert decision.why.endswith(
        "; waits 0.05 s each second for node/a, 0 for node/c; "
        "preferred among 4 nodes nearly as good (Peers 80)"
    )
    assert decision.scores()["c"][1]["Peers"] == 80


def test_without_peers_nothing_changes() -> None:
    plain, without = (
        decide(cluster(), wanted(""), Rule(KubeDefault(), FILTERS, prefer=prefer))
        for prefer in (rule("on"), None)
    )
    assert (plain.why, plain.scores()) == (without.why, without.scores())


def test_kube_schedulers_own_are_its_own() -> None:
    assert "Peers" not in PREFERENCES
