"""ElasticFog with numbers worked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.framework.model import Pod
from leadline_controller.strategies.elasticfog import ElasticFog

from tests.controller.builders import node, pod, view

NODES = [node("n1"), node("n2"), node("n3")]
METRICS = {"packets_received_per_s": [40.0, 20.0, 10.0], "packets_sent_per_s": [10.0, 5.0, 15.0]}


def with_replicas(*counts: int) -> list[Pod]:
    places = [at for at, count in enumerate(counts, start=1) for _ in range(count)]
    return [
        pod(f"p{number}", nodeName=f"n{at}", labels={"app": "web"})
        for number, at in enumerate(places)
    ]


def test_a_node_lacks_its_share_of_the_traffic_less_its_replicas() -> None:
    cluster = view(NODES, metrics=METRICS, assigned_pods=with_replicas(2, 1, 2))
    scores = ElasticFog().score(cluster, pod(labels={"app": "web"}), np.arange(3))
    # Traffic 50, 25 and 25 of 100; six pods with this one: 3, 1.5 and 1.5 are due.
    assert scores.parts["traffic_share"].tolist() == [0.5, 0.25, 0.25]
    assert scores.total.tolist() == [1.0, 0.5, -0.5]
    assert scores.finalists.tolist() == [0]
    assert scores.why(0) == "50% of the traffic, 2 of 3.00 pods that it is due"


def test_every_node_gets_a_first_replica() -> None:
    cluster = view(NODES, metrics=METRICS, assigned_pods=with_replicas(1, 0, 0))
    scores = ElasticFog().score(cluster, pod(labels={"app": "web"}), np.arange(3))
    # Two pods: 1, 0.5 and 0.5 are due.
    assert scores.total.tolist() == [0.0, 0.5, 0.5]
    assert scores.finalists.tolist() == [1, 2]
    # Even one that has no traffic goes before one that is short.
    quiet = {"packets_received_per_s": [9.0, 0.0, 0.0], "packets_sent_per_s": [9.0, 0.0, 0.0]}
    busy = view(NODES, metrics=quiet, assigned_pods=with_replicas(1, 1, 0))
    scores = ElasticFog().score(busy, pod(labels={"app": "web"}), np.arange(3))
    assert scores.total.tolist() == [2.0, -1.0, 0.0]
    assert scores.finalists.tolist() == [2]


def test_pods_of_another_service_do_not_count() -> None:
    cluster = view(NODES, metrics=METRICS, assigned_pods=with_replicas(2, 1, 1))
    scores = ElasticFog().score(cluster, pod(labels={"app": "other"}), np.arange(3))
    assert scores.parts["replicas"].tolist() == [0.0, 0.0, 0.0]
    assert scores.finalists.tolist() == [0]


def terminating(pods: list[Pod]) -> list[Pod]:
    return [replace(each, terminating=True) for each in pods]


def test_a_node_with_the_traffic_is_not_refused_during_a_rollout() -> None:
    nodes = [node("n1"), node("n2")]
    busy = {"packets_received_per_s": [90.0, 10.0], "packets_sent_per_s": [90.0, 10.0]}
    # The replica on n1, which has 90 % of the traffic, is being deleted; this is its successor.
    cluster = view(nodes, metrics=busy, assigned_pods=terminating(with_replicas(1)))
    scores = ElasticFog().score(cluster, pod(labels={"app": "web"}), np.arange(2))
    assert scores.parts["replicas"].tolist() == [0.0, 0.0]
    assert scores.finalists.tolist() == [0]
    # Of ten replicas, those on n1 are being deleted.
    old = with_replicas(9, 1)
    cluster = view(nodes, metrics=busy, assigned_pods=[*terminating(old[:9]), old[9]])
    scores = ElasticFog().score(cluster, pod(labels={"app": "web"}), np.arange(2))
    assert scores.total.tolist() == pytest.approx([1.8, -0.8])
    assert scores.finalists.tolist() == [0]


def test_for_a_pod_without_a_service_the_pods_of_this_run_count() -> None:
    cluster = view(NODES, metrics=METRICS, placed=[1, 1, 0], assigned_pods=with_replicas(0, 0, 3))
    scores = ElasticFog().score(cluster, pod(), np.arange(3))
    assert scores.parts["replicas"].tolist() == [1.0, 1.0, 0.0]
    assert scores.finalists.tolist() == [2]


@pytest.mark.parametrize(
    ("received", "sent", "unknown", "share"),
    [
        ([40.0, 20.0, math.nan], [10.0, 5.0, 15.0], "worst", [0.5, 0.25, 0.25]),
        ([40.0, 20.0, math.nan], [10.0, 5.0, 15.0], "like-boards", [4 / 9, 2 / 9, 3 / 9]),
        ([40.0, 20.0, 10.0], [math.nan] * 3, "like-boards", [1 / 3] * 3),
        ([0.0] * 3, [0.0] * 3, "like-boards", [1 / 3] * 3),
    ],
)
def test_unknown_traffic_counts_as_that_of_boards_like_it_or_as_the_least_known(
    received: list[float], sent: list[float], unknown: str, share: list[float]
) -> None:
    cluster = view(NODES, metrics={"packets_received_per_s": received, "packets_sent_per_s": sent})
    scores = ElasticFog(unknown).score(cluster, pod(), np.arange(3))
    assert scores.parts["traffic_share"].tolist() == pytest.approx(share)


def test_shares_are_among_the_candidates() -> None:
    scores = ElasticFog().score(view(NODES, metrics=METRICS), pod(), np.array([1, 2]))
    assert scores.parts["traffic_share"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("error", "finalists"), [(0.0, [1]), (2.0, [0, 1])])
def test_nodes_whose_traffic_differs_by_its_error_are_as_good(
    error: float, finalists: list[int]
) -> None:
    metrics = {"packets_sent_per_s": [50.0, 53.0, 20.0], "packets_received_per_s": [50.0] * 3}
    cluster = view(
        [node(name) for name in "abc"], metrics=metrics, errors={"packets_sent_per_s": error}
    )
    assert ElasticFog().score(cluster, pod(), np.arange(3)).finalists.tolist() == finalists
