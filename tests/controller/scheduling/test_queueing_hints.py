"""Queueing hints: for each filter, which actions make the scheduler retry a pod that it refused."""

from dataclasses import replace
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cluster_objects import (
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
from leadline_controller.framework.model import CPU, ClaimUse, DeclaredPeer, PodAnnotations

from tests.controller.scheduling.actions import (
    BACKED_OFF_S,
    DISK,
    HOST,
    OTHER_TAINT,
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

# Each filter alone, on nodes that never pass.

NEVER = spread("absent")
TOO_FAR = DeclaredPeer("node/n1", most_rtt_ms=-1.0)
DEMANDS: dict[str, dict[str, Any]] = {
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
    "NodeBandwidthFit": {"annotations": PodAnnotations(bandwidth_mbps=1000.0)},
    "PeerRoundTrip": {"annotations": PodAnnotations(peers=(TOO_FAR,))},
}
ON_OTHER_NODE = ((label_in(HOST, "elsewhere"),),)


def refused_by(name: str, more: dict[str, Any] | None = None) -> SchedulerHarness:
    """Two nodes that the filter `name`, the only one, refuses."""
    nodes = [
        replace(each, ready=False, unschedulable=True, taints=(TAINT,), bandwidth_mbps=100.0)
        for each in two_nodes(cpu=1000)
    ]
    full = [
        pod(f"full-{n.name}", node_name=n.name, host_ports=(PORT,), disks=(DISK,)) for n in nodes
    ]
    others = [
        pod("plain", node_name="n1"),
        pod("porter", node_name="n1", host_ports=(replace(PORT, port=81),)),
        pod("mounter", node_name="n1", claims=(ClaimUse("other"),)),
        pod("talker", node_name="n1", annotations=PodAnnotations(bandwidth_mbps=1.0)),
    ]
    unschedulable_pod = pod("p", **{**DEMANDS[name], **(more or {})})
    cluster = CountingCluster(nodes, [*full, *others, unschedulable_pod])
    for each in (
        bound_claim(),
        volume(affinity=ON_OTHER_NODE, labels={ZONE: "elsewhere"}),
        CsiNode("n1", {"csi.test": 0}),
        CsiNode("n2", {"csi.test": 0}),
    ):
        cluster.put_object(each)
    return SchedulerHarness(cluster, filters={name: FILTERS[name]})


ACTIONS: dict[str, Action] = {
    "node added": lambda harness: harness.cluster.put_node(
        node("n3", cpu=1, ready=False, unschedulable=True, taints=(TAINT,))
    ),
    "node gone": lambda harness: harness.cluster.remove_node("n2"),
    "ready": change_node(ready=True),
    "cordon lifted": change_node(unschedulable=False),
    "taint lifted": change_node(taints=()),
    "taint added": change_node(taints=(TAINT, OTHER_TAINT)),
    "label": change_node(labels={HOST: "n1", ZONE: "n1", "x": "y"}),
    "feature": change_node(features=frozenset({"G"})),
    "more of a node": change_node(allocatable={CPU: 1001}),
    "less of a node": change_node(allocatable={CPU: 999}),
    "link stated": change_node(bandwidth_mbps=101.0),
    "link measure_bandwidth": lambda harness: measure_bandwidth(harness, 50.0),
    "image pulled": change_node(image_layers=frozenset({"sha256:a"})),
    "pod pending": lambda harness: harness.cluster.put_pod(pod("new", scheduler_name="other")),
    "pod placed": lambda harness: harness.cluster.put_pod(pod("new", node_name="n1")),
    "plain pod gone": delete_pod("plain"),
    "plain pod finished": change_pod("plain", finished=True),
    "pod with a port gone": delete_pod("porter"),
    "pod with a claim gone": delete_pod("mounter"),
    "pod with a bandwidth gone": delete_pod("talker"),
    "pod resized down": change_pod("plain", requests={CPU: 1}),
    "pod resized up": change_pod("plain", requests=pod("plain", cpu=501).requests),
    "pod labelled": change_pod("plain", labels={"x": "y"}),
    "pod going": change_pod("plain", terminating=True),
    "pod asks for less bandwidth": change_pod("talker", annotations=PodAnnotations()),
    "namespace": put_object(NamespaceLabels("blue", {"team": "a"})),
    "claim": put_object(Claim("default", "more")),
    "volume": put_object(Volume("more")),
    "class": put_object(StorageClass("more", "test")),
    "limit": put_object(CsiNode("n3", {})),
    "driver": put_object(CsiDriver("more")),
    "capacity": put_object(StorageCapacity("default/more", "made", None, None)),
    "attachment": put_object(Attachment("more", "n3", "csi.test", "w")),
}
POD_GONE_ACTIONS = {
    *("plain pod gone", "plain pod finished", "pod with a port gone", "pod with a claim gone"),
    "pod with a bandwidth gone",
}
NEIGHBOUR_ACTIONS = {
    *POD_GONE_ACTIONS,
    "pod placed",
    "pod labelled",
    "pod going",
    "node gone",
    "label",
    "node added",
}
STORAGE_ACTIONS = {"claim", "volume", "class", "limit", "driver", "capacity", "attachment"}
RETRIED_BY: dict[str, set[str]] = {
    "NodeReady": {"node added", "ready"},
    "NodeUnschedulable": {"node added", "cordon lifted"},
    "TaintToleration": {"node added", "taint lifted"},
    "NodeAffinity": {"node added", "label"},
    "NodePorts": {"node added", "pod with a port gone"},
    "NodeResourcesFit": {"node added", "more of a node", "pod resized down", *POD_GONE_ACTIONS},
    "NodeDeclaredFeatures": {"node added", "feature"},
    "VolumeRestrictions": {"node added", "pod with a claim gone"},
    "NodeVolumeLimits": {"node added", "pod with a claim gone", *STORAGE_ACTIONS},
    "VolumeBinding": {"node added", "label", "pod with a claim gone", *STORAGE_ACTIONS},
    "VolumeZone": {"node added", "label", "claim", "volume"},
    "PodTopologySpread": NEIGHBOUR_ACTIONS,
    "InterPodAffinity": {*NEIGHBOUR_ACTIONS, "namespace"},
    "NodeBandwidthFit": {
        *("node added", "link stated", "link measure_bandwidth", "pod asks for less bandwidth"),
        "pod with a bandwidth gone",
    },
    "PeerRoundTrip": NEIGHBOUR_ACTIONS - {"label"},
}


async def is_retried(harness: SchedulerHarness, action: Action) -> bool:
    """Whether the action makes the scheduler retry the pod, whose back-off is over."""
    async with harness.running():
        await harness.clock.advance(BACKED_OFF_S)
        before = harness.decisions.get("default/p")
        assert before is not None
        assert before.node is None
        action(harness)
        await harness.clock.advance(BACKED_OFF_S)
        after = harness.decisions.get("default/p")
        assert after is not None
        return after.decided_s > before.decided_s


def test_every_filter_has_its_events_and_demands_here() -> None:
    assert set(RETRIED_BY) == set(DEMANDS) == set(FILTERS)
    assert set().union(*RETRIED_BY.values()) <= set(ACTIONS)


@pytest.mark.parametrize("name", FILTERS)
async def test_only_the_events_of_its_filter_retry_a_pod(name: str) -> None:
    retried = {key for key, act in ACTIONS.items() if await is_retried(refused_by(name), act)}
    assert retried == RETRIED_BY[name]


@pytest.mark.parametrize("action", ["taint added", "taint lifted"])
async def test_taint_events_retry_a_spread_that_honours_taints(action: str) -> None:
    honouring = {"spread": (replace(NEVER, honor_taints=True),)}
    assert await is_retried(refused_by("PodTopologySpread", honouring), ACTIONS[action])


@pytest.mark.parametrize(
    ("action", "retries"),
    [
        *((action, True) for action in ("claim", "volume", "class")),
        *((action, False) for action in ("node added", "label", "limit", "plain pod gone")),
    ],
)
async def test_a_missing_claim_waits_for_storage_events_only(action: str, retries: bool) -> None:
    missing = {"claims": (ClaimUse("missing"),)}
    assert await is_retried(refused_by("VolumeBinding", missing), ACTIONS[action]) is retries


async def test_a_pod_refused_by_several_filters_is_retried_for_each() -> None:
    both = {name: FILTERS[name] for name in ("NodeUnschedulable", "NodeResourcesFit")}
    for name, retries in (("cordon lifted", True), ("more of a node", True), ("label", False)):
        harness = refused_by("NodeResourcesFit")
        harness.step.rule = replace(harness.step.rule, filters=both)
        assert await is_retried(harness, ACTIONS[name]) is retries


async def test_storage_that_becomes_readable_retries_pods_with_claims() -> None:
    harness = refused_by("VolumeBinding")
    hidden = Unreadable("PersistentVolume", "403")
    harness.cluster.put_object(hidden)
    assert await is_retried(harness, lambda s: s.cluster.remove_object(hidden))


async def test_an_unreadable_pod_waits_only_for_its_own_change() -> None:
    for name, action in ACTIONS.items():
        unreadable = refused_by("NodeReady", {"problem": "spec.x: what is it?"})
        assert not await is_retried(unreadable, action), name
