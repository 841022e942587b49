"""Builders and the comparison that the tests of the oracle share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kube.objects import Object, node, pod
from tests.kube.oracle import Oracle, fitting, refusals

ZONE = "topology.kubernetes.io/zone"
WEB = {"matchLabels": {"app": "web"}}

ExpectedPods = Mapping[str, set[str]]


def check(oracle: Oracle, expected: ExpectedPods, **case: Any) -> None:
    """Compare the plugins that reject each node with the expected ones."""
    verdicts = oracle.verdicts(case)
    assert refusals(verdicts) == expected
    assert fitting(verdicts) == {name for name, plugins in expected.items() if not plugins}


def resident(name: str, node_name: str, **rest: Any) -> Object:
    """Return a pod on a node; `rest` as for `objects.pod`."""
    return pod(name, nodeName=node_name, **rest)


def container(name: str, cpu: str, **rest: Any) -> Object:
    """Return a container; `rest` holds further fields by their Kubernetes names."""
    return {"name": name, "image": "test", "resources": {"requests": {"cpu": cpu}}, **rest}


def in_zones(*zones: str) -> list[Object]:
    """Return nodes n1, n2 and so on, in these zones."""
    return [node(f"n{i}", labels={ZONE: zone}) for i, zone in enumerate(zones, start=1)]
