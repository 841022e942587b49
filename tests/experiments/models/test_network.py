"""Max-min fairness worked by hand, and its definition on networks of every kind."""

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from leadline_experiments.models.network import Network, Routes, max_min_rates


def rates(
    routes: list[list[int]], capacity: list[float], flows: list[int] | None = None
) -> list[float]:
    counts = np.array(flows or [1] * len(routes), dtype=np.int64)
    return [round(float(rate), 9) for rate in max_min_rates(named(routes, capacity), counts)]


def named(routes: list[list[int]], capacity: list[float]) -> Routes:
    names = [[str(link) for link in route] for route in routes]
    return Routes(names, {str(link): mbps for link, mbps in enumerate(capacity)})


def test_one_link_is_divided_equally() -> None:
    assert rates([[0], [0], [0]], [30.0]) == [10.0, 10.0, 10.0]
    assert rates([[0]], [30.0], [4]) == [7.5]


def test_what_a_narrow_link_leaves_goes_to_the_others() -> None:
    # Link 0 (100) carries all three; the first can take no more than its own 10.
    assert rates([[0, 1], [0], [0]], [100.0, 10.0]) == [10.0, 45.0, 45.0]


def test_the_chain_of_bertsekas_and_gallager() -> None:
    # A long flow over links of 1, 1 and 2 beside short ones: two on the first link.
    # Link 0: three flows, 1/3 each; link 1: the rest, 2/3; link 2: 5/3.
    found = rates([[0, 1, 2], [0], [0], [1], [2]], [1.0, 1.0, 2.0])
    assert found == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3, 5 / 3])


def test_a_bottleneck_that_shows_only_after_another() -> None:
    # Link 1 offers 6 until the flow that link 0 holds at 2 leaves it 10 for the other.
    assert rates([[0, 1], [0], [1]], [4.0, 12.0]) == [2.0, 2.0, 10.0]


def test_routes_without_flows_get_nothing_and_take_nothing() -> None:
    assert rates([[0], [0]], [30.0], [0, 3]) == [0.0, 10.0]


@pytest.mark.parametrize(
    ("routes", "capacity"),
    [([[]], [1.0]), ([[0, 0]], [1.0]), ([[1]], [1.0]), ([[0]], [0.0]), ([[0]], [float("inf")])],
)
def test_a_network_that_makes_no_sense_is_refused(
    routes: list[list[int]], capacity: list[float]
) -> None:
    with pytest.raises(ValueError, match=r"expected|has no capacity"):
        named(routes, capacity)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], list[float], list[int]]:
    links = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.floats(0.1, 1e4), min_size=links, max_size=links))
    route = st.lists(st.integers(0, links - 1), min_size=1, unique=True)
    routes = draw(st.lists(route, min_size=1, max_size=8))
    counts = st.lists(st.integers(0, 5), min_size=len(routes), max_size=len(routes))
    return routes, capacity, draw(counts)


@given(network=networks())
def test_no_link_is_overloaded_and_every_flow_has_a_bottleneck(
    network: tuple[list[list[int]], list[float], list[int]],
) -> None:
    """The definition: a full link on which no flow gets more than this one."""
    routes, capacity, flows = network
    rate = max_min_rates(named(routes, capacity), np.array(flows, dtype=np.int64))
    used = [
        sum(rate[r] * flows[r] for r, path in enumerate(routes) if link in path)
        for link in range(len(capacity))
    ]
    for link, limit in enumerate(capacity):
        assert used[link] <= limit * (1 + 1e-9)
    for r, path in enumerate(routes):
        if not flows[r]:
            assert rate[r] == 0
            continue
        assert any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and all(
                rate[other] <= rate[r] * (1 + 1e-9)
                for other, its in enumerate(routes)
                if link in its and flows[other]
            )
            for link in path
        )


def network(env: simpy.Environment) -> Network:
    capacity = {"out": 100.0, "a": 10.0, "b": 80.0}
    return Network(env, capacity, {"a": ["out", "a"], "b": ["out", "b"]})


def finished(env: simpy.Environment, *events: simpy.Event) -> list[float]:
    """When each of the events comes, rounded to a microsecond."""
    times_s = [0.0] * len(events)

    def wait(at: int, event: simpy.Event) -> simpy.events.ProcessGenerator:
        yield event
        times_s[at] = round(float(env.now), 6)

    for at, event in enumerate(events):
        env.process(wait(at, event))
    env.run()
    return times_s


def test_downloads_that_share_a_link_slow_each_other_down() -> None:
    env = simpy.Environment()
    net = network(env)
    # Both at 5 Mbit/s until the small one, 40 Mbit, is done at 8 s; then 40 of 80 are left.
    assert finished(env, net.download("a", 5.0), net.download("a", 10.0)) == [8.0, 12.0]


def test_a_download_that_comes_later_changes_the_rates_from_then_on() -> None:
    env = simpy.Environment()
    net = network(env)
    first = net.download("b", 80.0)  # 640 Mbit at 80: 8 s alone
    env.run(until=4.0)  # 320 are left
    second = net.download("b", 20.0)  # 160 at 40: done at 8 s, when 160 are left at 80
    assert finished(env, first, second) == [10.0, 8.0]


def test_nothing_to_pull_is_done_at_once_and_links_are_free_afterwards() -> None:
    env = simpy.Environment()
    net = network(env)
    assert finished(env, net.download("a", 0.0)) == [0.0]
    assert finished(env, net.download("a", 10.0)) == [8.0]


def test_what_is_not_there_is_refused() -> None:
    env = simpy.Environment()
    with pytest.raises(ValueError, match="link 'x': has no capacity"):
        Network(env, {"a": 1.0}, {"n": ["a", "x"]})
    with pytest.raises(ValueError, match="size_mb: expected"):
        network(env).download("a", -1.0)
    with pytest.raises(KeyError):
        network(env).download("nowhere", 1.0)
