"""DACS' equations with numbers worked by hand; the worked example is in docs/examples."""

import math
from dataclasses import replace

import numpy as np
import pytest
from leadline_controller.framework.cluster_objects import PodSelector
from leadline_controller.framework.cycle import Scores
from leadline_controller.framework.image_layers import ImageTable
from leadline_controller.framework.model import (
    CPU,
    MEMORY,
    PODS,
    DeclaredPeer,
    Image,
    Layer,
    Link,
    Node,
    Pod,
    PodAnnotations,
    Taint,
)
from leadline_controller.framework.options import build
from leadline_controller.framework.selectors import Requirement
from leadline_controller.strategies.dacs import Dacs, average_delay_s, granted, widest_of_near_best

from tests.controller.builders import GIB, node, pod, view

INF = math.inf
# Table 5: round trips between the nodes of scenario 2, ms.
MASTER = node("m", unschedulable=True)
NODES = [node("n1", cores=2, gib=4), node("n2", cores=1, gib=4), node("n3", cores=1, gib=3), MASTER]
LINKS = [
    Link("n1", "n2", 160.0),
    Link("n1", "n3", 150.0),
    Link("n2", "n3", 10.0),
    Link("m", "n1", 350.0),
    Link("m", "n2", 210.0),
    Link("m", "n3", 200.0),
]
WORKERS = np.arange(3)


def score(
    wanted: Pod,
    nodes: list[Node] | None = None,
    links: list[Link] | None = None,
    candidates: np.ndarray[tuple[int], np.dtype[np.int64]] = WORKERS,
    **options: float | str,
) -> Scores:
    cluster = view(NODES if nodes is None else nodes, links=LINKS if links is None else links)
    scores: Scores = build(Dacs, options).score(cluster, wanted, candidates)
    return scores


@pytest.mark.parametrize(
    ("request_", "limit", "residual", "phi", "expected"),
    [
        (1, 8, 10, 0.5, 5),  # l > phi r > c
        (1, 3, 10, 0.5, 3),  # phi r > l > c
        (4, 8, 6, 0.5, 4),  # c > phi r: the guaranteed minimum
        (1, INF, 10, 0.5, 5),  # no limit: max(c, phi r)
        (0, INF, -2, 0.5, 0),  # an overdrawn node gives what is guaranteed
        (2, 2, 10, 1.0, 2),
    ],
)
def test_eq_9_what_a_pod_is_granted(
    request_: float, limit: float, residual: float, phi: float, expected: float
) -> None:
    assert granted(request_, limit, np.array([residual]), phi).tolist() == [expected]


def test_algorithm_2_line_7_worked_example() -> None:
    omega = average_delay_s(
        np.array([5.0, 3.0]), np.array([2.0, 3.0]), np.array([0.1, 0.1]), alpha=0.5
    )
    assert omega.tolist() == [3.6, 3.1]


@pytest.mark.parametrize(
    ("omega", "cores", "gib", "lambda_s", "expected"),
    [
        ([3.6, 3.1], [7, 7], [7, 7], 0.05, [1]),
        ([3.14, 3.1], [8, 7], [8, 8], 0.05, [0]),  # near enough, and roomier
        ([3.16, 3.1], [8, 7], [8, 8], 0.05, [1]),  # too far
        ([3.1, 3.14, 3.12], [7, 8, 8], [8, 8, 8], 0.05, [2]),  # equally roomy: the shorter delay
        ([3.1, 3.1], [7, 7], [9, 9], 0.05, [0, 1]),
        # The paper's (1, 9) against (4, 5): the smaller of the two resources counts.
        ([1.0, 1.0], [1, 4], [9, 5], 0.05, [1]),
        # Scenario 2: half a core left on both, so the memory decides and not the delay.
        ([1.01, 1.0], [0.5, 0.5], [3.75, 2.75], 0.05, [0]),
    ],
)
def test_algorithm_2_lines_10_to_18(
    omega: list[float], cores: list[float], gib: list[float], lambda_s: float, expected: list[int]
) -> None:
    found = widest_of_near_best(np.array(omega), np.array(cores), np.array(gib), lambda_s)
    assert found.tolist() == expected


def test_eq_8_processing_is_volume_over_granted_cores() -> None:
    wanted = pod(annotations={"data-mb": "6"}, requests={"cpu": "250m"}, limits={"cpu": "750m"})
    scores = score(wanted, rate=2.0)
    # A: n1 min(0.5 * 2, 0.75) = 0.75, n2 and n3 0.5 * 1 = 0.5 cores; 2 MB a core and second.
    assert scores.parts["processing_s"].tolist() == [4.0, 6.0, 6.0]


def test_eq_10_and_11_local_and_remote_network_delay() -> None:
    wanted = pod(annotations={"user-node": "n1", "data-mb": "0.75", "bandwidth-mbps": "3"})
    scores = score(wanted, image_s=1.0)
    # Transfer 0.75 * 8 / 3 = 2 s, image 1 s. sigma over the other workers: n2 {160, 10} 75 ms,
    # n3 {150, 10} 70 ms. n2: (160 + 75) / 2 ms, n3: (150 + 70) / 2 ms; none at home.
    assert scores.parts["network_s"].tolist() == pytest.approx([3.0, 3.1175, 3.11])


