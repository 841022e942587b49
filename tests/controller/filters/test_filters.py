"""Each filter against Kubernetes' rules, as tables."""

from math import inf
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import FilterResult, Rule, decide
from leadline_controller.framework.model import CPU, MEMORY, PODS, HostPort, Node, Pod, Taint
from leadline_controller.framework.traffic import Traffic
from leadline_controller.framework.view import ClusterView
from leadline_controller.strategies.kube_default import KubeDefault
from leadline_controller.strategies.netsched import NetSched

from tests.controller.builders import GIB, node, pod, view


def reasons(result: FilterResult) -> list[str | None]:
    """Why each node is rejected, None where it passes."""
    return [None if passes else result.reason(i) for i, passes in enumerate(result.passes)]


def reasons_of(name: str, cluster: ClusterView, wanted: Pod) -> list[str | None]:
    return reasons(FILTERS[name](cluster, wanted))


def test_node_ready() -> None:
    cluster = view([node("up"), node("down", ready=False)])
    assert reasons_of("NodeReady", cluster, pod()) == [None, "the node is not ready"]


@pytest.mark.parametrize(
    ("tolerations", "reason"),
    [
        ([], "the node is cordoned"),
        ([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}], None),
        ([{"operator": "Exists"}], None),
        ([{"operator": "Exists", "effect": "NoExecute"}], "the node is cordoned"),
        ([{"key": "other", "operator": "Exists"}], "the node is cordoned"),
    ],
)
def test_node_unschedulable(tolerations: list[dict[str, str]], reason: str | None) -> None:
    cluster = view([node("open"), node("cordoned", unschedulable=True)])
    assert reasons_of("NodeUnschedulable", cluster, pod(tolerations=tolerations)) == [None, reason]


DB = Taint("dedicated", "db", "NoSchedule")
EVICT = Taint("node.kubernetes.io/not-ready", "", "NoExecute")


@pytest.mark.parametrize(
    ("taints", "tolerations", "reason"),
    [
        ((), [], None),
        ((DB,), [], "untolerated taint dedicated=db:NoSchedule"),
        ((EVICT,), [], "untolerated taint node.kubernetes.io/not-ready:NoExecute"),
        ((Taint("a", "b", "PreferNoSchedule"),), [], None),
        ((DB,), [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}], None),
        ((DB,), [{"key": "dedicated", "value": "web"}], "untolerated taint dedicated=db:NoSch"),
        ((DB,), [{"key": "dedicated", "operator": "Exists"}], None),
        ((DB, EVICT), [{"key": "dedicated", "operator": "Exists"}], "untolerated taint node.kub"),
        ((DB, EVICT), [{"operator": "Exists"}], None),
    ],
)
def test_taint_toleration(
    taints: tuple[Taint, ...], tolerations: list[dict[str, str]], reason: str | None
) -> None:
    (found,) = reasons_of(
        "TaintToleration", view([node("n", taints=taints)]), pod(tolerations=tolerations)
    )
    assert found == reason or (reason and found and found.startswith(reason))


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expressions", "matches"),
    [
        ([expression("zone", "In", "a", "b")], True),
        ([expression("zone", "In", "b")], False),
        ([expression("zone", "NotIn", "b")], True),
        ([expression("zone", "NotIn", "a")], False),
        ([expression("absent", "NotIn", "a")], True),  # a node without the label is not in
        ([expression("absent", "In", "a")], False),
        ([expression("zone", "Exists")], True),
        ([expression("absent", "Exists")], False),
        ([expression("zone", "DoesNotExist")], False),
        ([expression("absent", "DoesNotExist")], True),
        ([expression("cores", "Gt", "3")], True),
        ([expression("cores", "Gt", "4")], False),
        ([expression("cores", "Lt", "5")], True),
        ([expression("cores", "Lt", "4")], False),
        ([expression("absent", "Gt", "0")], False),
        ([expression("absent", "Lt", "9")], False),
        ([expression("zone", "Gt", "0")], False),
        ([expression("odd", "Gt", "0")], False),  # "1_0" is a label, and no integer to Kubernetes
        ([expression("cores", "Gt", "three")], False),
        ([expression("cores", "Gt")], False),
        ([expression("zone", "Exists"), expression("cores", "Gt", "3")], True),
        ([expression("zone", "Exists"), expression("cores", "Gt", "9")], False),
    ],
)
def test_node_affinity_expressions(expressions: list[dict[str, Any]], matches: bool) -> None:
    cluster = view([node("n", labels={"zone": "a", "cores": "4", "odd": "1_0"})])
    wanted = pod(affinity=required({"matchExpressions": expressions}))
    expected = None if matches else "no term of the required node affinity matches"
    assert reasons_of("NodeAffinity", cluster, wanted) == [expected]


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


