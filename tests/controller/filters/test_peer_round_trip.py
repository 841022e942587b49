"""The filter PeerRoundTrip."""

from __future__ import annotations

from dataclasses import replace

import pytest
from leadline_controller.filters import EXTENDER_FILTERS, FILTERS
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.framework.model import Link, Pod, PodAnnotations
from leadline_controller.framework.selectors import Requirement
from leadline_controller.framework.view import ClusterView
from leadline_controller.kubeobjects.peers import read_peers
from leadline_controller.strategies.kube_default import KubeDefault

from tests.controller.builders import node, pod, view
from tests.controller.filters.filter_harness import reasons

LINKS = [Link("a", "b", 4.0), Link("a", "c", 8.0)]
DB = PodSelector("Service", "default", "db", (Requirement("app", "In", ("db",)),))


def wanted(peers: str) -> Pod:
    return replace(pod("web"), annotations=PodAnnotations(peers=read_peers(peers)))


def cluster(*on: str) -> ClusterView:
    pods = [pod(f"db-{at}", labels={"app": "db"}, nodeName=name) for at, name in enumerate(on)]
    nodes = [node(name) for name in "abcd"]
    return view(nodes, links=LINKS, assigned_pods=pods, objects=[DB])


@pytest.mark.parametrize(
    ("peers", "on", "refused"),
    [
        ("db", "a", [None, None, None, None]),
        (
            "db<5ms",
            "a",
            [None, None, "needs 5 ms to db, has 8", "needs 5 ms to db, the round trip is unknown"],
        ),
        ("db<4ms", "a", [None, None, "needs 4 ms to db, has 8", "needs 4 ms to db, the round"]),
        ("db<3ms", "ab", [None, None, "needs 3 ms to db, the", "needs 3 ms to db, the round"]),
        ("db<0ms", "d", ["needs 0 ms to db, the", "needs 0 ms", "needs 0 ms to db", None]),
        ("db<9ms, node/b<4ms", "a", [None, None, "needs 4 ms to node/b, the", "needs 9 ms to db"]),
    ],
)
def test_which_nodes_are_near_enough(peers: str, on: str, refused: list[str | None]) -> None:
    found = list(reasons("PeerRoundTrip", cluster(*on), wanted(peers)).values())
    for said, expected in zip(found, refused, strict=True):
        assert (said is None) is (expected is None)
        assert (said or "").startswith(expected or "")


def test_a_peer_that_is_nowhere_refuses_no_node_and_the_reason_names_it() -> None:
    found = decide(cluster(), wanted("db<5ms, node/a<9ms, cache=2"), Rule(KubeDefault(), FILTERS))
    assert found.node in ("a", "b", "c")
    assert "; no round trip to db, which has no place yet" in found.why
    assert "; without its peers db, cache, which have no place now" in found.why
    assert set(found.rejected()) == {"d"}


def test_it_runs_as_kube_schedulers_extender() -> None:
    assert "PeerRoundTrip" in EXTENDER_FILTERS