def test_a_user_at_the_master_is_remote_to_all() -> None:
    wanted = pod(annotations={"user-node": "m", "data-mb": "0"})
    # tau 350, 210, 200; sigma n1 {160, 150} 5, n2 75, n3 70 ms: the master is no worker.
    assert score(wanted).parts["network_s"].tolist() == pytest.approx([0.1775, 0.1425, 0.135])


def test_without_a_user_the_mean_round_trip_stands_for_tau() -> None:
    # mu: n1 155, n2 85, n3 80 ms (Eq. 13).
    assert score(pod(annotations={"data-mb": "0"})).parts["network_s"].tolist() == pytest.approx(
        [0.08, 0.08, 0.075]
    )


def test_alpha_weighs_processing_against_network() -> None:
    wanted = pod(annotations={"user-node": "n3", "data-mb": "1", "bandwidth-mbps": "8"})
    for alpha in (0.0, 0.25, 1.0):
        scores = score(wanted, alpha=alpha)
        parts = scores.parts
        expected = alpha * parts["processing_s"] + (1 - alpha) * parts["network_s"]
        assert scores.total.tolist() == pytest.approx(expected.tolist())


def test_an_unmeasured_round_trip_counts_as_those_to_boards_like_it_or_as_the_longest() -> None:
    links = [Link("n1", "n2", 40.0), Link("n1", "m", 90.0)]
    wanted = pod(annotations={"user-node": "n1", "data-mb": "0"})
    # n2: (40 + 0) / 2 ms. n3 was measured with nobody: (65 + 0) / 2 ms, or (90 + 90) / 2 ms.
    for unknown, n3 in (("like-boards", 0.0325), ("worst", 0.09)):
        network_s = score(wanted, links=links, unknown=unknown).parts["network_s"]
        assert network_s.tolist() == pytest.approx([0, 0.02, n3])


def test_without_any_round_trip_the_option_is_used_and_is_never_zero() -> None:
    wanted = pod(annotations={"user-node": "n1", "data-mb": "0"})
    scores = score(wanted, links=[], unknown_rtt=50)
    assert scores.parts["network_s"].tolist() == pytest.approx([0.0, 0.05, 0.05])


def test_a_link_of_unknown_bandwidth_counts_as_boards_like_it_or_as_the_slowest_known() -> None:
    nodes = [node("n1", bandwidth_mbps=8.0), node("n2"), node("n3", bandwidth_mbps=2.0)]
    wanted = pod(annotations={"user-node": "n1", "data-mb": "1"})
    links = [Link("n1", "n2", 0.0), Link("n1", "n3", 0.0), Link("n2", "n3", 0.0)]
    for unknown, n2 in (("like-boards", 1.6), ("worst", 4.0)):
        network_s = score(wanted, nodes, links, unknown=unknown).parts["network_s"]
        assert network_s.tolist() == [1.0, n2, 4.0]


def test_without_any_bandwidth_the_transfer_is_left_out_for_all() -> None:
    wanted = pod(annotations={"user-node": "n1", "data-mb": "1000"})
    assert score(wanted).parts["network_s"].tolist() == pytest.approx([0.0, 0.1175, 0.11])


def test_a_profile_replaces_eq_8() -> None:
    nodes = [node("n1"), node("n2", labels={"leadline.dev/class": "pi4"}), node("n3")]
    wanted = pod(annotations={"profile-ms": '{"n1": 5000, "pi4": 3000}'})
    # n3 is not named and counts as boards like it, or as the slowest that is named.
    for unknown, n3 in (("like-boards", 4.0), ("worst", 5.0)):
        found = score(wanted, nodes, [], unknown=unknown).parts["processing_s"].tolist()
        assert found == [5.0, 3.0, n3]


def test_eq_14_and_15_charge_what_is_granted() -> None:
    cluster = view([node("n", cores=8, gib=16)])
    wanted = pod(
        requests={"cpu": "1", "memory": "9Gi", "example.com/gpu": "1"}, limits={"cpu": "3"}
    )
    charge = Dacs().charge(cluster, wanted, 0)
    # CPU: min(0.5 * 8, 3) = 3 cores; memory: c = 9 GiB over 0.5 * 16.
    assert charge == {CPU: 3000, MEMORY: 9 * GIB, PODS: 1, "example.com/gpu": 1}