@pytest.mark.parametrize(
    ("spec", "passing"),
    [
        ({}, ["n1", "n2", "n3"]),
        ({"nodeSelector": {"zone": "a"}}, ["n1", "n2"]),
        ({"nodeSelector": {"zone": "a", "disk": "ssd"}}, ["n2"]),
        # One term must match; every expression of a term must hold.
        (
            {
                "affinity": required(
                    {"matchExpressions": [expression("zone", "In", "b")]},
                    {"matchExpressions": [expression("disk", "Exists")]},
                )
            },
            ["n2", "n3"],
        ),
        (
            {
                "affinity": required(
                    {
                        "matchExpressions": [expression("zone", "In", "a")],
                        "matchFields": [expression("metadata.name", "NotIn", "n1")],
                    }
                )
            },
            ["n2"],
        ),
        (
            {"affinity": required({"matchFields": [expression("metadata.name", "In", "n3")]})},
            ["n3"],
        ),
        # A term without expressions matches nothing, and so does a list without terms.
        ({"affinity": required({})}, []),
        ({"affinity": required()}, []),
        # The selector and the affinity must both hold.
        (
            {
                "nodeSelector": {"zone": "a"},
                "affinity": required({"matchExpressions": [expression("disk", "Exists")]}),
            },
            ["n2"],
        ),
    ],
)
def test_node_affinity_terms(spec: dict[str, Any], passing: list[str]) -> None:
    nodes = [
        node("n1", labels={"zone": "a"}),
        node("n2", labels={"zone": "a", "disk": "ssd"}),
        node("n3", labels={"zone": "b"}),
    ]
    found = reasons_of("NodeAffinity", view(nodes), pod(**spec))
    assert [n.name for n, why in zip(nodes, found, strict=True) if why is None] == passing


def test_node_affinity_names_the_node_selector() -> None:
    wanted = pod(nodeSelector={"zone": "a", "disk": "ssd"})
    assert reasons_of("NodeAffinity", view([node("n")]), wanted) == [
        "the nodeSelector wants disk=ssd, zone=a"
    ]


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ((), None),
        ((HostPort("0.0.0.0", "TCP", 80),), "host port 80/TCP is taken"),
        ((HostPort("10.0.0.9", "TCP", 80),), "host port 80/TCP is taken"),
        ((HostPort("0.0.0.0", "UDP", 80),), None),
        ((HostPort("0.0.0.0", "TCP", 81),), None),
        (
            (HostPort("0.0.0.0", "TCP", 81), HostPort("0.0.0.0", "TCP", 80)),
            "host port 80/TCP is taken",
        ),
    ],
)
def test_node_ports(held: tuple[HostPort, ...], reason: str | None) -> None:
    cluster = view([node("free"), node("n")], ports={1: held})
    ports = [{"containerPort": 8080, "hostPort": 80}]
    wanted = pod(containers=[{"name": "c", "ports": ports}])
    assert reasons_of("NodePorts", cluster, wanted) == [None, reason]


GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("fits", "requests", "requested", "reason"),
    [
        (node("n", cores=4), {"cpu": "4"}, {}, None),
        (node("n", cores=4), {"cpu": "4001m"}, {}, "insufficient cpu: needs 4.001, has 4"),
        (node("n", cores=4), {"cpu": "4"}, {CPU: [2000]}, "insufficient cpu: needs 4, has 2"),
        (node("n", gib=8), {"memory": "5Gi"}, {MEMORY: [3 * GIB]}, None),
        (
            node("n", gib=8),
            {"memory": "5Gi"},
            {MEMORY: [5 * GIB]},
            "insufficient memory: needs 5Gi, has 3Gi",
        ),
        (
            node("n", cores=1, gib=1),
            {"cpu": "2", "memory": "2Gi"},
            {},
            "insufficient cpu: needs 2, has 1; insufficient memory: needs 2Gi, has 1Gi",
        ),
        (node("n", pods=3), {}, {PODS: [2]}, None),
        (node("n", pods=3), {}, {PODS: [3]}, "insufficient pods: needs 1, has 0"),
        (node("n"), {GPU: "1"}, {}, f"insufficient {GPU}: needs 1, has 0"),
        (node("n", extended={GPU: 2}), {GPU: "1"}, {GPU: [1]}, None),
        (
            node("n", extended={GPU: 2}),
            {GPU: "2"},
            {GPU: [1]},
            f"insufficient {GPU}: needs 2, has 1",
        ),
        # A zero request also fits an overcommitted node.
        (node("n", cores=1), {"memory": "1Gi"}, {CPU: [5000]}, None),
        (node("n", cores=1), {"cpu": "0"}, {CPU: [5000]}, None),
    ],
)
def test_node_resources_fit(
    fits: Node, requests: dict[str, str], requested: dict[str, list[int]], reason: str | None
) -> None:
    cluster = view([fits], requested=requested)
    assert reasons_of("NodeResourcesFit", cluster, pod(requests=requests)) == [reason]


def test_a_zero_request_fits_an_overcommitted_node() -> None:
    cluster = view([node("n", cores=1)], requested={CPU: [5000]})
    assert reasons_of("NodeResourcesFit", cluster, Pod("default", "p", requests={CPU: 0})) == [None]


@pytest.mark.parametrize(
    ("wanted", "stated", "measured", "taken", "reason"),
    [
        (None, None, None, 0.0, None),
        ("0", None, None, 0.0, None),
        ("3", 8.0, None, 0.0, None),
        ("3", 8.0, None, 5.0, None),
        ("3", 8.0, None, 6.0, "insufficient bandwidth: needs 3 Mbit/s, has 2"),
        ("3", None, 4.0, 0.0, None),
        ("3", None, 2.0, 0.0, "insufficient bandwidth: needs 3 Mbit/s, has 2"),
        ("3", None, None, 0.0, "needs 3 Mbit/s, the link's bandwidth is unknown"),
    ],
)
def test_node_bandwidth_fit(
    wanted: str | None,
    stated: float | None,
    measured: float | None,
    taken: float,
    reason: str | None,
) -> None:
    cluster = view(
        [node("n", bandwidth_mbps=stated)],
        metrics={} if measured is None else {"bandwidth_mbps": [measured]},
        bandwidth_requested_mbps=[taken],
    )
    annotations = {} if wanted is None else {"bandwidth-mbps": wanted}
    assert reasons_of("NodeBandwidthFit", cluster, pod(annotations=annotations)) == [reason]


