"""Pulls of a node, with times worked by hand: 8 Mbit/s is 1 MB a second."""

from leadline_controller.framework.model import Layer
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
