"""Pulls of a node, with times worked by hand (8 Mbit/s is 1 MB a second), and the same pulls over a
network with max-min fair links, by itself."""

from collections import deque
from random import Random

import pytest
import simpy
from leadline_controller.framework.model import Layer
from leadline_experiments.infrastructure_aware.simulation import draw_topology
from leadline_experiments.models.network import Network
from leadline_experiments.models.pulls import NodeStore

A, B, C = Layer("a", 4.0), Layer("b", 2.0), Layer("c", 6.0)


def arrived(store: NodeStore) -> dict[str, float]:
    store.advance()
    return {digest: round(time_s, 6) for digest, time_s in store.arrived_s.items()}


def test_one_at_a_time_the_others_wait() -> None:
    store = NodeStore(8.0, at_once=1)
    assert store.pull([A, B]) == 6.0
    store.advance(1.0)
    assert store.pull([C]) == 6.0
    assert set(store.waiting) == {"a", "b", "c"}
    store.advance(5.0)
    assert set(store.waiting) == {"b", "c"}
    assert arrived(store) == {"a": 4.0, "b": 6.0, "c": 12.0}
    assert (store.hits, store.misses, store.stored_mb) == (0, 3, 12.0)


def test_pulls_at_once_share_the_link() -> None:
    store = NodeStore(8.0, at_once=2)
    store.pull([A, B, C])
    # a and b at 0.5 MB/s until b is there at 4 s; then a, 2 MB left, beside c; c alone from 8 s.
    assert arrived(store) == {"b": 4.0, "a": 8.0, "c": 12.0}


def test_a_layer_that_is_there_or_on_its_way_is_not_pulled_again() -> None:
    store = NodeStore(8.0, at_once=1)
    store.pull([A])
    assert store.pull([A, B]) == 2.0
    store.advance(20.0)
    assert store.pull([A, B]) == 0.0
    assert (store.hits, store.misses) == (3, 2)
    assert arrived(store) == {"a": 4.0, "b": 6.0}


def test_a_new_pull_gets_a_part_of_what_is_used() -> None:
    store = NodeStore(12.0, at_once=2)
    assert store.left_mbps == 12.0
    store.pull([A])
    assert store.left_mbps == 6.0
    store.pull([B, C])
    assert store.left_mbps == 4.0  # c waits, and takes nothing
    store.advance()
    assert store.left_mbps == 12.0


@pytest.mark.parametrize("at_once", [1, 3])
def test_over_the_whole_network_with_max_min_fair_links_the_times_are_the_same(
    at_once: int,
) -> None:
    """The backbone is no bottleneck, so that a node's own link is all that counts."""
    random = Random(3)
    topology = draw_topology(random)
    nodes = list(topology.routes)
    layers = [Layer(f"layer-{i}", random.uniform(0.1, 300.0)) for i in range(40)]
    pulls = sorted(
        (random.uniform(0.0, 200.0), node, random.sample(layers, 5)) for node in nodes * 2
    )
    stores = {node: NodeStore(topology.bandwidth_mbps(node), at_once) for node in nodes}
    for start_s, node, wanted in pulls:
        stores[node].advance(start_s)
        stores[node].pull(wanted)
    for store in stores.values():
        store.advance()
    reference = _arrivals_over_the_network(pulls, at_once)
    for node, store in stores.items():
        assert store.arrived_s == pytest.approx(reference[node], abs=1e-6)


def _arrivals_over_the_network(
    pulls: list[tuple[float, str, list[Layer]]], at_once: int
) -> dict[str, dict[str, float]]:
    topology = draw_topology(Random(3))
    env = simpy.Environment()
    network = Network(env, topology.capacity_mbps, topology.routes)
    arrived_s: dict[str, dict[str, float]] = {node: {} for node in topology.routes}
    known: dict[str, set[str]] = {node: set() for node in topology.routes}
    queues: dict[str, deque[Layer]] = {node: deque() for node in topology.routes}
    busy = dict.fromkeys(topology.routes, 0)

    def work(node: str) -> simpy.events.ProcessGenerator:
        busy[node] += 1
        while queues[node]:
            layer = queues[node].popleft()
            yield network.download(node, layer.size_mb)
            arrived_s[node][layer.digest] = float(env.now)
        busy[node] -= 1

    def arrive() -> simpy.events.ProcessGenerator:
        for start_s, node, wanted in pulls:
            yield env.timeout(start_s - env.now)
            fresh = [layer for layer in wanted if layer.digest not in known[node]]
            known[node].update(layer.digest for layer in fresh)
            queues[node].extend(fresh)
            for _ in range(min(at_once - busy[node], len(fresh))):
                env.process(work(node))

    env.process(arrive())
    env.run()
    return arrived_s
