"""Each term of the rule, on clusters in which it alone decides, with numbers worked by hand."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leadline_controller.filters import FILTERS
from leadline_controller.framework.assumed_load import Expectations, Lives, workload_of
from leadline_controller.framework.cycle import Rule, decide_in_turn
from leadline_controller.framework.model import Image, Layer, Link, Node, Owner
from leadline_controller.framework.node_metrics import METRICS
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.leadline import TERMS, Leadline

from tests.controller.builders import node, pod, view
from tests.controller.strategies.leadline.deciding import decision, scores, wanted

BOARDS = [node("a"), node("b")]
IDLE = {
    "cpu_percent": [0.0, 0.0],
    "memory_percent": [20.0, 20.0],
    "bandwidth_mbps": [100.0, 100.0],
}
LINKS = [Link("a", "b", 1.0)]


def cluster(nodes: list[Node] = BOARDS, **changed: list[float]) -> ClusterView:
    return view(nodes, links=LINKS, metrics={**IDLE, **changed})


def test_two_idle_boards_alike_are_as_good() -> None:
    found = scores(cluster(), wanted())
    assert found.total[0] == found.total[1]
    assert found.finalists.tolist() == [0, 1]


def test_the_work_is_the_profile_slowed_down_by_the_load() -> None:
    found = scores(cluster(cpu_percent=[0.0, 90.0]), wanted(profile_ms={"a": 100, "b": 60}))
    # 0.1 and 0.06 of 4 cores are the pod's own; of what is in use, what pods request is a quarter.
    rho = np.array([0.025, 0.75 * 0.9 + 0.015])
    slower = 1 + rho ** (np.sqrt(10) - 1) / (4 * (1 - rho))
    assert found.parts["work_ms"] == pytest.approx([100, 60] * slower)


def test_a_pod_with_a_request_is_slowed_down_by_no_more_than_its_share_allows() -> None:
    busy = cluster(cpu_percent=[99.0, 99.0])
    whole = replace(wanted(profile_ms={"a": 100, "b": 100}), requests={"cpu": 1000})
    assert scores(busy, whole).parts["work_ms"].tolist() == [100, 100]
    less = replace(whole, requests={"cpu": 800})
    assert scores(busy, less).parts["work_ms"].tolist() == pytest.approx([125, 125])
    none = replace(whole, requests={})
    assert scores(busy, none).parts["work_ms"][0] > 150


def test_data_is_worked_on_by_the_cores_that_are_free() -> None:
    of = cluster(cpu_percent=[0.0, 100.0])
    several = replace(wanted(data_mb="8"), limits={"cpu": 4000})
    # 4 cores; and a quarter of 4, as nothing is requested and only the rest is believed.
    assert scores(of, several).parts["work_ms"] == pytest.approx([2000, 8000])
    one_thread = scores(of, wanted(data_mb="8"))
    assert one_thread.parts["work_ms"] == pytest.approx([8000, 8000])


def test_a_job_that_mostly_waits_has_less_work_with_its_data() -> None:
    job = replace(wanted(data_mb="8"), owner=Owner("Job", "j", "uid-j"))
    seen = cluster().assuming_load(Expectations({workload_of(job): (0.25, 1e6)}))
    assert scores(seen, job).parts["work_ms"] == pytest.approx([2000, 2000])
    busy = cluster().assuming_load(Expectations({workload_of(job): (3.0, 1e6)}))
    assert scores(busy, job).parts["work_ms"] == pytest.approx([8000, 8000])


def test_what_is_used_for_counted_requests_is_the_work_of_their_data() -> None:
    served = wanted(data_mb="8", peers="node/b@5rps")
    seen = cluster().assuming_load(Expectations({workload_of(served): (0.1, 1e6)}))
    assert scores(seen, served).parts["work_ms"] == pytest.approx([20, 20])
    assert scores(cluster(), served).parts["work_ms"] == pytest.approx([8000, 8000])


def test_a_service_that_waits_for_its_requests_keeps_the_work_of_its_data() -> None:
    idle = wanted(data_mb="8")
    seen = cluster().assuming_load(Expectations({workload_of(idle): (0.001, 1e6)}))
    assert scores(seen, idle).parts["work_ms"] == pytest.approx([8000, 8000])


def test_a_board_without_memory_costs_restarts() -> None:
    found = scores(cluster(memory_percent=[20.0, 99.0]), wanted())
    assert found.parts["memory_ms"][0] < 1e-6
    assert found.parts["memory_ms"][1] > 600
    assert found.finalists.tolist() == [0]


def test_a_user_is_a_round_trip_and_a_transfer_away() -> None:
    found = scores(cluster(bandwidth_mbps=[100.0, 10.0]), wanted(user_node="a", data_mb="1"))
    assert found.parts["users_ms"] == pytest.approx([0.0, 1.0 + 8000 / 10])


def test_a_start_is_spread_over_the_requests_of_a_life() -> None:
    image = Image("docker.io/library/web:1", (Layer("sha256:web", 100.0),))
    boards = [
        replace(node("a"), image_layers=frozenset({"sha256:web"}), images=(image,)),
        node("b"),
    ]
    served = pod("p", labels={"app": "web"}, containers=[{"name": "c", "image": "web:1"}])
    of = cluster(boards)
    # 800 Mbit at 100 Mbit/s, over an hour with one request a second.
    assert scores(of, served).parts["start_ms"] == pytest.approx([0.0, 8000 / 3600])
    job = replace(served, owner=Owner("Job", "j", "uid-j"))
    assert scores(of, job).parts["start_ms"] == pytest.approx([0.0, 8000.0])
    lives = {workload_of(served): Lives(6400.0, 99)}  # with the first one, 100 s each
    short = of.assuming_load(Expectations(lives=lives))
    assert scores(short, served).parts["start_ms"] == pytest.approx([0.0, 8000 / 100])


def test_a_pod_goes_to_its_peer_rather_than_to_the_idle_board() -> None:
    db = pod("db", labels={"app": "db"}, nodeName="b")
    far = view(
        BOARDS,
        links=[Link("a", "b", 20.0)],
        metrics={**IDLE, "cpu_percent": [0.0, 50.0]},
        assigned_pods=[db],
    )
    found = decision(far, wanted(peers="node/b=1@10rps"))
    assert found.node == "b"
    apart = scores(far, wanted(peers="node/b=1@10rps"))
    # 10 requests a second, each a round trip, and a megabit over 100 Mbit/s each second.
    assert apart.parts["peers_ms"] == pytest.approx([20.0 + 1000 * (1 / 100) / 10, 0.0])


def test_what_is_not_known_costs_more_than_what_is_known_to_be_the_same() -> None:
    nan = float("nan")
    three = view(
        [node("a"), node("b"), node("c")],
        metrics={
            "cpu_percent": [30.0, 30.0, nan],
            "memory_percent": [20.0] * 3,
            "bandwidth_mbps": [100.0, 90.0, nan],
        },
    )
    found = scores(three, wanted())
    assert found.total[2] > found.total[1]
    assert found.parts["risk_ms"][2] > 0


def test_a_board_whose_report_is_old_is_less_certain() -> None:
    of = cluster(cpu_percent=[60.0, 60.0])
    at_s = np.full((2, len(METRICS)), 1000.0)
    at_s[1] -= 300.0
    old = replace(of, metrics=replace(of.metrics, measured_at_s=at_s))
    found = scores(old, wanted())
    assert found.parts["risk_ms"][0] == 0
    assert found.parts["risk_ms"][1] > 0


def test_a_board_that_claims_to_be_idle_gets_no_more_than_its_requests_allow() -> None:
    of = cluster(cpu_percent=[0.0, 30.0])
    lying = replace(of, requested={"cpu": np.array([4000, 400])})
    found = scores(lying, wanted(profile_ms={"a": 100, "b": 100}))
    assert found.parts["work_ms"][0] > 100
    rule = Rule(Leadline(), FILTERS, Random(0))
    pods = [
        replace(wanted(profile_ms={"a": 100, "b": 100}), name=f"p{i}", uid=f"{i}")
        for i in range(60)
    ]
    placed = decide_in_turn(of.assuming_load(), pods, rule)
    on_a = sum(each.node == "a" for each, _ in placed)
    assert 15 <= on_a <= 45


@pytest.mark.parametrize("term", TERMS)
def test_a_term_that_is_left_out_is_not_in_the_sum(term: str) -> None:
    nan = float("nan")
    of = cluster(cpu_percent=[60.0, nan], memory_percent=[95.0, 95.0])
    asked = wanted(user_node="a", profile_ms={"a": 9}, peers="node/b=5@2rps")
    found = scores(of, asked, without=term)
    assert f"{term}_ms" not in found.parts
    assert found.total == pytest.approx(sum(found.parts.values()))


def test_the_reason_names_the_terms_the_next_board_and_what_is_assumed() -> None:
    why = decision(cluster(cpu_percent=[0.0, 90.0]), wanted(profile_ms={"a": 100, "b": 100})).why
    start = "105 ms a request: 100 work, 3.5 to users, 1.74 for what is not certain; b would be "
    assert why.startswith(start)
    assert "1 request a second is assumed" in why


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=2),
    st.lists(st.floats(0, 100), min_size=2, max_size=2),
    st.lists(st.floats(0.1, 1000), min_size=2, max_size=2),
    st.sampled_from([{}, {"data_mb": "5"}, {"user_node": "a"}, {"profile_ms": {"a": 10}}]),
)
def test_a_board_that_is_worse_in_everything_is_never_better(
    cpu: list[float], memory: list[float], mbps: list[float], said: dict[str, object]
) -> None:
    of = cluster(
        cpu_percent=[min(cpu), max(cpu)],
        memory_percent=[min(memory), max(memory)],
        bandwidth_mbps=[max(mbps), min(mbps)],
    )
    total = scores(of, wanted(**said)).total
    assert total[0] <= total[1] * (1 + 1e-9)