@pytest.mark.parametrize(
    ("stated", "taken", "flowing", "reason"),
    [
        (100.0, 0.0, 40.0, None),
        (100.0, 30.0, 20.0, None),
        (100.0, 0.0, 41.0, "needs 60 Mbit/s, has 59, as 41 more flow than is requested"),
        (100.0, 30.0, 41.0, "needs 60 Mbit/s, has 59, as 11 more flow than is requested"),
        (None, 0.0, 90.0, None),  # 70 are what a test got beside these
    ],
)
def test_what_flows_on_a_stated_link_counts(
    stated: float | None, taken: float, flowing: float, reason: str | None
) -> None:
    cluster = view(
        [node("n", bandwidth_mbps=stated)],
        metrics={"bandwidth_mbps": [70.0]},
        bandwidth_requested_mbps=[taken],
        traffic=Traffic(flowing_mbps={"n": flowing, "gone": 7.0}),
    )
    wanting = pod(annotations={"bandwidth-mbps": "60"})
    expected = None if reason is None else f"insufficient bandwidth: {reason}"
    assert reasons_of("NodeBandwidthFit", cluster, wanting) == [expected]
    possible = FILTERS["NodeBandwidthFit"](cluster, wanting).passes_with_preemption
    assert possible.tolist() == [True]


@pytest.mark.parametrize(
    ("wanted", "most", "stated", "taken", "reason", "caveat"),
    [
        ("90", 1000.0, None, 0.0, None, ""),
        ("150", 1000.0, None, 0.0, None, "at least 94.12 Mbit/s is known"),
        ("90", 1000.0, None, 50.0, None, "at least 94.12 Mbit/s is known"),
        ("150", inf, None, 0.0, None, "at least 94.12 Mbit/s is known"),
        (
            "950",
            1000.0,
            None,
            100.0,
            "insufficient bandwidth: needs 950 Mbit/s, has at most 900 "
            "(at least 94.12 Mbit/s is known)",
            None,
        ),
        ("95", 94.123, None, 0.0, "insufficient bandwidth: needs 95 Mbit/s, has 94.123", None),
        ("60", 1000.0, 50.0, 0.0, "insufficient bandwidth: needs 60 Mbit/s, has 50", None),
    ],
)
def test_a_lower_bound_of_the_bandwidth_refuses_no_pod(
    wanted: str, most: float, stated: float | None, taken: float, reason: str, caveat: str | None
) -> None:
    cluster = view(
        [node("n", bandwidth_mbps=stated)],
        metrics={"bandwidth_mbps": [94.123]},
        bandwidth_most_mbps=[most],
        bandwidth_requested_mbps=[taken],
    )
    wanting = pod(annotations={"bandwidth-mbps": wanted})
    result = FILTERS["NodeBandwidthFit"](cluster, wanting)
    assert reasons(result) == [reason]
    decision = decide(cluster, wanting, Rule(KubeDefault(), FILTERS))
    if caveat is None:
        assert decision.node is None
    else:
        assert result.caveat is not None
        assert result.caveat(0) == caveat
        assert decision.why.endswith(f"; {caveat}" if caveat else "free")


def test_a_decision_says_that_the_bandwidth_that_it_is_for_is_host_limited() -> None:
    cluster = view(
        [node("busy"), node("stated", bandwidth_mbps=90.0)],
        metrics={"bandwidth_mbps": [94.0, 80.0]},
        bandwidth_most_mbps=[1000.0, 1000.0],
        bandwidth_host_limited=[True, True],
    )
    assert cluster.bandwidth_host_limited().tolist() == [True, False]
    chosen = decide(cluster, pod(), Rule(NetSched(), FILTERS))
    assert chosen.node == "busy"
    assert chosen.why.endswith("; its bandwidth is at least 94 Mbit/s (the board was busy)")
    assert "busy" not in decide(cluster, pod(), Rule(KubeDefault(), FILTERS)).why
    wanting = pod(annotations={"bandwidth-mbps": "95"})
    caveat = FILTERS["NodeBandwidthFit"](cluster, wanting).caveat
    assert caveat is not None
    assert caveat(0) == "at least 94 Mbit/s is known, the board was busy"


def test_a_view_without_measurements_has_no_host_limited_bandwidth() -> None:
    assert view([node("n")]).bandwidth_host_limited().tolist() == [False]
