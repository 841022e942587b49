"""How long the exact optimum takes, by the size of the cluster: both papers' programmes, on the
clusters of the study and on ones where no two pods are alike, which are the hard ones."""

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import CPU, MEMORY, Pod
from leadline_controller.strategies.dacs import Dacs
from leadline_controller.strategies.kubedsm import KubeDsm
from leadline_experiments.optimum import dacs, kubedsm, study
from leadline_experiments.optimum.programme import Optimum

SIZES = ((3, 10), (5, 10), (10, 20), (20, 40))
SEEDS = range(3)


def _all_different(pods: list[Pod], seed: int) -> list[Pod]:
    random = Random(seed)
    return [
        replace(
            pod,
            requests={
                **pod.requests,
                CPU: round(pod.requests[CPU] * random.uniform(0.5, 1.5)),
                MEMORY: round(pod.requests[MEMORY] * random.uniform(0.5, 1.5)),
            },
            limits={},
        )
        for pod in pods
    ]


def _of_dacs(nodes: int, pods: int, seed: int) -> Optimum:
    view, made = study.edge_cluster(nodes, pods, seed)
    return dacs.best(view, made, Dacs(), FILTERS)


def _of_dacs_all_different(nodes: int, pods: int, seed: int) -> Optimum:
    view, made = study.edge_cluster(nodes, pods, seed)
    return dacs.best(view, _all_different(made, seed), Dacs(), FILTERS)


def _of_kubedsm(nodes: int, pods: int, seed: int) -> Optimum:
    return kubedsm.best(*study.cloud_assisted(nodes, pods, seed), KubeDsm(), FILTERS)


_PROGRAMMES: dict[str, Callable[[int, int, int], Optimum]] = {
    "DACS, services": _of_dacs,
    "DACS, pods all different": _of_dacs_all_different,
    "KubeDSM, services": _of_kubedsm,
}


def main() -> None:
    """Print the seconds and the status for each seed."""
    for name, solve in _PROGRAMMES.items():
        for nodes, pods in SIZES:
            results = []
            for seed in SEEDS:
                began = time.perf_counter()
                found = solve(nodes, pods, seed)
                took_s = time.perf_counter() - began
                results.append(f"{took_s:.2f} s {found.status}, gap {found.gap:.2%}")
            print(f"{name:26} {nodes:3} nodes {pods:3} pods: {'; '.join(results)}", flush=True)
