"""How long the search for pods that must make room takes, over full clusters. Nothing else is
decided meanwhile."""

import time
from random import Random
from statistics import median
from typing import Any

from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import DisruptionBudget
from leadline_controller.framework.cycle import Rule, filtered
from leadline_controller.framework.preemption import best_candidates, find_candidates
from leadline_controller.framework.selectors import Requirement
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_controller.strategies.kube_default import KubeDefault

from tests.controller.builders import manifest, node, view

SIZES = (100, 1000)
PODS_A_NODE = 10
RUNS = 5
APP = {"app": "web"}
BUDGET = DisruptionBudget("default", "web", (Requirement("app", "In", ("web",)),))
SPREADING = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": APP},
}
CASES: dict[str, tuple[dict[str, Any], tuple[DisruptionBudget, ...]]] = {
    "resources": ({}, ()),
    "resources, all held by a budget": ({}, (BUDGET,)),
    "spreading as well": ({"topologySpreadConstraints": [SPREADING]}, ()),
}


def main() -> None:
    """Print a row for each case and size."""
    print(f"{'what is in the way':<34}{'nodes':>6}{'candidates':>12}{'median, ms':>12}")
    for size in SIZES:
        names = [f"n{number}" for number in range(size)]
        nodes = [
            node(name, cores=2, ready=True, labels={"zone": "z", "kubernetes.io/hostname": name})
            for name in names
        ]
        pods = [
            read_pod(
                manifest(
                    f"{name}-{number}",
                    requests={"cpu": "200m"},
                    nodeName=name,
                    labels=APP,
                )
            )
            for name in names
            for number in range(PODS_A_NODE)
        ]
        empty = view(nodes)
        placed = [(each, empty.table.index[each.node_name or ""]) for each in pods]
        full = empty.with_assigned(placed)
        for case, (fields, budgets) in CASES.items():
            wanted = read_pod(
                manifest("p", requests={"cpu": "1"}, priority=10, labels=APP, **fields)
            )
            results = filtered(full, wanted, FILTERS)
            took_ms = []
            for run in range(RUNS):
                begun_s = time.perf_counter()
                found = find_candidates(
                    full,
                    wanted,
                    Rule(KubeDefault(), FILTERS, Random(run)),
                    results,
                    placed,
                    budgets,
                )
                best_candidates(found)
                took_ms.append(1000 * (time.perf_counter() - begun_s))
            print(f"{case:<34}{size:>6,}{len(found):>12,}{median(took_ms):>12.0f}")
