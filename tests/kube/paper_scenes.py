"""The scenarios of the DACS paper as nodes and pods of a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline_experiments.dacs.simulation import MASTER, POD_CPU_MILLI, POD_MIB, Scenario

from tests.kube.objects import pod
from tests.kube.volume_bench import NAME, Bench

PODS = "/api/v1/namespaces/default/pods"


def add_cluster(bench: Bench, scenario: Scenario) -> dict[str, str]:
    """Add the scenario's nodes and pods; returns the paper's name of a node -> its name."""
    labels = {"runs": bench.name, "leadline.dev/bandwidth-mbps": "1000"}
    taint = {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}
    names = {MASTER: bench.node(MASTER, cpu="2", memory="8Gi", labels=labels, taints=[taint])}
    for each in scenario.workers:
        cores, memory = each.allocatable["cpu"], each.allocatable["memory"]
        made = bench.node(each.name, cpu=f"{cores}m", memory=f"{memory}", labels=labels)
        names[each.name] = made
    for number, user in enumerate(scenario.users, start=1):
        annotations = {
            "leadline.dev/user-node": names[user],
            "leadline.dev/data-mb": "1",
            "leadline.dev/bandwidth-mbps": f"{scenario.pod_mbps:g}",
        }
        bench.add(PODS, a_pod(f"{bench.name}-{number}", bench.name, annotations))
    return names


def a_pod(name: str, cluster: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    made = pod(
        name,
        f"{POD_CPU_MILLI}m",
        f"{POD_MIB}Mi",
        scheduler=NAME,
        labels={"app": cluster},
        annotations=annotations,
        node_selector={"runs": cluster},
    )
    made["spec"]["containers"][0]["resources"]["limits"] = {"memory": f"{POD_MIB}Mi"}
    return made
