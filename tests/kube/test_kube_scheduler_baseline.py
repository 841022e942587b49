"""The baseline `kube-scheduler` of replays chooses as the real kube-scheduler does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, decide
from leadline_controller.kubeobjects.manifest import read_pod
from leadline_lab.replay.kube_scheduler import KubeScheduler, Unstated

from tests.controller.builders import node, view
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import pod
from tests.kube.scheduler import kube_scheduler
from tests.kube.volume_bench import PODS, Bench
from tests.support.ports import wait_until

pytestmark = pytest.mark.cluster

COUNT = 40
SIZES = ((4, 4), (2, 8), (8, 4), (4, 16))  # cores, GiB


def drawn(number: int, bench: Bench, random: Random) -> dict[str, Any]:
    """A pod with or without requests and preferences."""
    cpu = random.choice((None, "50m", "150m", "400m", "900m"))
    memory = random.choice((None, "64Mi", "200Mi", "700Mi"))
    affinity: dict[str, Any] = {}
    if random.random() < 0.3:
        size = random.choice(("small", "large"))
        term = {"matchExpressions": [{"key": "size", "operator": "In", "values": [size]}]}
        affinity["nodeAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": random.choice((10, 60)), "preference": term}
            ]
        }
    if random.random() < 0.3:
        apart = {
            "labelSelector": {"matchLabels": {"app": "web"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity["podAntiAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "podAffinityTerm": apart}
            ]
        }
    return pod(
        f"{bench.name}-p{number}",
        cpu,
        memory,
        scheduler="default-scheduler",
        labels={"app": random.choice(("web", "db"))},
        node_selector={"demo": bench.name},
        affinity=affinity,
    )


def placed_on(api: Api, path: str) -> str:
    def node_name() -> str | None:
        found: str | None = api.get(path)["spec"].get("nodeName")
        return found

    wait_until(lambda: node_name() is not None, f"{path} is placed", 120)
    return str(node_name())


def test_the_real_kube_scheduler_chooses_one_of_the_baselines_best_nodes(
    plane: ControlPlane, api: Api, bench: Bench
) -> None:
    random = Random(34)
    boards = []
    for number, (cores, gib) in enumerate(SIZES):
        labels = {"demo": bench.name, "size": "large" if gib > 4 else "small"}
        name = bench.node(f"n{number}", cpu=str(cores), memory=f"{gib}Gi", labels=labels)
        labels["kubernetes.io/hostname"] = name
        boards.append(node(name, cores=cores, gib=gib, labels=labels))
    seen = view(boards)
    unstated = Unstated()
    several = 0
    with kube_scheduler(plane):
        for number in range(COUNT):
            made = bench.add(PODS, drawn(number, bench, random))
            path = f"{PODS}/{made['metadata']['name']}"
            chosen = placed_on(api, path)
            rule = Rule(KubeScheduler(unstated.on_nodes), FILTERS, Random(0))
            asked = replace(read_pod(made), node_name=None)
            decision = decide(seen, asked, rule)
            scores = decision.basis()[2]
            assert scores is not None, decision.why
            best = [boards[scores.candidates[at]].name for at in scores.finalists.tolist()]
            assert chosen in best, f"{path}: {decision.scores()}"
            several += len(best) > 1
            placed = replace(asked, node_name=chosen)
            seen = seen.with_placement(placed, seen.table.index[chosen])
            unstated.put(placed)
    assert several < COUNT / 2  # else it would say little
    assert (seen.placed_in_run > 0).all()
