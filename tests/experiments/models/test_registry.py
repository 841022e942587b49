"""Pulls from a registry, with times worked by hand: 8 Mbit/s is 1 MB a second."""

import pytest
import simpy
from leadline_controller.framework.model import Layer
from leadline_experiments.models import network
from leadline_experiments.models.network import Network, Registry

A, B, C = Layer("a", 4.0), Layer("b", 2.0), Layer("c", 6.0)


class Bench:
    def __init__(self) -> None:
        self.env = simpy.Environment()
        links = Network(self.env, {"n": 8.0, "m": 8.0}, {"n": ["n"], "m": ["m"]})
        self.registry = Registry(self.env, links, ["n", "m"])
        self.done_s: dict[str, float] = {}

    def pull(self, name: str, node: str, *layers: Layer, at_s: float = 0.0) -> None:
        self.env.process(self._pull(name, node, layers, at_s))

    def _pull(
        self, name: str, node: str, layers: tuple[Layer, ...], at_s: float
    ) -> simpy.events.ProcessGenerator:
        yield self.env.timeout(at_s)
        yield self.registry.pull(node, layers)
        self.done_s[name] = float(self.env.now)

    def run(self) -> dict[str, float]:
        self.env.run()
        return {name: round(time_s, 6) for name, time_s in self.done_s.items()}


def test_layers_of_one_image_come_at_once_and_it_is_there_with_the_last() -> None:
    bench = Bench()
    bench.pull("p", "n", A, B)  # 0.5 MB/s each; b at 4 s, then a alone: 6 s
    assert bench.run() == {"p": 6.0}
    store = bench.registry.stores["n"]
    assert (store.stored_mb, store.hits, store.misses) == (6.0, 0, 2)


def test_more_than_the_limit_waits_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PARALLEL_PULLS", 1)
    bench = Bench()
    bench.pull("p", "n", A)
    bench.pull("q", "n", B)
    bench.env.run(until=1.0)
    assert bench.registry.stores["n"].waiting_mb == 6.0
    assert bench.run() == {"p": 4.0, "q": 6.0}
    assert bench.registry.stores["n"].waiting_mb == 0.0


def test_a_layer_on_its_way_is_waited_for_and_not_pulled_again() -> None:
    bench = Bench()
    bench.pull("p", "n", A)
    bench.pull("q", "n", A, at_s=1.0)
    assert bench.run() == {"p": 4.0, "q": 4.0}
    store = bench.registry.stores["n"]
    assert (store.stored_mb, store.hits, store.misses) == (4.0, 1, 1)


def test_what_is_cached_is_there_at_once() -> None:
    bench = Bench()
    bench.pull("p", "n", A)
    bench.pull("q", "n", A, at_s=9.0)
    bench.pull("none", "n", at_s=1.0)
    assert bench.run() == {"p": 4.0, "q": 9.0, "none": 1.0}


def test_each_node_pulls_for_itself() -> None:
    bench = Bench()
    bench.pull("p", "n", A, C)
    bench.pull("q", "m", A)
    assert bench.run() == {"p": 10.0, "q": 4.0}
    assert bench.registry.stores["m"].stored_mb == 4.0