def test_a_charge_fits_wherever_the_request_does() -> None:
    cluster = view([node("n", cores=1.001, gib=1)])
    wanted = pod(requests={"cpu": "1001m"})
    assert Dacs(phi=1.0).charge(cluster, wanted, 0)[CPU] == 1001


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("data_mb", ["0", "1", "1e12"])
def test_a_full_node_has_a_finite_delay(alpha: float, data_mb: str) -> None:
    cluster = view(
        [node("full", bandwidth_mbps=10.0), node("free", bandwidth_mbps=10.0)],
        requested={CPU: [4000, 0]},
        bandwidth_requested_mbps=[10.0, 0.0],
        placed=[5000, 0],
    )
    scores = Dacs(alpha=alpha).score(cluster, pod(annotations={"data-mb": data_mb}), np.arange(2))
    assert np.isfinite(scores.total).all()
    assert scores.finalists.tolist() == [1]


def test_the_reason_shows_the_terms_of_the_delay() -> None:
    wanted = pod(annotations={"user-node": "n1", "profile-ms": '{"n1": 1000, "n2": 1020}'})
    scores = score(
        wanted, nodes=[node("n1"), node("n2", cores=8, gib=16)], links=[], candidates=np.arange(2)
    )
    assert scores.why(0) == "0.500 s average delay (processing 1.000, network 0.000)"
    near = score(
        wanted,
        nodes=[node("n1"), node("n2", cores=8, gib=16)],
        links=[],
        candidates=np.arange(2),
        unknown_rtt=50,
    )
    assert near.finalists.tolist() == [1]
    assert near.why(1) == (
        "0.535 s average delay (processing 1.020, network 0.050), the roomiest of 2 near-best "
        "nodes; round trip unknown, taken as 50 ms"
    )


def test_a_lone_worker_has_no_deviation() -> None:
    # Eq. 12 has no other worker to look at. The master is 40 ms away: half of that is left.
    taint = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
    nodes = [node("master", taints=(taint,)), node("n1", bandwidth_mbps=8.0)]
    cluster = view(nodes, links=[Link("master", "n1", 40.0)])
    wanted = pod(annotations={"user-node": "master", "data-mb": "1"})
    scores = Dacs().score(cluster, wanted, np.array([1]))
    assert scores.parts["network_s"].tolist() == pytest.approx([1.0 + 0.02])


def test_t_im_is_the_time_of_the_pull_where_layers_and_speeds_are_known() -> None:
    layers = (Layer("base", 30.0), Layer("own", 10.0))
    nodes = [
        node("n1", registry_mbps=80.0),
        node("n2", registry_mbps=80.0, image_layers=frozenset({"base"})),
        node("n3", image_layers=frozenset({"base", "own"})),
        node("n4"),
    ]
    cluster = replace(view(nodes), images=ImageTable.of([Image("app:1", layers)]))
    strategy = build(Dacs, {"image_s": 7.0})
    scores = strategy.score(cluster, replace(pod("p"), images=("app:1",)), np.arange(4))
    # n3 has all; n4 counts as the slowest known one.
    assert scores.parts["image_s"].tolist() == [4.0, 1.0, 0.0, 4.0]
    network_s = scores.parts["network_s"]
    assert network_s[0] - network_s[2] == pytest.approx(4.0)
    strange = strategy.score(cluster, replace(pod("p"), images=("strange:1",)), np.arange(4))
    assert strange.parts["image_s"].tolist() == [7.0] * 4


def declaring(*peers: DeclaredPeer, user: str | None = None) -> Pod:
    return replace(pod(), annotations=PodAnnotations(user_node=user, peers=peers))


def test_the_main_peer_is_the_user_where_there_is_none() -> None:
    peers = DeclaredPeer("node/n1", 5.0, 1.0), DeclaredPeer("node/n2", 0.1, 9.0)
    of_user = score(declaring(user="n2")).total.tolist()
    by_peer = score(declaring(*peers))
    assert by_peer.total.tolist() == of_user
    assert by_peer.why(1).endswith("; its user is its main peer, node/n2")
    assert score(declaring(*peers, user="n3")).total.tolist() != of_user


def test_without_a_main_peer_it_is_the_paper_alone() -> None:
    alone, off = score(declaring()), score(declaring(DeclaredPeer("node/n2")), main_peer="off")
    assert off.total.tolist() == alone.total.tolist()
    assert [off.why(at) for at in range(3)] == [alone.why(at) for at in range(3)]
    assert score(declaring(DeclaredPeer("node/gone"))).total.tolist() == alone.total.tolist()


def test_a_peer_on_two_boards_is_as_far_as_on_average() -> None:
    places = [pod(f"db-{name}", labels={"app": "db"}, nodeName=name) for name in ("n1", "n2")]
    db = PodSelector("Service", "default", "db", (Requirement("app", "In", ("db",)),))
    cluster = view(NODES, links=LINKS, assigned_pods=places, objects=[db])
    sigma_ms = cluster.links.rtt_mean_and_deviation_ms(np.array([True, True, True, False]))[1]
    network_s = Dacs().score(cluster, declaring(DeclaredPeer("db")), WORKERS).parts["network_s"]
    # Half of the mean round trip to n1 and n2, and of the deviation (Eq. 10-13).
    expected = [(each + off) / 2000 for each, off in zip((80, 80, 80), sigma_ms, strict=False)]
    assert network_s.tolist() == pytest.approx(expected)
