"""The oracle's own verdicts, on cases small enough to know the answer from the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.kube.objects import Object, node, pod
from tests.kube.oracle import Oracle, OracleError, Verdicts, fitting

pytestmark = pytest.mark.cluster

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


def resident(name: str, node_name: str, **rest: Any) -> Object:
    return pod(name, nodeName=node_name, **rest)


def container(name: str, cpu: str, **rest: Any) -> Object:
    return {"name": name, "image": "test", "resources": {"requests": {"cpu": cpu}}, **rest}


def refusing(verdicts: Verdicts, node_name: str) -> set[str]:
    return {plugin for plugin, reason in verdicts[node_name].items() if reason is not None}


def requiring(*terms: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def node_affinity(key: str, operator: str, *values: str) -> Object:
    wanted = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def spread(**rest: Any) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": WEB,
        **rest,
    }


def in_zones(*zones: str, **rest: Any) -> list[Object]:
    """Nodes n1, n2 and so on, in these zones."""
    return [node(f"n{i}", labels={ZONE: zone}, **rest) for i, zone in enumerate(zones, start=1)]


Expected = Mapping[str, set[str]]


def check(oracle: Oracle, expected: Expected, **case: Any) -> None:
    """Hold the refusing plugins of each node against the expected ones."""
    verdicts = oracle.verdicts(case)
    assert {name: refusing(verdicts, name) for name in verdicts} == expected
    assert fitting(verdicts) == {name for name, plugins in expected.items() if not plugins}


def test_an_empty_pod_fits_everywhere_and_every_plugin_was_asked(oracle: Oracle) -> None:
    verdicts = oracle.verdicts({"nodes": [node("n1"), node("n2")], "pod": pod("p")})
    assert fitting(verdicts) == {"n1", "n2"}
    assert set(verdicts["n1"]) == {
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeName",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "SchedulingGates",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }


def test_unschedulable_and_taints(oracle: Oracle) -> None:
    taint = {"key": "dedicated", "value": "radio", "effect": "NoSchedule"}
    soft = {"key": "slow", "effect": "PreferNoSchedule"}
    nodes = [node("n1", unschedulable=True), node("n2", taints=[taint]), node("n3", taints=[soft])]
    expected: dict[str, set[str]] = {"n1": {"NodeUnschedulable"}, "n2": set(), "n3": set()}
    tolerates = [{"key": "dedicated", "operator": "Exists"}]
    check(oracle, expected, nodes=nodes, pod=pod("p", tolerations=tolerates))
    expected["n2"] = {"TaintToleration"}
    check(oracle, expected, nodes=nodes, pod=pod("p"))


def test_scheduling_gates_close_every_node(oracle: Oracle) -> None:
    gated = pod("p", schedulingGates=[{"name": "example.com/wait"}])
    expected = {"n1": {"SchedulingGates"}, "n2": {"SchedulingGates"}}
    check(oracle, expected, nodes=[node("n1"), node("n2")], pod=gated)


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("Gt", ["4"], {"n8"}),
        ("Lt", ["8"], {"n4"}),
        ("In", ["4", "5"], {"n4"}),
        ("NotIn", ["4"], {"n8", "none"}),
        ("Exists", [], {"n4", "n8"}),
        ("DoesNotExist", [], {"none"}),
    ],
)
def test_node_affinity(
    oracle: Oracle, operator: str, values: Sequence[str], fits: set[str]
) -> None:
    nodes = [node("n4", labels={"cores": "4"}), node("n8", labels={"cores": "8"}), node("none")]
    wanting = pod("p", affinity=node_affinity("cores", operator, *values))
    expected = {n: set() if n in fits else {"NodeAffinity"} for n in ("n4", "n8", "none")}
    check(oracle, expected, nodes=nodes, pod=wanting)


def test_a_node_picked_by_name_leaves_no_other(oracle: Oracle) -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    affinity = {"nodeAffinity": requiring_nodes({"matchFields": [field]})}
    expected: Expected = {"n1": {"NodeAffinity"}, "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pod=pod("p", affinity=affinity))


def requiring_nodes(*terms: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def port(number: int, host_ip: str | None = None, protocol: str | None = None) -> Object:
    given = {"hostIP": host_ip, "protocol": protocol}
    ports = {"containerPort": number, "hostPort": number, **{k: v for k, v in given.items() if v}}
    return container("main", "1m", ports=[ports])


@pytest.mark.parametrize(
    ("taken", "wanted", "conflict"),
    [
        (port(80), port(80), True),
        (port(80), port(81), False),
        (port(80), port(80, protocol="UDP"), False),
        (port(80, "127.0.0.1"), port(80, "127.0.0.2"), False),
        (port(80, "127.0.0.1"), port(80), True),
        (port(80, "0.0.0.0"), port(80, "127.0.0.1"), True),
    ],
)
def test_host_ports(oracle: Oracle, taken: Object, wanted: Object, conflict: bool) -> None:
    there = resident("r", "n1", containers=[taken])
    expected = {"n1": {"NodePorts"} if conflict else set(), "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pods=[there], pod=pod("p", containers=[wanted]))


@pytest.mark.parametrize(
    ("asking", "cpu"),
    [
        (pod("p", cpu="2"), 2),
        (pod("p", containers=[container("a", "1"), container("b", "1")]), 2),
        (pod("p", initContainers=[container("i", "3")], containers=[container("a", "1")]), 3),
        # A sidecar adds to the containers, and to the init containers after it.
        (
            pod(
                "p",
                initContainers=[
                    container("side", "1", restartPolicy="Always"),
                    container("i", "3"),
                ],
                containers=[container("a", "2")],
            ),
            4,
        ),
        (pod("p", cpu="2", overhead={"cpu": "1"}, runtimeClassName="vm"), 3),
        # What is limited and not requested is requested.
        (
            pod("p", containers=[{**container("a", "0"), "resources": {"limits": {"cpu": "2"}}}]),
            2,
        ),
        (pod("p", resources={"requests": {"cpu": "3"}}, containers=[container("a", "1")]), 3),
    ],
)
def test_what_a_pod_asks_for(oracle: Oracle, asking: Object, cpu: int) -> None:
    nodes = [node("enough", cpu=str(cpu)), node("less", cpu=f"{cpu * 1000 - 1}m")]
    check(oracle, {"enough": set(), "less": {"NodeResourcesFit"}}, nodes=nodes, pod=asking)


def test_residents_are_charged_until_they_end(oracle: Oracle) -> None:
    ended = {**resident("r2", "n2", cpu="3"), "status": {"phase": "Succeeded"}}
    residents = [resident("r1", "n1", cpu="3"), ended]
    expected: Expected = {"n1": {"NodeResourcesFit"}, "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pods=residents, pod=pod("p", cpu="2"))


def test_a_resident_in_a_resize_is_charged_the_largest(oracle: Oracle) -> None:
    """It asks for 1 CPU from now on, but its node still allots it 3."""
    shrinking = resident("r", "n1", cpu="1")
    shrinking["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "image": "test",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": {"cpu": "3"},
                "resources": {"requests": {"cpu": "2"}},
            }
        ],
    }
    for asked, refused in (("1", False), ("2", True)):
        expected = {"n1": {"NodeResourcesFit"} if refused else set()}
        check(oracle, expected, nodes=[node("n1")], pods=[shrinking], pod=pod("p", cpu=asked))


def test_the_number_of_pods_and_extended_resources(oracle: Oracle) -> None:
    with_gpu = node("gpu")
    with_gpu["status"]["allocatable"] = {**with_gpu["status"]["allocatable"], "example.com/gpu": 1}
    gpu = {"limits": {"example.com/gpu": 1}}
    wanting = pod("p", containers=[{"name": "main", "image": "test", "resources": gpu}])
    expected: Expected = {"gpu": set(), "plain": {"NodeResourcesFit"}}
    check(oracle, expected, nodes=[with_gpu, node("plain")], pod=wanting)
    full = [resident("r", "n1")]
    check(oracle, {"n1": {"NodeResourcesFit"}}, nodes=[node("n1", pods=1)], pods=full, pod=pod("p"))


def affine(kind: str, key: str, **rest: Any) -> Object:
    return {kind: requiring({"topologyKey": key, "labelSelector": WEB, **rest})}


def test_pod_affinity_follows_and_anti_affinity_flees(oracle: Oracle) -> None:
    nodes = in_zones("a", "a", "b")
    there = [resident("r", "n1", labels={"app": "web"})]
    follows: Expected = {"n1": set(), "n2": set(), "n3": {"InterPodAffinity"}}
    check(
        oracle, follows, nodes=nodes, pods=there, pod=pod("p", affinity=affine("podAffinity", ZONE))
    )
    flees: Expected = {"n1": {"InterPodAffinity"}, "n2": {"InterPodAffinity"}, "n3": set()}
    fleeing = pod("p", affinity=affine("podAntiAffinity", ZONE))
    check(oracle, flees, nodes=nodes, pods=there, pod=fleeing)


def test_the_first_of_its_kind_may_follow_itself(oracle: Oracle) -> None:
    first = pod("p", labels={"app": "web"}, affinity=affine("podAffinity", ZONE))
    check(oracle, {"n1": set(), "n2": set()}, nodes=in_zones("a", "b"), pod=first)


def test_a_residents_anti_affinity_refuses_the_whole_zone(oracle: Oracle) -> None:
    guard = resident("r", "n1", affinity=affine("podAntiAffinity", ZONE))
    case: dict[str, Any] = {"nodes": in_zones("a", "a", "b"), "pods": [guard]}
    refused: Expected = {"n1": {"InterPodAffinity"}, "n2": {"InterPodAffinity"}, "n3": set()}
    check(oracle, refused, **case, pod=pod("p", labels={"app": "web"}))
    check(oracle, {"n1": set(), "n2": set(), "n3": set()}, **case, pod=pod("p"))


def test_affinity_looks_only_at_the_namespaces_it_names(oracle: Oracle) -> None:
    elsewhere = resident("r", "n1", labels={"app": "web"})
    elsewhere["metadata"]["namespace"] = "blue"
    blue = {"metadata": {"name": "blue", "labels": {"team": "blue"}}}
    case: dict[str, Any] = {"nodes": [node("n1")], "pods": [elsewhere], "namespaces": [blue]}
    own = affine("podAntiAffinity", HOST)
    named = affine("podAntiAffinity", HOST, namespaceSelector={"matchLabels": {"team": "blue"}})
    check(oracle, {"n1": set()}, **case, pod=pod("p", affinity=own))
    check(oracle, {"n1": {"InterPodAffinity"}}, **case, pod=pod("p", affinity=named))


def test_topology_spread(oracle: Oracle) -> None:
    nodes = [*in_zones("a", "b"), node("nowhere")]
    there = [resident("r", "n1", labels={"app": "web"})]
    skewed: Expected = {
        "n1": {"PodTopologySpread"},
        "n2": set(),
        "nowhere": {"PodTopologySpread"},
    }
    asking = pod("p", labels={"app": "web"}, topologySpreadConstraints=[spread()])
    check(oracle, skewed, nodes=nodes, pods=there, pod=asking)


def test_topology_spread_wants_its_least_number_of_domains(oracle: Oracle) -> None:
    """With fewer domains than asked for, the emptiest counts as holding none."""
    there = [resident(f"r{i}", f"n{i}", labels={"app": "web"}) for i in (1, 2)]
    for domains, refused in ((2, False), (3, True)):
        plugins = {"PodTopologySpread"} if refused else set()
        asking = pod(
            "p", labels={"app": "web"}, topologySpreadConstraints=[spread(minDomains=domains)]
        )
        check(
            oracle, {"n1": plugins, "n2": plugins}, nodes=in_zones("a", "b"), pods=there, pod=asking
        )


def test_topology_spread_counts_only_the_same_revision(oracle: Oracle) -> None:
    old = resident("r", "n1", labels={"app": "web", "revision": "1"})
    for revision, refused in (("2", False), ("1", True)):
        asking = pod(
            "p",
            labels={"app": "web", "revision": revision},
            topologySpreadConstraints=[spread(matchLabelKeys=["revision"])],
        )
        expected = {"n1": {"PodTopologySpread"} if refused else set(), "n2": set()}
        check(oracle, expected, nodes=in_zones("a", "b"), pods=[old], pod=asking)


def test_topology_spread_honours_taints_only_where_asked_to(oracle: Oracle) -> None:
    """An empty zone behind a taint is a zone to fill, unless taints are honoured."""
    taint = {"key": "dedicated", "effect": "NoSchedule"}
    nodes = [*in_zones("a"), node("n2", labels={ZONE: "b"}, taints=[taint])]
    there = [resident("r", "n1", labels={"app": "web"})]
    for policy, refused in (("Ignore", True), ("Honor", False)):
        asking = pod(
            "p",
            labels={"app": "web"},
            topologySpreadConstraints=[spread(nodeTaintsPolicy=policy)],
        )
        expected = {
            "n1": {"PodTopologySpread"} if refused else set(),
            "n2": {"TaintToleration"},
        }
        check(oracle, expected, nodes=nodes, pods=there, pod=asking)


def mounting(claim: str, name: str = "p", **rest: Any) -> Object:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return pod(name, volumes=[volume], **rest)


def claim(name: str, storage_class: str, volume: str = "", **annotations: str) -> Object:
    keys = {"selected": "volume.kubernetes.io/selected-node"}
    done = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "metadata": {
            "name": name,
            "annotations": {**{keys[key]: value for key, value in annotations.items()}, **done},
        },
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume,
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, storage_class: str, node_name: str = "", **rest: Any) -> Object:
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node_name]}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [here]}}} if node_name else {}
    return {
        "metadata": {"name": name, **rest.pop("metadata", {})},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            **({} if "csi" in rest else {"hostPath": {"path": "/data"}}),
            **affinity,
            **rest,
        },
        "status": {"phase": "Available"},
    }


def storage(name: str, provisioner: str, mode: str = "WaitForFirstConsumer", **rest: Any) -> Object:
    metadata = {"name": name}
    return {"metadata": metadata, "provisioner": provisioner, "volumeBindingMode": mode, **rest}


NONE = "kubernetes.io/no-provisioner"


def test_a_bound_volumes_node_affinity(oracle: Oracle) -> None:
    bound = volume(
        "v1", "", "n2", claimRef={"namespace": "default", "name": "c1", "uid": "claim-1"}
    )
    asking = claim("c1", "", "v1")
    asking["metadata"]["uid"] = "claim-1"
    expected: Expected = {"n1": {"VolumeBinding"}, "n2": set()}
    nodes = [node("n1"), node("n2")]
    check(oracle, expected, nodes=nodes, pvcs=[asking], pvs=[bound], pod=mounting("c1"))


def test_a_claim_that_waits_for_its_consumer_needs_a_volume_there(oracle: Oracle) -> None:
    case: dict[str, Any] = {
        "nodes": [node("n1"), node("n2")],
        "storageClasses": [storage("local", NONE)],
        "pvs": [volume("v1", "local", "n2")],
        "pod": mounting("c1"),
    }
    check(oracle, {"n1": {"VolumeBinding"}, "n2": set()}, **case, pvcs=[claim("c1", "local")])


def test_a_claim_that_waits_can_be_provisioned_where_its_class_allows(oracle: Oracle) -> None:
    topology = [{"matchLabelExpressions": [{"key": HOST, "values": ["n2"]}]}]
    case: dict[str, Any] = {"nodes": [node("n1"), node("n2")], "pod": mounting("c1")}
    anywhere = storage("path", "rancher.io/local-path")
    somewhere = storage("path", "rancher.io/local-path", allowedTopologies=topology)
    waiting = [claim("c1", "path")]
    check(oracle, {"n1": set(), "n2": set()}, **case, pvcs=waiting, storageClasses=[anywhere])
    expected: Expected = {"n1": {"VolumeBinding"}, "n2": set()}
    check(oracle, expected, **case, pvcs=waiting, storageClasses=[somewhere])


def test_a_claim_whose_node_is_selected_goes_nowhere_else(oracle: Oracle) -> None:
    check(
        oracle,
        {"n1": {"VolumeBinding"}, "n2": set()},
        nodes=[node("n1"), node("n2")],
        storageClasses=[storage("path", "rancher.io/local-path")],
        pvcs=[claim("c1", "path", selected="n2")],
        pod=mounting("c1"),
    )


def test_an_immediate_claim_without_a_volume_and_a_missing_claim(oracle: Oracle) -> None:
    case: dict[str, Any] = {
        "nodes": [node("n1")],
        "storageClasses": [storage("fast", "example.com/disk", "Immediate")],
        "pvcs": [claim("c1", "fast")],
    }
    for name in ("c1", "c2"):
        verdicts = oracle.verdicts({**case, "pod": mounting(name)})
        assert "VolumeBinding" in refusing(verdicts, "n1")


def test_a_volume_in_a_zone(oracle: Oracle) -> None:
    zoned = volume(
        "v1",
        "",
        metadata={"labels": {ZONE: "a"}},
        claimRef={"namespace": "default", "name": "c1", "uid": "claim-1"},
    )
    asking = claim("c1", "", "v1")
    asking["metadata"]["uid"] = "claim-1"
    expected: Expected = {"n1": set(), "n2": {"VolumeZone"}}
    check(
        oracle, expected, nodes=in_zones("a", "b"), pvcs=[asking], pvs=[zoned], pod=mounting("c1")
    )


def test_a_claim_for_one_pod_only(oracle: Oracle) -> None:
    """Not even on the node where that pod is."""
    bound = volume("v1", "", accessModes=["ReadWriteOncePod"])
    bound["spec"]["claimRef"] = {"namespace": "default", "name": "c1", "uid": "claim-1"}
    asking = claim("c1", "", "v1")
    asking["metadata"]["uid"] = "claim-1"
    asking["spec"]["accessModes"] = ["ReadWriteOncePod"]
    check(
        oracle,
        {"n1": {"VolumeRestrictions"}, "n2": {"VolumeRestrictions"}},
        nodes=[node("n1"), node("n2")],
        pvcs=[asking],
        pvs=[bound],
        pods=[mounting("c1", "r", nodeName="n1")],
        pod=mounting("c1"),
    )


def test_a_node_takes_only_so_many_volumes(oracle: Oracle) -> None:
    disks = [
        volume(
            f"v{i}",
            "",
            csi={"driver": "example.com", "volumeHandle": f"h{i}"},
            claimRef={"namespace": "default", "name": f"c{i}", "uid": f"claim-{i}"},
        )
        for i in (1, 2)
    ]
    claims = [claim(f"c{i}", "", f"v{i}") for i in (1, 2)]
    for i, each in enumerate(claims, start=1):
        each["metadata"]["uid"] = f"claim-{i}"
    driver = {"name": "example.com", "nodeID": "n1", "allocatable": {"count": 1}}
    check(
        oracle,
        {"n1": {"NodeVolumeLimits"}, "n2": set()},
        nodes=[node("n1"), node("n2")],
        pvcs=claims,
        pvs=disks,
        csiNodes=[
            {"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}},
            {
                "metadata": {"name": "n2"},
                "spec": {"drivers": [{**driver, "nodeID": "n2", "allocatable": {"count": 2}}]},
            },
        ],
        pods=[mounting("c1", "r", nodeName="n1")],
        pod=mounting("c2"),
    )


def test_a_case_leaves_nothing_behind_for_the_next(oracle: Oracle) -> None:
    test_a_claim_that_waits_for_its_consumer_needs_a_volume_there(oracle)
    check(oracle, {"n9": set()}, nodes=[node("n9")], pod=pod("p"))
    again = oracle.verdicts({"nodes": [node("n2")], "pod": mounting("c1")})
    assert refusing(again, "n2") >= {"VolumeBinding"}


def test_objects_are_judged_as_an_api_server_stores_them(oracle: Oracle) -> None:
    asking = pod(
        "p",
        labels={"app": "web", "revision": "1"},
        affinity=affine("podAffinity", ZONE, matchLabelKeys=["revision"]),
    )
    stored = oracle.judge({"pod": asking, "pods": [resident("r", "n1", cpu="1")]}).stored
    (term,) = stored["pod"]["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    merged = {"key": "revision", "operator": "In", "values": ["1"]}
    assert term["labelSelector"]["matchExpressions"] == [merged]
    assert stored["pods"][0]["metadata"]["namespace"] == "default"
    assert [each["metadata"]["name"] for each in stored["namespaces"]] == ["default"]


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"nodes": []}, 'no "pod"'),
        ({"knots": []}, 'no "knots"'),
        ({"pod": pod("p", colour="red")}, "colour"),
        ({"pod": pod("Not a name")}, "metadata.name"),
        ({"pod": resident("p", "n1")}, "on a node already"),
        ({"pod": pod("p"), "nodes": [{"metadata": 7}]}, r"nodes\[0\]"),
        ({"pod": pod("p"), "nodes": {}}, "nodes"),
    ],
)
def test_a_case_that_cannot_be_is_refused(
    oracle: Oracle, case: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(OracleError, match=complaint):
        oracle.verdicts(case)
