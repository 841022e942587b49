"""What makes the scheduler ask again for a pod that fits nowhere: for each filter, what can turn
its verdict, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.demands import ClaimUse
from leadline_controller.framework.model import CPU, PodAnnotations
from leadline_controller.framework.resources import (
    Attachment,
    Claim,
    CsiDriver,
    CsiNode,
    NamespaceLabels,
    StorageCapacity,
    StorageClass,
    Unreadable,
    Volume,
)

from tests.controller.scheduling.actions import (
    BACKED_OFF_S,
    DISK,
    HOST,
    OTHER_TAINT,
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

# Each filter alone, on nodes that never pass: which of all that can happen makes it ask again.

NEVER = spread("absent")
WISHES: dict[str, dict[str, Any]] = {
    "NodeReady": {},
    "NodeUnschedulable": {},
    "TaintToleration": {},
    "NodeAffinity": {"node_selector": {"disk": "nvme"}},
    "NodePorts": {"host_ports": (PORT,)},
    "NodeResourcesFit": {"cpu": 90_000},
    "NodeDeclaredFeatures": {"features": ("F",)},
    "VolumeRestrictions": {"disks": (DISK,)},
    "NodeVolumeLimits": {"claims": (ClaimUse("c"),)},
    "VolumeBinding": {"claims": (ClaimUse("c"),)},
    "VolumeZone": {"claims": (ClaimUse("c"),)},
    "PodTopologySpread": {"spread": (NEVER,)},
    "InterPodAffinity": {"affinity": (term("nobody"),)},
    "NodeBandwidthFit": {"hints": PodAnnotations(bandwidth_mbps=1000.0)},
}
ELSEWHERE = ((selecting(HOST, "elsewhere"),),)


def refusing(name: str, more: dict[str, Any] | None = None) -> Stage:
    """Two nodes that the filter `name` refuses; it is the only one."""
    nodes = [
        replace(each, ready=False, unschedulable=True, taints=(TAINT,), bandwidth_mbps=100.0)
        for each in hosts(cpu=1000)
    ]
    full = [
        pod(f"full-{n.name}", node_name=n.name, host_ports=(PORT,), disks=(DISK,)) for n in nodes
    ]
    others = [
        pod("plain", node_name="n1"),
        pod("porter", node_name="n1", host_ports=(replace(PORT, port=81),)),
        pod("mounter", node_name="n1", claims=(ClaimUse("other"),)),
        pod("talker", node_name="n1", hints=PodAnnotations(bandwidth_mbps=1.0)),
    ]
    wanting = pod("p", **{**WISHES[name], **(more or {})})
    cluster = CountingCluster(nodes, [*full, *others, wanting])
    for resource in (
        bound(),
        volume(affinity=ELSEWHERE, labels={ZONE: "elsewhere"}),
        CsiNode("n1", {"csi.test": 0}),
        CsiNode("n2", {"csi.test": 0}),
    ):
        cluster.put_resource(resource)
    return Stage(cluster, filters={name: FILTERS[name]})


HAPPENINGS: dict[str, Deed] = {
    "node added": lambda stage: stage.cluster.put_node(
        node("n3", cpu=1, ready=False, unschedulable=True, taints=(TAINT,))
    ),
    "node gone": lambda stage: stage.cluster.remove_node("n2"),
    "ready": the_node(ready=True),
    "cordon lifted": the_node(unschedulable=False),
    "taint lifted": the_node(taints=()),
    "taint added": the_node(taints=(TAINT, OTHER_TAINT)),
    "label": the_node(labels={HOST: "n1", ZONE: "n1", "x": "y"}),
    "feature": the_node(features=frozenset({"G"})),
    "more of a node": the_node(allocatable={CPU: 1001}),
    "less of a node": the_node(allocatable={CPU: 999}),
    "link stated": the_node(bandwidth_mbps=101.0),
    "link measured": lambda stage: measured(stage, 50.0),
    "image pulled": the_node(image_layers=frozenset({"sha256:a"})),
    "pod pending": lambda stage: stage.cluster.put_pod(pod("new", scheduler_name="other")),
    "pod placed": lambda stage: stage.cluster.put_pod(pod("new", node_name="n1")),
    "plain pod gone": gone("plain"),
    "plain pod finished": the_pod("plain", finished=True),
    "pod with a port gone": gone("porter"),
    "pod with a claim gone": gone("mounter"),
    "pod with a bandwidth gone": gone("talker"),
    "pod resized down": the_pod("plain", requests={CPU: 1}),
    "pod resized up": the_pod("plain", requests=pod("plain", cpu=501).requests),
    "pod labelled": the_pod("plain", labels={"x": "y"}),
    "pod going": the_pod("plain", terminating=True),
    "pod asks for less bandwidth": the_pod("talker", hints=PodAnnotations()),
    "namespace": there(NamespaceLabels("blue", {"team": "a"})),
    "claim": there(Claim("default", "more")),
    "volume": there(Volume("more")),
    "class": there(StorageClass("more", "test")),
    "limit": there(CsiNode("n3", {})),
    "driver": there(CsiDriver("more")),
    "capacity": there(StorageCapacity("default/more", "made", None, None)),
    "attachment": there(Attachment("more", "n3", "csi.test", "w")),
}
LEAVING = {
    *("plain pod gone", "plain pod finished", "pod with a port gone", "pod with a claim gone"),
    "pod with a bandwidth gone",
}
COMPANY = {*LEAVING, "pod placed", "pod labelled", "pod going", "node gone", "label", "node added"}
STORES = {"claim", "volume", "class", "limit", "driver", "capacity", "attachment"}
WAKES: dict[str, set[str]] = {
    "NodeReady": {"node added", "ready"},
    "NodeUnschedulable": {"node added", "cordon lifted"},
    "TaintToleration": {"node added", "taint lifted"},
    "NodeAffinity": {"node added", "label"},
    "NodePorts": {"node added", "pod with a port gone"},
    "NodeResourcesFit": {"node added", "more of a node", "pod resized down", *LEAVING},
    "NodeDeclaredFeatures": {"node added", "feature"},
    "VolumeRestrictions": {"node added", "pod with a claim gone"},
    "NodeVolumeLimits": {"node added", "pod with a claim gone", *STORES},
    "VolumeBinding": {"node added", "label", "pod with a claim gone", *STORES},
    "VolumeZone": {"node added", "label", "claim", "volume"},
    "PodTopologySpread": COMPANY,
    "InterPodAffinity": {*COMPANY, "namespace"},
    "NodeBandwidthFit": {
        *("node added", "link stated", "link measured", "pod asks for less bandwidth"),
        "pod with a bandwidth gone",
    },
}


async def asked_again(stage: Stage, deed: Deed) -> bool:
    """Whether the pod is tried again soon, having waited out its back-off before."""
    async with stage.running():
        await stage.clock.advance(BACKED_OFF_S)
        before = stage.decisions.get("default/p")
        assert before is not None
        assert before.node is None
        deed(stage)
        await stage.clock.advance(BACKED_OFF_S)
        after = stage.decisions.get("default/p")
        assert after is not None
        return after.decided_s > before.decided_s


def test_every_filter_has_its_events_and_demands_here() -> None:
    assert set(WAKES) == set(WISHES) == set(FILTERS)
    assert set().union(*WAKES.values()) <= set(HAPPENINGS)


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("name", FILTERS)
async def test_only_the_events_of_its_filter_retry_a_pod(name: str, happening: str) -> None:
    woken = await asked_again(refusing(name), HAPPENINGS[happening])
    assert woken == (happening in WAKES[name])


@pytest.mark.parametrize("happening", ["taint added", "taint lifted"])
async def test_taint_events_retry_a_spread_that_honours_taints(happening: str) -> None:
    honouring = {"spread": (replace(NEVER, honor_taints=True),)}
    assert await asked_again(refusing("PodTopologySpread", honouring), HAPPENINGS[happening])


@pytest.mark.parametrize("happening", ["claim", "volume", "class"])
async def test_a_missing_claim_waits_for_storage_events(happening: str) -> None:
    missing = {"claims": (ClaimUse("missing"),)}
    assert await asked_again(refusing("VolumeBinding", missing), HAPPENINGS[happening])


@pytest.mark.parametrize("happening", ["node added", "label", "limit", "plain pod gone"])
async def test_a_missing_claim_ignores_node_events(happening: str) -> None:
    missing = {"claims": (ClaimUse("missing"),)}
    assert not await asked_again(refusing("VolumeBinding", missing), HAPPENINGS[happening])


async def test_a_pod_refused_by_several_filters_is_retried_for_each() -> None:
    both = {name: FILTERS[name] for name in ("NodeUnschedulable", "NodeResourcesFit")}
    for happening, wakes in (("cordon lifted", True), ("more of a node", True), ("label", False)):
        stage = refusing("NodeResourcesFit")
        stage.scheduler._step._profile = replace(stage.placing, filters=both)
        assert await asked_again(stage, HAPPENINGS[happening]) is wakes


async def test_storage_that_becomes_readable_retries_pods_with_claims() -> None:
    stage = refusing("VolumeBinding")
    hidden = Unreadable("PersistentVolume", "403")
    stage.cluster.put_resource(hidden)
    assert await asked_again(stage, lambda s: s.cluster.remove_resource(hidden))


async def test_an_unreadable_pod_waits_only_for_its_own_change() -> None:
    for happening, deed in HAPPENINGS.items():
        unread = refusing("NodeReady", {"problem": "spec.x: what is it?"})
        assert not await asked_again(unread, deed), happening


async def test_a_pod_with_an_unknown_user_node_waits_for_node_events() -> None:
    for happening, wakes in (("node added", True), ("label", False), ("plain pod gone", False)):
        stage = refusing("NodeReady", {"hints": PodAnnotations(user_node="n3")})
        assert await asked_again(stage, HAPPENINGS[happening]) is wakes
