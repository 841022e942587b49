"""How long Infrastructure Aware's 1,250 replicas on 168 nodes take to simulate, and how a single
decision of its strategies grows from 100 to 10,000 nodes."""

import time
from dataclasses import replace
from random import Random

import numpy as np
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy, decide
from leadline_controller.framework.images import ImageTable
from leadline_controller.framework.model import Pod
from leadline_controller.framework.node_table import NodeTable
from leadline_controller.framework.options import build
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies import STRATEGIES
from leadline_experiments.infrastructure_aware.simulation import (
    draw_applications,
    draw_topology,
    simulate,
    stand_in_images,
)

from tests.bench.decision import SIZES, cluster

NAMES = ("kube-default", "image-locality", "layer-locality", "infrastructure-aware")
ROUNDS = 20


def main() -> None:
    """Print both tables."""
    images = stand_in_images()
    topology, applications = draw_topology(Random(1)), draw_applications(images, Random(1))
    print("1,250 replicas on 168 nodes (30 s or less for all four):")
    whole_s = 0.0
    for name in NAMES:
        strategy: Strategy = build(STRATEGIES[name], {})
        began_s = time.perf_counter()
        simulate(topology, images, applications, strategy, Random(1))
        took_s = time.perf_counter() - began_s
        whole_s += took_s
        print(f"  {name:22} {took_s:6.2f} s")
    print(f"  {'all':22} {whole_s:6.2f} s")
    print(f"one decision, with layers and queues, ms: {'  '.join(f'{n:>7,} nodes' for n in SIZES)}")
    views = [_with_layers(cluster(size)) for size in SIZES]
    for name in NAMES:
        print(f"  {name:38} " + "  ".join(f"{_decision_ms(name, v):13.2f}" for v in views))


def _with_layers(view: ClusterView) -> ClusterView:
    """A view in which each node has half of the layers and one queued layer."""
    random, images = Random(1), stand_in_images()
    layers = sorted({layer.digest for image in images for layer in image.layers})
    nodes = [
        replace(node, image_layers=frozenset(random.sample(layers, len(layers) // 2)))
        for node in view.nodes
    ]
    queued: dict[str, frozenset[int]] = {}
    for at in range(len(nodes)):
        digest = random.choice(layers)
        queued[digest] = queued.get(digest, frozenset()) | {at}
    queue_mb = {at: random.uniform(1.0, 100.0) for at in range(len(nodes))}
    table = replace(ImageTable.of(images), queued=queued, queue_mb=queue_mb)
    return replace(view, table=NodeTable(nodes), images=table)


def _decision_ms(name: str, view: ClusterView) -> float:
    strategy: Strategy = build(STRATEGIES[name], {})
    took_ms = []
    for at in range(ROUNDS):
        image = stand_in_images()[at % 24]
        pod = Pod("default", f"p{at}", images=(image.name,))
        began_s = time.perf_counter()
        decide(view, pod, FILTERS, strategy, Random(at))
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return float(np.median(took_ms))


if __name__ == "__main__":
    main()
