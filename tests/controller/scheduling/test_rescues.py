"""For each filter a pod that fits nowhere, and the event after which it has a place."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.demands import ClaimUse
from leadline_controller.framework.model import Node, Pod, PodAnnotations, Taint
from leadline_controller.framework.ports import ClusterError, NotFoundError, UnavailableError
from leadline_controller.framework.resources import (
    READ_WRITE_ONCE_POD,
    Claim,
    CsiDriver,
    CsiNode,
    NamespaceLabels,
    Resource,
    StorageCapacity,
    StorageClass,
)

from tests.controller.scheduling.actions import (
    BACKED_OFF_S,
    DISK,
    HOST,
    PORT,
    TAINT,
    ZONE,
    Deed,
    bound,
    gone,
    hosts,
    measured,
    selecting,
    spread,
    term,
    the_node,
    the_pod,
    there,
    volume,
)
from tests.controller.scheduling.harness import CountingCluster, Stage, node, pod


@dataclass(frozen=True)
class Rescue:
    """A pod that fits nowhere in this cluster, and what helps it. lands: where it goes then."""

    wanting: Pod
    deed: Deed
    nodes: list[Node] = field(default_factory=hosts)
    pods: tuple[Pod, ...] = ()
    resources: tuple[Resource, ...] = ()
    lands: str = "n1"


def _tainted(*taints: Taint) -> list[Node]:
    return hosts(taints=taints)


def _on(name: str, **fields: Any) -> tuple[Pod, ...]:
    """A pod like this on each node."""
    return tuple(pod(f"{name}-{n}", node_name=n, **fields) for n in ("n1", "n2"))


MADE = StorageClass("made", "csi.test", waits=True)
LOOSE = Claim("default", "c", "uid-c", "made", size_bytes=Fraction(2**30))
SOLE_LEADER = bound(access_modes=frozenset({READ_WRITE_ONCE_POD}))
AT_N1 = ((selecting(HOST, "n1"),),)
WEB = {"app": "web"}
ANYWHERE = spread(ZONE, honor_affinity=False)
CLAIMING = pod("p", claims=(ClaimUse("c"),))
OF_TEAM = term("web", namespaces=frozenset(), namespace_selector=(selecting("team", "a"),))
RESCUES: dict[str, Rescue] = {
    "NodeReady: ready": Rescue(pod("p"), the_node(ready=True), hosts(ready=False)),
    "NodeUnschedulable: uncordoned": Rescue(
        pod("p"), the_node(unschedulable=False), hosts(unschedulable=True)
    ),
    "TaintToleration: taint lifted": Rescue(pod("p"), the_node(taints=()), _tainted(TAINT)),
    "TaintToleration: node added": Rescue(
        pod("p"), lambda s: s.cluster.put_node(node("n3")), _tainted(TAINT), lands="n3"
    ),
    "NodeAffinity: label": Rescue(
        pod("p", node_selector={"x": "y"}), the_node(labels={HOST: "n1", "x": "y"})
    ),
    "NodePorts: pod gone": Rescue(
        pod("p", host_ports=(PORT,)), gone("w-n1"), pods=_on("w", host_ports=(PORT,))
    ),
    "NodeResourcesFit: pod gone": Rescue(pod("p", cpu=3000), gone("w-n1"), pods=_on("w", cpu=3000)),
    "NodeResourcesFit: pod finished": Rescue(
        pod("p", cpu=3000), the_pod("w-n1", finished=True), pods=_on("w", cpu=3000)
    ),
    "NodeResourcesFit: pod resized": Rescue(
        pod("p", cpu=3000),
        the_pod("w-n1", requests=pod("w", cpu=10).requests),
        pods=_on("w", cpu=3000),
    ),
    "NodeResourcesFit: the pod itself resized": Rescue(
        pod("p", cpu=9000), the_pod("p", requests=pod("p", cpu=100).requests), hosts()[:1]
    ),
    "NodeResourcesFit: node grew": Rescue(
        pod("p", cpu=9000), the_node(allocatable=node("n1", cpu=9000).allocatable)
    ),
    "NodeDeclaredFeatures: declared": Rescue(
        pod("p", features=("F",)), the_node(features=frozenset({"F"}))
    ),
    "VolumeRestrictions: disk free": Rescue(
        pod("p", disks=(DISK,)), gone("w-n1"), pods=_on("w", disks=(DISK,))
    ),
    "VolumeRestrictions: claim free": Rescue(
        CLAIMING,
        gone("w"),
        hosts()[:1],
        pods=(pod("w", node_name="n1", claims=(ClaimUse("c"),)),),
        resources=(MADE, SOLE_LEADER, volume()),
    ),
    "NodeVolumeLimits: pod gone": Rescue(
        CLAIMING,
        gone("w"),
        hosts()[:1],
        pods=(pod("w", node_name="n1", claims=(ClaimUse("d"),)),),
        resources=(
            *(MADE, bound(), volume(), CsiNode("n1", {"csi.test": 1})),
            replace(bound("d"), volume="w"),
            replace(volume(handle="other", claim="default/d"), name="w"),
        ),
    ),
    "NodeVolumeLimits: limit raised": Rescue(
        CLAIMING,
        there(CsiNode("n1", {"csi.test": 1})),
        hosts()[:1],
        resources=(MADE, bound(), volume(), CsiNode("n1", {"csi.test": 0})),
    ),
    "VolumeBinding: claim bound": Rescue(
        CLAIMING,
        there(bound()),
        resources=(replace(LOOSE, class_name="now"), volume(affinity=AT_N1)),
    ),
    "VolumeBinding: claim made": Rescue(
        CLAIMING, there(bound()), resources=(volume(affinity=AT_N1),)
    ),
    "VolumeBinding: volume made": Rescue(
        CLAIMING, there(volume(affinity=AT_N1)), resources=(MADE, bound())
    ),
    "VolumeBinding: class made": Rescue(
        CLAIMING,
        there(StorageClass("made", "csi.test", waits=True, topologies=AT_N1)),
        resources=(LOOSE,),
    ),
    "VolumeBinding: capacity": Rescue(
        CLAIMING,
        there(StorageCapacity("s", "made", (selecting(HOST, "n1"),), 2**31)),
        resources=(MADE, LOOSE, CsiDriver("csi.test", tracks_capacity=True)),
    ),
    "VolumeZone: label": Rescue(
        CLAIMING,
        the_node(labels={HOST: "n1", ZONE: "far"}),
        resources=(MADE, bound(), volume(labels={ZONE: "far"})),
    ),
    "PodTopologySpread: pod gone": Rescue(
        pod("p", labels=WEB, spread=(ANYWHERE,), node_selector={HOST: "n1"}),
        gone("w"),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "PodTopologySpread: pod placed": Rescue(
        pod(
            "p",
            labels=WEB,
            spread=(ANYWHERE,),
            node_selector={HOST: "n1"},
        ),
        lambda s: s.cluster.put_pod(pod("more", node_name="n2", labels=WEB)),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "PodTopologySpread: empty domain gone": Rescue(
        pod(
            "p",
            labels=WEB,
            spread=(ANYWHERE,),
            node_selector={HOST: "n1"},
        ),
        lambda s: s.cluster.remove_node("n2"),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "PodTopologySpread: empty domain tainted": Rescue(
        pod(
            "p",
            labels=WEB,
            spread=(replace(ANYWHERE, honor_taints=True),),
            node_selector={HOST: "n1"},
        ),
        lambda s: s.cluster.put_node(replace(s.cluster.nodes[1], taints=(TAINT,))),
        pods=(pod("w", node_name="n1", labels=WEB),),
    ),
    "InterPodAffinity: pod placed": Rescue(
        pod("p", affinity=(term("web"),)),
        lambda s: s.cluster.put_pod(pod("w", node_name="n1", labels=WEB)),
    ),
    "InterPodAffinity: pod labelled": Rescue(
        pod("p", affinity=(term("web"),)), the_pod("w-n1", labels=WEB), pods=_on("w")
    ),
    "InterPodAffinity: pod gone": Rescue(
        pod("p", anti_affinity=(term("web"),)), gone("w-n1"), pods=_on("w", labels=WEB)
    ),
    "InterPodAffinity: averse resident gone": Rescue(
        pod("p", labels=WEB), gone("w-n1"), pods=_on("w", anti_affinity=(term("web"),))
    ),
    "InterPodAffinity: averse resident's node gone": Rescue(
        pod("p", labels=WEB),
        lambda s: s.cluster.remove_node("n2"),
        [replace(each, labels={ZONE: "one"}) for each in hosts()],
        pods=(pod("w", node_name="n2", anti_affinity=(term("web", ZONE),)),),
    ),
    "InterPodAffinity: namespace labelled": Rescue(
        pod("p", affinity=(OF_TEAM,)),
        there(NamespaceLabels("blue", {"team": "a"})),
        pods=(replace(pod("w", node_name="n1", labels=WEB), namespace="blue"),),
        resources=(NamespaceLabels("blue", {}),),
    ),
    "InterPodAffinity: own namespace labelled": Rescue(
        pod("p", labels=WEB),
        there(NamespaceLabels("default", {"team": "b"})),
        hosts()[:1],
        pods=_on("w", anti_affinity=(OF_TEAM,)),
        resources=(NamespaceLabels("default", {"team": "a"}),),
    ),
    "NodeBandwidthFit: link stated": Rescue(
        pod("p", hints=PodAnnotations(bandwidth_mbps=50.0)), the_node(bandwidth_mbps=60.0)
    ),
    "NodeBandwidthFit: link measured": Rescue(
        pod("p", hints=PodAnnotations(bandwidth_mbps=50.0)),
        lambda s: measured(s, 60.0),
        [replace(hosts()[0]), replace(hosts()[1], unschedulable=True)],
    ),
    "NodeBandwidthFit: pod gone": Rescue(
        pod("p", hints=PodAnnotations(bandwidth_mbps=50.0)),
        gone("w-n1"),
        hosts(bandwidth_mbps=60.0),
        pods=_on("w", hints=PodAnnotations(bandwidth_mbps=20.0)),
    ),
    "NodeBandwidthFit: another asks for less": Rescue(
        pod("p", hints=PodAnnotations(bandwidth_mbps=50.0)),
        the_pod("w-n1", hints=PodAnnotations(bandwidth_mbps=5.0)),
        hosts(bandwidth_mbps=60.0),
        pods=_on("w", hints=PodAnnotations(bandwidth_mbps=20.0)),
    ),
}


@pytest.mark.parametrize("name", RESCUES)
async def test_a_retried_pod_is_bound_to_the_expected_node(name: str) -> None:
    rescue = RESCUES[name]
    cluster = CountingCluster(rescue.nodes, [*rescue.pods, rescue.wanting])
    for resource in rescue.resources:
        cluster.put_resource(resource)
    stage = Stage(cluster)
    async with stage.running():
        await stage.clock.advance(BACKED_OFF_S)
        before = stage.decisions.get("default/p")
        assert before is not None
        assert (before.node, before.decided_s) == (None, 0.0)
        assert name.partition(":")[0] in before.why
        rescue.deed(stage)
        await stage.clock.advance(2)
        after = stage.decisions.get("default/p")
        assert after is not None
        assert after.node == rescue.lands


def test_every_filter_has_a_case_here() -> None:
    assert {name.partition(":")[0] for name in RESCUES} == set(FILTERS)


# Room that a binding gives back.


@pytest.mark.parametrize("error", [NotFoundError("404: gone"), UnavailableError("503")])
async def test_a_failed_binding_frees_its_resources_for_unschedulable_pods(
    error: ClusterError,
) -> None:
    stage = Stage(CountingCluster([node("n1", cpu=1000)], [pod("first", cpu=900)]))
    stage.cluster.gate.clear()
    async with stage.running():
        stage.cluster.put_pod(pod("p", cpu=800))
        await stage.clock.advance(0.5)
        assert stage.outcome("p") == "pending"
        stage.cluster.fail_next_bind(error)
        stage.cluster.gate.set()
        await stage.clock.advance(0.5)
        assert stage.where()["p"] == "n1"


async def test_of_the_retried_pods_the_one_of_higher_priority_is_first() -> None:
    waiting = [pod(f"p{i}", cpu=800, priority=i) for i in range(3)]
    full = pod("full", cpu=900, node_name="n1")
    stage = Stage(CountingCluster([node("n1", cpu=1000)], [full, *waiting]))
    async with stage.running():
        await stage.clock.advance(BACKED_OFF_S)
        stage.cluster.remove_pod("default/full")
        await stage.clock.advance(1)
    assert stage.where() == {"p0": None, "p1": None, "p2": "n1"}
