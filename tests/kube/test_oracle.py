"""The oracle takes what an API server takes, and gives back what it stores; what its plugins say,
the generated cases of test_predicates, test_scores and test_preemption_choice compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube.objects import node, pod
from tests.kube.oracle import Oracle, OracleError, refusals
from tests.kube.volumes import bound, mounting

pytestmark = pytest.mark.cluster


def test_objects_get_the_api_servers_defaults(oracle: Oracle) -> None:
    web = {"matchLabels": {"app": "web"}}
    near = {"topologyKey": "zone", "labelSelector": web, "matchLabelKeys": ["revision"]}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    asking = pod("p", labels={"app": "web", "revision": "1"}, affinity=affinity)
    resident = pod("r", cpu="1", nodeName="n1")
    stored = oracle.judge({"pod": asking, "pods": [resident]}).stored
    (term,) = stored["pod"]["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    merged = {"key": "revision", "operator": "In", "values": ["1"]}
    assert term["labelSelector"]["matchExpressions"] == [merged]
    assert stored["pods"][0]["metadata"]["namespace"] == "default"
    assert [each["metadata"]["name"] for each in stored["namespaces"]] == ["default"]


def test_a_case_does_not_affect_the_next_one(oracle: Oracle) -> None:
    claim, volume = bound("c1", node_name="n2")
    case = {"nodes": [node("n1"), node("n2")], "pod": mounting("c1")}
    before = oracle.verdicts({**case, "pvcs": [claim], "pvs": [volume]})
    assert oracle.verdicts({"nodes": [node("n9")], "pod": pod("p")}).keys() == {"n9"}
    after = oracle.verdicts(case)
    assert refusals(before) == {"n1": {"VolumeBinding"}, "n2": set()}
    assert "VolumeBinding" in refusals(after)["n2"]


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"nodes": []}, 'no "pod"'),
        ({"knots": []}, 'no "knots"'),
        ({"pod": pod("p", colour="red")}, "colour"),
        ({"pod": pod("Not a name")}, "metadata.name"),
        ({"pod": pod("p", nodeName="n1")}, "on a node already"),
        ({"pod": pod("p"), "nodes": [{"metadata": 7}]}, r"nodes\[0\]"),
        ({"pod": pod("p"), "nodes": {}}, "nodes"),
    ],
)
def test_an_impossible_case_is_rejected(
    oracle: Oracle, case: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(OracleError, match=complaint):
        oracle.verdicts(case)
