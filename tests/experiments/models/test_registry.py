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


# Name, node, layers, and the start in seconds.
Pull = tuple[str, str, tuple[Layer, ...], float]
# Pulls, the ends in seconds, and each store's size in MB, hits and misses.
PULLS: dict[str, tuple[list[Pull], dict[str, float], dict[str, tuple[float, int, int]]]] = {
    # 0.5 MB/s each; b is there at 4 s, then a comes alone.
    "layers share the link": ([("p", "n", (A, B), 0.0)], {"p": 6.0}, {"n": (6.0, 0, 2)}),
    "a layer on its way is waited for": (
        [("p", "n", (A,), 0.0), ("q", "n", (A,), 1.0)],
        {"p": 4.0, "q": 4.0},
        {"n": (4.0, 1, 1)},
    ),
    "a cached layer is there at once": (
        [("p", "n", (A,), 0.0), ("q", "n", (A,), 9.0), ("none", "n", (), 1.0)],
        {"p": 4.0, "q": 9.0, "none": 1.0},
        {"n": (4.0, 1, 1)},
    ),
    "each node pulls for itself": (
        [("p", "n", (A, C), 0.0), ("q", "m", (A,), 0.0)],
        {"p": 10.0, "q": 4.0},
        {"n": (10.0, 0, 2), "m": (4.0, 0, 1)},
    ),
}


@pytest.mark.parametrize(("pulls", "done_s", "stores"), PULLS.values(), ids=PULLS.keys())
def test_an_image_is_there_with_its_last_layer(
    pulls: list[Pull], done_s: dict[str, float], stores: dict[str, tuple[float, int, int]]
) -> None:
    bench = Bench()
    for name, node, layers, at_s in pulls:
        bench.pull(name, node, *layers, at_s=at_s)
    assert bench.run() == done_s
    found = {node: bench.registry.stores[node] for node in stores}
    assert {
        node: (store.stored_mb, store.hits, store.misses) for node, store in found.items()
    } == stores


def test_more_than_the_limit_waits_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PARALLEL_PULLS", 1)
    bench = Bench()
    bench.pull("p", "n", A)
    bench.pull("q", "n", B)
    bench.env.run(until=1.0)
    assert bench.registry.stores["n"].waiting_mb == 6.0
    assert bench.run() == {"p": 4.0, "q": 6.0}
    assert bench.registry.stores["n"].waiting_mb == 0.0
