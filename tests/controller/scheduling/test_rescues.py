"""For each filter a pod that fits nowhere, and the event after which it has a place."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import (
    READ_WRITE_ONCE_POD,
    Claim,
    ClusterObject,
    CsiDriver,
    CsiNode,
    NamespaceLabels,
    PodSelector,
    StorageCapacity,
    StorageClass,
)
from leadline_controller.framework.model import (
    ClaimUse,
    DeclaredPeer,
    Node,
    Pod,
    PodAnnotations,
    Taint,
)
from leadline_controller.framework.ports import ClusterError, NotFoundError, UnavailableError

from tests.controller.scheduling.actions import (
    BACKED_OFF_S,
    DISK,
    HOST,
    PORT,
    TAINT,
    ZONE,
    Action,
    bound_claim,
    change_node,
    change_pod,
    delete_pod,
    label_in,
    measure_bandwidth,
    put_object,
    spread,
    term,
    two_nodes,
    volume,
)
from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod


@dataclass(frozen=True)
class RetryCase:
    """A pod that fits nowhere in this cluster, and an action after which it fits a node."""

    unschedulable_pod: Pod
    action: Action
    nodes: list[Node] = field(default_factory=two_nodes)
    pods: tuple[Pod, ...] = ()
    objects: tuple[ClusterObject, ...] = ()
    expected_node: str = "n1"


def _tainted(*taints: Taint) -> list[Node]:
    return two_nodes(taints=taints)


def _on(name: str, **fields: Any) -> tuple[Pod, ...]:
    """A pod like this on each node."""
    return tuple(pod(f"{name}-{n}", node_name=n, **fields) for n in ("n1", "n2"))


MADE = StorageClass("made", "csi.test", waits=True)
LOOSE = Claim("default", "c", "uid-c", "made", size_bytes=Fraction(2**30))
SOLE_LEADER = bound_claim(access_modes=frozenset({READ_WRITE_ONCE_POD}))
AT_N1 = ((label_in(HOST, "n1"),),)
WEB = {"app": "web"}
ANYWHERE = spread(ZONE, honor_affinity=False)
CLAIMING = pod("p", claims=(ClaimUse("c"),))
OF_TEAM = term("web", namespaces=frozenset(), namespace_selector=(label_in("team", "a"),))
NEAR_DB = replace(
    pod("p"), annotations=PodAnnotations(peers=(DeclaredPeer("db", most_rtt_ms=5.0),))
)
CASES: dict[str, RetryCase] = {
    "NodeReady: ready": RetryCase(pod("p"), change_node(ready=True), two_nodes(ready=False)),
    "NodeUnschedulable: uncordoned": RetryCase(
        pod("p"), change_node(unschedulable=False), two_nodes(unschedulable=True)
    ),
    "TaintToleration: taint lifted": RetryCase(pod("p"), change_node(taints=()), _tainted(TAINT)),
    "TaintToleration: node added": RetryCase(
        pod("p"), lambda s: s.cluster.put_node(node("n3")), _tainted(TAINT), expected_node="n3"
    ),
    "NodeAffinity: label": RetryCase(
        pod("p", node_selector={"x": "y"}), change_node(labels={HOST: "n1", "x": "y"})
    ),
    "NodePorts: pod gone": RetryCase(
        pod("p", host_ports=(PORT,)), delete_pod("w-n1"), pods=_on("w", host_ports=(PORT,))
    ),
    "NodeResourcesFit: pod gone": RetryCase(
        pod("p", cpu=3000), delete_pod("w-n1"), pods=_on("w", cpu=3000)
    ),
    "NodeResourcesFit: pod finished": RetryCase(
        pod("p", cpu=3000), change_pod("w-n1", finished=True), pods=_on("w", cpu=3000)
    ),
    "NodeResourcesFit: pod resized": RetryCase(
        pod("p", cpu=3000),
        change_pod("w-n1", requests=pod("w", cpu=10).requests),
        pods=_on("w", cpu=3000),
    ),
    "NodeResourcesFit: the pod itself resized": RetryCase(
        pod("p", cpu=9000), change_pod("p", requests=pod("p", cpu=100).requests), two_nodes()[:1]
    ),
    "NodeResourcesFit: node grew": RetryCase(
        pod("p", cpu=9000), change_node(allocatable=node("n1", cpu=9000).allocatable)
    ),
    "PeerRoundTrip: peer gone": RetryCase(
        NEAR_DB,
        delete_pod("db-n2"),
        [node("n1"), node("n2", unschedulable=True)],
        _on("db", labels=WEB)[1:],
        (PodSelector("Service", "default", "db", (label_in("app", "web"),)),),
    ),
    "NodeDeclaredFeatures: declared": RetryCase(
        pod("p", features=("F",)), change_node(features=frozenset({"F"}))
    ),
    "VolumeRestrictions: disk free": RetryCase(
        pod("p", disks=(DISK,)), delete_pod("w-n1"), pods=_on("w", disks=(DISK,))
    ),
    "VolumeRestrictions: claim free": RetryCase(
        CLAIMING,
        delete_pod("w"),
        two_nodes()[:1],
        pods=(pod("w", node_name="n1", claims=(ClaimUse("c"),)),),
        objects=(MADE, SOLE_LEADER, volume()),
    ),
    "NodeVolumeLimits: pod gone": RetryCase(
        CLAIMING,
        delete_pod("w"),
        two_nodes()[:1],
        pods=(pod("w", node_name="n1", claims=(ClaimUse("d"),)),),
        objects=(
            *(MADE, bound_claim(), volume(), CsiNode("n1", {"csi.test": 1})),
            replace(bound_claim("d"), volume="w"),
            replace(volume(handle="other", claim="default/d"), name="w"),
        ),
    ),
    "NodeVolumeLimits: limit raised": RetryCase(
        CLAIMING,
        put_object(CsiNode("n1", {"csi.test": 1})),
        two_nodes()[:1],
        objects=(MADE, bound_claim(), volume(), CsiNode("n1", {"csi.test": 0})),
    ),
    "VolumeBinding: claim bound": RetryCase(
        CLAIMING,
        put_object(bound_claim()),
        objects=(replace(LOOSE, class_name="now"), volume(affinity=AT_N1)),
    ),
    "VolumeBinding: claim made": RetryCase(
        CLAIMING, put_object(bound_claim()), objects=(volume(affinity=AT_N1),)
    ),
    "VolumeBinding: volume made": RetryCase(
        CLAIMING, put_object(volume(affinity=AT_N1)), objects=(MADE, bound_claim())
    ),
    "VolumeBinding: class made": RetryCase(
        CLAIMING,
        put_object(StorageClass("made", "csi.test", waits=True, topologies=AT_N1)),
        objects=(LOOSE,),
    ),
    "VolumeBinding: capacity": RetryCase(
        CLAIMING,
        put_object(StorageCapacity("s", "made", (label_in(HOST, "n1"),), 2**31)),
        objects=(MADE, LOOSE, CsiDriver("csi.test", tracks_capacity=True)),
    ),
    "VolumeZone: label": RetryCase(
        CLAIMING,
        change_node(labels={HOST: "n1", ZONE: "far"}),
        objects=(MADE, bound_claim(), volume(labels={ZONE: "far"})),
    ),
    "PodTopologySpread: pod gone": RetryCase(
        pod("p", labels=WEB, spread=(ANYWHERE,), node_selector={HOST: "n1"}),
        delete_pod("w"),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "PodTopologySpread: pod placed": RetryCase(
        pod("p", labels=WEB, spread=(ANYWHERE,), node_selector={HOST: "n1"}),
        lambda s: s.cluster.put_pod(pod("more", node_name="n2", labels=WEB)),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "PodTopologySpread: empty domain gone": RetryCase(
        pod("p", labels=WEB, spread=(ANYWHERE,), node_selector={HOST: "n1"}),
        lambda s: s.cluster.remove_node("n2"),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "PodTopologySpread: empty domain tainted": RetryCase(
        pod(
            "p",
            labels=WEB,
            spread=(replace(ANYWHERE, honor_taints=True),),
            node_selector={HOST: "n1"},
        ),
        lambda s: s.cluster.put_node(replace(s.cluster.nodes[1], taints=(TAINT,))),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "InterPodAffinity: pod placed": RetryCase(
        pod("p", affinity=(term("web"),)),
        lambda s: s.cluster.put_pod(pod("w", node_name="n1", labels=WEB)),
    ),
    "InterPodAffinity: pod labelled": RetryCase(
        pod("p", affinity=(term("web"),)), change_pod("w-n1", labels=WEB), pods=_on("w")
    ),
    "InterPodAffinity: pod gone": RetryCase(
        pod("p", anti_affinity=(term("web"),)), delete_pod("w-n1"), pods=_on("w", labels=WEB)
    ),
    "InterPodAffinity: averse resident gone": RetryCase(
        pod("p", labels=WEB), delete_pod("w-n1"), pods=_on("w", anti_affinity=(term("web"),))
    ),
    "InterPodAffinity: averse resident's node gone": RetryCase(
        pod("p", labels=WEB),
        lambda s: s.cluster.remove_node("n2"),
        [replace(each, labels={ZONE: "one"}) for each in two_nodes()],
        pods=(pod("w", node_name="n2", anti_affinity=(term("web", ZONE),)),),
    ),
    "InterPodAffinity: namespace labelled": RetryCase(
        pod("p", affinity=(OF_TEAM,)),
        put_object(NamespaceLabels("blue", {"team": "a"})),
        pods=(replace(pod("w", node_name="n1", labels=WEB), namespace="blue"),),
        objects=(NamespaceLabels("blue", {}),),
    ),
    "InterPodAffinity: own namespace labelled": RetryCase(
        pod("p", labels=WEB),
        put_object(NamespaceLabels("default", {"team": "b"})),
        two_nodes()[:1],
        pods=_on("w", anti_affinity=(OF_TEAM,)),
        objects=(NamespaceLabels("default", {"team": "a"}),),
    ),
    "NodeBandwidthFit: link stated": RetryCase(
        pod("p", annotations=PodAnnotations(bandwidth_mbps=50.0)), change_node(bandwidth_mbps=60.0)
    ),
    "NodeBandwidthFit: link measure_bandwidth": RetryCase(
        pod("p", annotations=PodAnnotations(bandwidth_mbps=50.0)),
        lambda s: measure_bandwidth(s, 60.0),
        [replace(two_nodes()[0]), replace(two_nodes()[1], unschedulable=True)],
    ),
    "NodeBandwidthFit: pod gone": RetryCase(
        pod("p", annotations=PodAnnotations(bandwidth_mbps=50.0)),
        delete_pod("w-n1"),
        two_nodes(bandwidth_mbps=60.0),
        pods=_on("w", annotations=PodAnnotations(bandwidth_mbps=20.0)),
    ),
    "NodeBandwidthFit: another asks for less": RetryCase(
        pod("p", annotations=PodAnnotations(bandwidth_mbps=50.0)),
        change_pod("w-n1", annotations=PodAnnotations(bandwidth_mbps=5.0)),
        two_nodes(bandwidth_mbps=60.0),
        pods=_on("w", annotations=PodAnnotations(bandwidth_mbps=20.0)),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_retried_pod_is_bound_to_the_expected_node(name: str) -> None:
    case = CASES[name]
    cluster = CountingCluster(case.nodes, [*case.pods, case.unschedulable_pod])
    for each in case.objects:
        cluster.put_object(each)
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(BACKED_OFF_S)
        before = harness.decisions.get("default/p")
        assert before is not None
        assert (before.node, before.decided_s) == (None, 0.0)
        assert name.partition(":")[0] in before.why
        case.action(harness)
        await harness.clock.advance(2)
        after = harness.decisions.get("default/p")
        assert after is not None
        assert after.node == case.expected_node


def test_every_filter_has_a_case_here() -> None:
    assert {name.partition(":")[0] for name in CASES} == set(FILTERS)


# Resources that a failed binding frees.


@pytest.mark.parametrize("error", [NotFoundError("404: gone"), UnavailableError("503")])
async def test_a_failed_binding_frees_its_resources_for_unschedulable_pods(
    error: ClusterError,
) -> None:
    harness = SchedulerHarness(CountingCluster([node("n1", cpu=1000)], [pod("first", cpu=900)]))
    harness.cluster.gate.clear()
    async with harness.running():
        harness.cluster.put_pod(pod("p", cpu=800))
        await harness.clock.advance(0.5)
        assert harness.outcome("p") == "pending"
        harness.cluster.fail_next_bind(error)
        harness.cluster.gate.set()
        await harness.clock.advance(0.5)
        assert harness.where()["p"] == "n1"


async def test_of_the_retried_pods_the_one_of_higher_priority_is_first() -> None:
    waiting = [pod(f"p{i}", cpu=800, priority=i) for i in range(3)]
    full = pod("full", cpu=900, node_name="n1")
    harness = SchedulerHarness(CountingCluster([node("n1", cpu=1000)], [full, *waiting]))
    async with harness.running():
        await harness.clock.advance(BACKED_OFF_S)
        harness.cluster.remove_pod("default/full")
        await harness.clock.advance(1)
    assert harness.where() == {"p0": None, "p1": None, "p2": "n1"}
