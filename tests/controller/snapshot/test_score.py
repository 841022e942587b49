import json
from random import Random
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.options import build
from leadline_controller.snapshot.score import start_scoring, to_document
from leadline_controller.snapshot.snapshot import read_snapshot
from leadline_controller.strategies import STRATEGIES


def document(nodes: list[dict[str, Any]], pods: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "leadline.dev/v1",
        "kind": "ClusterSnapshot",
        "nodes": nodes,
        "pods": [
            {
                "metadata": {"name": name},
                "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
            }
            for name in pods
        ],
    }


def place(name: str, data: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    scoring = start_scoring(
        read_snapshot(data), Rule(build(STRATEGIES[name], {}), FILTERS, Random(seed))
    )
    return {**scoring.head, "decisions": [*map(to_document, scoring.decisions)], **scoring.tail}


SMALL = {"name": "small", "allocatable": {"cpu": "1", "memory": "1Gi"}}
LARGE = {"name": "large", "allocatable": {"cpu": "2", "memory": "1Gi"}}


def test_the_document_has_the_promised_fields() -> None:
    result = place("kube-default", document([SMALL, {**LARGE, "ready": False}], ["p1", "p2"]))
    assert result == {
        "strategy": "kube-default",
        "options": {"rounding": "exact", "spread": "least-requested"},
        "better": "higher",
        "decisions": [
            {
                "pod": "default/p1",
                "node": "small",
                "why": "100% of its CPU and 100% of its memory free",
                "rejected": {"large": ["NodeReady: the node is not ready"]},
                "scores": {
                    "small": {
                        "total": 10.0,
                        "parts": {"cpu_free_share": 1.0, "memory_free_share": 1.0},
                    }
                },
            },
            {
                "pod": "default/p2",
                "node": None,
                "why": "0 of 2 nodes fit: 1 NodeReady, 1 NodeResourcesFit",
                "rejected": {
                    "large": ["NodeReady: the node is not ready"],
                    "small": ["NodeResourcesFit: insufficient cpu: needs 1, has 0"],
                },
                "scores": {},
            },
        ],
    }


@pytest.mark.parametrize("name", STRATEGIES)
def test_unknown_is_null_or_missing_and_never_nan(name: str) -> None:
    bare = {"name": "bare", "allocatable": {"cpu": "4"}}
    result = place(name, document([SMALL, LARGE, bare], ["p1", "p2", "p3"]))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert len(result["decisions"]) == 3


def test_a_seed_repeats_every_tie() -> None:
    nodes = [{**LARGE, "name": f"n{i}"} for i in range(8)]
    pods = [f"p{i}" for i in range(8)]
    runs = [place("kube-default", document(nodes, pods), seed) for seed in (1, 1, 2)]
    chosen = [[d["node"] for d in run["decisions"]] for run in runs]
    assert chosen[0] == chosen[1] != chosen[2]


def test_each_pod_sees_the_placements_before_it() -> None:
    result = place("kube-default", document([SMALL, LARGE], ["p1", "p2", "p3", "p4"]))
    placed = [decision["node"] for decision in result["decisions"]]
    assert sorted(node for node in placed if node) == ["large", "large", "small"]
    assert placed[3] is None


def test_replicas_that_must_not_share_a_host_do_not() -> None:
    """A snapshot may omit the hostname label, because every kubelet sets it."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    data = document([SMALL, LARGE], ["p1", "p2", "p3"])
    for each in data["pods"]:
        each["metadata"]["labels"] = {"app": "web"}
        each["spec"]["affinity"] = {"podAntiAffinity": required}
        each["spec"]["containers"][0]["resources"] = {}
    data["pods"][0]["spec"]["nodeName"] = "large"
    first, second = place("kube-default", data)["decisions"]
    assert (first["node"], second["node"]) == ("small", None)
    reason = "InterPodAffinity: the pod's anti-affinity rules are not met"
    assert second["rejected"] == {"small": [reason], "large": [reason]}
