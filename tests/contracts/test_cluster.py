"""The contract of the Cluster port, for each implementation.

The real API server sets the standard; the cluster in memory must answer the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count

import pytest
from leadline_controller.framework.cluster_objects import (
    Claim,
    DisruptionBudget,
    Volume,
    VolumePlan,
)
from leadline_controller.framework.model import ContainerResources, Node, Owner, Pod, Taint
from leadline_controller.framework.ports import (
    BudgetError,
    ConflictError,
    Event,
    InvalidError,
    NodeChanged,
    NodeDeleted,
    NotFoundError,
    ObjectChanged,
    ObjectDeleted,
    PodChanged,
    PodDeleted,
    Relisted,
    StorageChangedError,
)
from leadline_controller.kube.cluster import KubeCluster
from leadline_controller.kubeobjects.manifest import DELETION_COST

from tests.contracts.harnesses import (
    ClusterHarness,
    KubeHarness,
    MemoryHarness,
    Watched,
    WrittenEvent,
)
from tests.kube.api import Api
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import condition, node, pod
from tests.kube.volumes import SELECTED_NODE, claim, volume

CLAIM, VOLUME = "PersistentVolumeClaim", "PersistentVolume"
GATES = [{"name": "leadline.dev/test"}]
_numbers: Iterator[int] = count(1)


@pytest.fixture(
    params=["sim", pytest.param("kube", marks=[pytest.mark.cluster, pytest.mark.smoke])]
)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[ClusterHarness]:
    if request.param == "sim":
        yield MemoryHarness()
        return
    plane: ControlPlane = request.getfixturevalue("plane")
    async with KubeCluster.connect(plane.kubeconfig) as cluster:
        real = KubeHarness(cluster, Api(plane.kubeconfig))
        try:
            yield real
        finally:
            real.clean()


@pytest.fixture
async def watch(harness: ClusterHarness) -> AsyncIterator[Callable[[], Watched]]:
    """Opens watches and closes them after the test."""
    async with AsyncExitStack() as opened:

        def open_watch() -> Watched:
            changes = harness.cluster.watch()
            opened.push_async_callback(changes.aclose)
            return Watched(changes)

        yield open_watch


@pytest.fixture
def name() -> str:
    """A name that no other test uses: they share one API server."""
    return f"contract-{next(_numbers)}"


def of(wanted: Pod) -> Callable[[PodChanged | PodDeleted], bool]:
    return lambda change: change.pod.uid == wanted.uid


def bound_to(wanted: Pod, node_name: str) -> Callable[[PodChanged], bool]:
    return lambda change: change.pod.uid == wanted.uid and change.pod.node_name == node_name


async def test_a_watch_begins_with_a_list(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name, cpu="2", labels={"leadline.dev/tier": "edge"}))
    made = harness.add_pod(pod(name, cpu="500m"))

    first = await watch().next()

    assert isinstance(first, Relisted)
    listed_node = next(n for n in first.nodes if n.name == name)
    assert (listed_node.allocatable["cpu"], listed_node.tier, listed_node.ready) == (
        2000,
        "edge",
        True,
    )
    listed_pod = next(p for p in first.pods if p.uid == made.uid)
    assert (listed_pod.name, listed_pod.requests["cpu"], listed_pod.node_name) == (name, 500, None)


async def test_a_new_node_and_a_new_pod_are_seen(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    watched = watch()
    await watched.until(Relisted)

    harness.add_node(node(name))
    await watched.until(NodeChanged, lambda change: change.node.name == name)
    made = harness.add_pod(pod(name, labels={"app": "web"}))
    seen = (await watched.until(PodChanged, of(made))).pod

    assert (seen.key, dict(seen.labels)) == (f"default/{name}", {"app": "web"})
    assert seen.scheduler_name == "leadline"


async def test_a_binding_is_seen_by_every_watch(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    made = harness.add_pod(pod(name))
    watches = [watch(), watch()]
    for watched in watches:
        await watched.until(Relisted)

    await harness.cluster.bind(made, name)

    for watched in watches:
        assert (await watched.until(PodChanged, bound_to(made, name))).pod.key == made.key


async def test_an_annotation_is_seen_and_the_others_stay(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    annotations = {"leadline.dev/response-time-ms": "80"}
    made = harness.add_pod(pod(name, annotations=annotations))
    watched = watch()
    await watched.until(Relisted)

    await harness.cluster.annotate(made, {DELETION_COST: "-5"})

    seen = await watched.until(PodChanged, lambda change: change.pod.deletion_cost is not None)
    assert (seen.pod.uid, seen.pod.deletion_cost) == (made.uid, -5)
    assert seen.pod.annotations.response_time_ms == 80
    await harness.cluster.annotate(made, {DELETION_COST: None})
    seen = await watched.until(PodChanged, lambda change: change.pod.deletion_cost is None)
    assert seen.pod.annotations.response_time_ms == 80


async def test_only_exactly_this_pod_is_annotated(harness: ClusterHarness, name: str) -> None:
    made = harness.add_pod(pod(name))
    with pytest.raises(ConflictError):
        await harness.cluster.annotate(replace(made, uid="another"), {DELETION_COST: "1"})
    harness.remove_pod(made)
    with pytest.raises(NotFoundError):
        await harness.cluster.annotate(made, {DELETION_COST: "1"})


async def test_a_bound_pod_stays_where_it_is(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    for node_name in (f"{name}-a", f"{name}-b"):
        harness.add_node(node(node_name))
    made = harness.add_pod(pod(name))
    await harness.cluster.bind(made, f"{name}-a")

    with pytest.raises(ConflictError, match=f"{name}-a"):
        await harness.cluster.bind(made, f"{name}-b")

    listed = await watch().until(Relisted)
    assert {p.node_name for p in listed.pods if p.uid == made.uid} == {f"{name}-a"}


async def test_a_pod_made_again_under_the_same_name_is_not_bound_by_mistake(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    old = harness.add_pod(pod(name))
    harness.remove_pod(old)
    new = harness.add_pod(pod(name))

    with pytest.raises(ConflictError):
        await harness.cluster.bind(old, name)

    listed = await watch().until(Relisted)
    assert [(p.uid, p.node_name) for p in listed.pods if p.name == name] == [(new.uid, None)]


async def test_a_deleted_pod_cannot_be_bound(harness: ClusterHarness, name: str) -> None:
    made = harness.add_pod(pod(name))
    harness.remove_pod(made)

    with pytest.raises(NotFoundError, match="not found"):
        await harness.cluster.bind(made, "anywhere")


async def test_a_binding_does_not_check_that_the_node_exists(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    made = harness.add_pod(pod(name))

    await harness.cluster.bind(made, f"no-{name}")

    listed = await watch().until(Relisted)
    assert {p.node_name for p in listed.pods if p.uid == made.uid} == {f"no-{name}"}


async def test_many_pods_are_bound_at_once(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    made = [harness.add_pod(pod(f"{name}-{i}")) for i in range(40)]
    watched = watch()
    await watched.until(Relisted)

    await asyncio.gather(*(harness.cluster.bind(each, name) for each in made))

    waiting = {each.uid for each in made}
    while waiting:
        change = await watched.until(PodChanged, lambda change: change.pod.node_name == name)
        waiting.discard(change.pod.uid)


async def test_a_gated_pod_is_flagged_and_not_bound(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    made = harness.add_pod(pod(name, schedulingGates=GATES))

    listed = await watch().until(Relisted)

    assert [p.gated for p in listed.pods if p.uid == made.uid] == [True]
    with pytest.raises(ConflictError, match=r"(?i)scheduling ?gates"):
        await harness.cluster.bind(made, name)


async def test_a_terminating_pod_is_flagged_and_not_bound(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    made = harness.add_pod(pod(name))
    watched = watch()
    await watched.until(Relisted)

    harness.start_to_delete(made)

    seen = await watched.until(
        PodChanged, lambda change: change.pod.uid == made.uid and change.pod.terminating
    )
    assert not seen.pod.finished
    with pytest.raises(ConflictError, match="being deleted"):
        await harness.cluster.bind(made, name)


async def test_a_finished_pod_is_a_change_and_a_removed_one_is_gone(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    made = harness.add_pod(pod(name))
    watched = watch()
    await watched.until(Relisted)

    harness.finish_pod(made)
    finished = await watched.until(
        PodChanged, lambda change: change.pod.uid == made.uid and change.pod.finished
    )
    harness.remove_pod(made)
    gone = await watched.until(PodDeleted, of(made))

    assert (finished.pod.key, gone.pod.key) == (made.key, made.key)


async def test_what_happens_to_a_node_is_seen(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    watched = watch()
    await watched.until(Relisted)
    taint = {"key": "dedicated", "value": "radio", "effect": "NoSchedule"}

    harness.change_node(name, {"spec": {"unschedulable": True, "taints": [taint]}})
    cordoned = await watched.until(
        NodeChanged, lambda change: change.node.name == name and change.node.unschedulable
    )
    harness.change_node(name, {"metadata": {"labels": {"leadline.dev/bandwidth-mbps": "100"}}})
    labelled = await watched.until(
        NodeChanged, lambda change: change.node.name == name and bool(change.node.bandwidth_mbps)
    )
    harness.change_node(name, {"status": {"conditions": [condition("Ready", holds=False)]}})
    lost = await watched.until(
        NodeChanged, lambda change: change.node.name == name and not change.node.ready
    )
    harness.remove_node(name)
    await watched.until(NodeDeleted, lambda change: change.name == name)

    # Kubernetes adds a taint of its own to a node that is cordoned.
    assert Taint("dedicated", "radio", "NoSchedule") in cordoned.node.taints
    assert labelled.node.bandwidth_mbps == 100
    assert lost.node.unschedulable


async def test_an_annotation_that_cannot_be_read_is_named(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    made = harness.add_pod(pod(name, annotations={"leadline.dev/data-mb": "a lot"}))

    listed = await watch().until(Relisted)

    (problem,) = [p.problem for p in listed.pods if p.uid == made.uid]
    assert "leadline.dev/data-mb" in str(problem)


async def test_events_are_written_on_the_pod_and_repeats_are_folded(
    harness: ClusterHarness, name: str
) -> None:
    made = harness.add_pod(pod(name))
    failed = Event("Warning", "FailedScheduling", "0/1 nodes fit: 1 has too little memory")
    unreadable = Event("Warning", "UnreadableAnnotation", "leadline.dev/data-mb: not a number")
    placed = Event("Normal", "Scheduled", f"placed on {name}")

    for event in (failed, unreadable, failed, failed, placed):
        await harness.cluster.record_event(made, event)

    assert sorted(harness.events(made), key=lambda event: event.reason) == [
        WrittenEvent("Warning", "FailedScheduling", failed.message, 3),
        WrittenEvent("Normal", "Scheduled", placed.message, 1),
        WrittenEvent("Warning", "UnreadableAnnotation", unreadable.message, 1),
    ]


async def test_an_event_to_be_told_once_is_not_counted_again(
    harness: ClusterHarness, name: str
) -> None:
    made = harness.add_pod(pod(name))
    typo = Event("Warning", "UnknownAnnotation", "leadline.dev/x means nothing", once=True)

    for _ in range(3):
        await harness.cluster.record_event(made, typo)

    assert [(each.message, each.count) for each in harness.events(made)] == [(typo.message, 1)]


async def test_events_are_written_on_nodes(harness: ClusterHarness, name: str) -> None:
    harness.add_node(node(name))
    about = Node(name, {})
    typo = Event("Warning", "UnknownAnnotation", "leadline.dev/x means nothing", once=True)

    for _ in range(2):
        await harness.cluster.record_event(about, typo)

    assert harness.events(about) == [WrittenEvent("Warning", "UnknownAnnotation", typo.message, 1)]


async def test_a_pod_of_the_same_name_has_its_own_events(
    harness: ClusterHarness, name: str
) -> None:
    event = Event("Warning", "FailedScheduling", "no node")
    old = harness.add_pod(pod(name))
    await harness.cluster.record_event(old, event)
    harness.remove_pod(old)
    new = harness.add_pod(pod(name))

    await harness.cluster.record_event(new, event)

    assert [each.count for each in harness.events(new)] == [1]


async def test_claims_and_volumes_are_listed_and_their_changes_seen(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_object(CLAIM, claim(name, "slow"))
    watched = watch()
    listed = await watched.until(Relisted)

    harness.add_object(VOLUME, volume(name, "slow"))
    await watched.until(ObjectChanged, lambda c: c.object.key == name)
    harness.remove_object(VOLUME, name)
    gone = await watched.until(ObjectDeleted, lambda c: c.object.key == name)

    assert isinstance(gone.object, Volume)
    (there,) = [r for r in listed.objects if r.key == f"default/{name}"]
    assert isinstance(there, Claim)
    assert (there.class_name, there.bound, there.selected_node) == ("slow", False, None)


async def test_a_plan_is_written_to_claims_and_volumes_and_a_second_time_changes_nothing(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    for suffix in ("bound", "made"):
        harness.add_object(CLAIM, claim(f"{name}-{suffix}", "slow"))
    harness.add_object(VOLUME, volume(name, "slow"))
    plan = VolumePlan("n", ((name, f"default/{name}-bound"),), (f"default/{name}-made",))
    await harness.cluster.prepare(plan)
    watched = watch()
    listed = await watched.until(Relisted)

    await harness.cluster.prepare(plan)
    harness.remove_object(VOLUME, name)
    changed = []
    while not isinstance(change := await watched.next(), ObjectDeleted):
        changed.append(change)

    found = {each.key: each for each in listed.objects}
    here, there = found[f"default/{name}-bound"], found[name]
    selected = found[f"default/{name}-made"]
    assert isinstance(here, Claim)
    assert isinstance(there, Volume)
    assert isinstance(selected, Claim)
    assert (there.claim, there.claim_uid) == (here.key, here.uid)
    assert (selected.selected_node, here.selected_node) == ("n", None)
    # Removing the volume takes a patch of its finalizers, in which it is as it was.
    assert [c for c in changed if c != ObjectChanged(there)] == []


def selected_elsewhere(harness: ClusterHarness, name: str) -> VolumePlan:
    there = {"metadata": {"annotations": {SELECTED_NODE: "elsewhere"}}}
    harness.add_object(CLAIM, claim(name, "slow"))
    harness.change_object(CLAIM, name, there)
    return VolumePlan("n", selects=(f"default/{name}",))


def bound_meanwhile(harness: ClusterHarness, name: str) -> VolumePlan:
    harness.add_object(CLAIM, claim(name, "slow"))
    harness.change_object(CLAIM, name, {"spec": {"volumeName": "another"}})
    return VolumePlan("n", selects=(f"default/{name}",))


def taken_meanwhile(harness: ClusterHarness, name: str) -> VolumePlan:
    reference = {"namespace": "default", "name": "another", "uid": "another"}
    harness.add_object(CLAIM, claim(name, "slow"))
    harness.add_object(VOLUME, volume(name, "slow", claimRef=reference))
    return VolumePlan("n", ((name, f"default/{name}"),))


def claim_gone(harness: ClusterHarness, name: str) -> VolumePlan:
    return VolumePlan("n", selects=(f"default/{name}",))


def volume_gone(harness: ClusterHarness, name: str) -> VolumePlan:
    harness.add_object(CLAIM, claim(name, "slow"))
    return VolumePlan("n", ((name, f"default/{name}"),))


@pytest.mark.parametrize(
    "scenery", [selected_elsewhere, bound_meanwhile, taken_meanwhile, claim_gone, volume_gone]
)
async def test_a_plan_made_from_outdated_objects_is_a_conflict(
    harness: ClusterHarness, name: str, scenery: Callable[[ClusterHarness, str], VolumePlan]
) -> None:
    plan = scenery(harness, name)

    with pytest.raises(StorageChangedError, match=name):
        await harness.cluster.prepare(plan)


async def test_a_volume_reserved_for_a_claim_by_name_is_given_its_uid(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    reference = {"namespace": "default", "name": name}
    harness.add_object(CLAIM, claim(name, "slow"))
    harness.add_object(VOLUME, volume(name, "slow", claimRef=reference))

    await harness.cluster.prepare(VolumePlan("n", ((name, f"default/{name}"),)))

    found = {r.key: r for r in (await watch().until(Relisted)).objects}
    here, there = found[f"default/{name}"], found[name]
    assert isinstance(here, Claim)
    assert isinstance(there, Volume)
    assert there.claim_uid == here.uid


async def test_an_evicted_pod_ends(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    made = harness.add_pod(pod(name, labels={"app": name}))
    await harness.cluster.bind(made, name)
    watched = watch()
    await watched.until(Relisted)

    await harness.cluster.evict(made)

    await watched.until(PodChanged, lambda c: c.pod.uid == made.uid and c.pod.terminating)


async def test_a_preempted_pod_ends_whatever_its_budget_says(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    made = harness.add_pod(pod(name, labels={"app": name}))
    selector = {"matchLabels": {"app": name}}
    budget = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}}
    harness.add_object("PodDisruptionBudget", budget)
    await harness.cluster.bind(made, name)
    harness.make_ready(made)
    watched = watch()
    await watched.until(Relisted)

    await harness.cluster.preempt(made, "makes room")

    seen = await watched.until(PodChanged, lambda c: c.pod.uid == made.uid and c.pod.terminating)
    assert seen.pod.preempted
    other = replace(made, uid="another")
    with pytest.raises((ConflictError, NotFoundError)):
        await harness.cluster.preempt(other, "makes room")


async def test_a_nomination_is_seen_and_taken_back(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    made = harness.add_pod(pod(name))
    watched = watch()
    await watched.until(Relisted)

    for node_name in ("n1", "n2", None):
        await harness.cluster.nominate(made, node_name)
        seen = await watched.until(PodChanged, lambda c: c.pod.uid == made.uid)
        assert seen.pod.nominated_node == node_name
    with pytest.raises(ConflictError):
        await harness.cluster.nominate(replace(made, uid="another"), "n1")


async def test_a_pod_on_a_node_is_resized_in_place(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    made = harness.add_pod(pod(name, cpu="100m", memory="64Mi"))
    await harness.cluster.bind(made, name)
    watched = watch()
    await watched.until(Relisted)

    await harness.cluster.resize(made, [ContainerResources("main", {"cpu": "300m"})])

    changed = await watched.until(PodChanged, lambda c: c.pod.requests["cpu"] == 300)
    assert (changed.pod.uid, changed.pod.requests["memory"]) == (made.uid, 64 * 2**20)
    other = replace(made, uid="another")
    with pytest.raises(InvalidError):
        await harness.cluster.resize(other, [ContainerResources("main", {"cpu": "400m"})])


async def test_only_the_pod_with_this_uid_is_evicted(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    old = harness.add_pod(pod(name))
    harness.remove_pod(old)
    with pytest.raises(NotFoundError):
        await harness.cluster.evict(old)
    new = harness.add_pod(pod(name))

    with pytest.raises(ConflictError):
        await harness.cluster.evict(old)
    listed = await watch().until(Relisted)
    assert [p.uid for p in listed.pods if p.name == name and not p.terminating] == [new.uid]


async def test_a_disruption_budget_refuses_an_eviction_and_delays_nothing_else(
    harness: ClusterHarness, watch: Callable[[], Watched], name: str
) -> None:
    harness.add_node(node(name))
    made = harness.add_pod(pod(name, labels={"app": name}))
    await harness.cluster.bind(made, name)
    harness.make_ready(made)
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}}
    # Nobody has written its status yet, so it allows nothing.
    harness.add_object(
        "PodDisruptionBudget", {"metadata": {"name": name, "generation": 1}, "spec": spec}
    )

    with pytest.raises(BudgetError, match="disruption budget"):
        await harness.cluster.evict(made)

    async with asyncio.timeout(5):  # the answer asks to try again after 10 s
        other = harness.add_pod(pod(f"{name}-2"))
        await harness.cluster.bind(other, name)
    listed = await watch().until(Relisted)
    assert [p.terminating for p in listed.pods if p.uid == made.uid] == [False]
    (budget,) = [r for r in listed.objects if r.key == f"default/{name}"]
    assert isinstance(budget, DisruptionBudget)
    assert budget.allowed == 0


async def test_a_deployment_is_scaled_only_while_it_is_as_it_was_read(
    harness: ClusterHarness, name: str
) -> None:
    owner = harness.add_deployment(name, 2)
    read = await harness.cluster.deployment("default", owner)
    assert read is not None
    assert (read.key, read.replicas, read.extra) == (f"default/{name}", 2, None)
    assert not read.autoscaled

    scaled = await harness.cluster.scale(read, 3, "uid-of-a-pod")

    assert (scaled.replicas, scaled.extra) == (3, "uid-of-a-pod")
    with pytest.raises(ConflictError):
        await harness.cluster.scale(read, 2, None)
    again = await harness.cluster.deployment("default", Owner("Deployment", name, ""))
    assert again == scaled
    back = await harness.cluster.scale(scaled, 2, None)
    assert (back.replicas, back.extra) == (2, None)


@pytest.mark.parametrize("recreates", [True, False])
async def test_a_deployment_says_whether_its_pods_must_not_run_beside_each_other(
    harness: ClusterHarness, name: str, *, recreates: bool
) -> None:
    owner = harness.add_deployment(name, 1, recreates=recreates)
    read = await harness.cluster.deployment("default", owner)
    assert read is not None
    assert read.recreates is recreates


async def test_what_owns_a_pod_and_is_no_deployment_is_none(
    harness: ClusterHarness, name: str
) -> None:
    for kind in ("ReplicaSet", "StatefulSet", "Deployment"):
        assert await harness.cluster.deployment("default", Owner(kind, name, "x")) is None


async def test_notes_are_kept_and_removed_one_by_one(harness: ClusterHarness) -> None:
    assert dict(await harness.cluster.read_notes()) == {}
    await harness.cluster.write_note("paused", None)

    await harness.cluster.write_note("moves", "[]")
    await harness.cluster.write_note("paused", '{"reason": "é"}')
    await harness.cluster.write_note("moves", "[1]")

    notes = {"moves": "[1]", "paused": '{"reason": "é"}'}
    assert dict(await harness.cluster.read_notes()) == notes
    await harness.cluster.write_note("paused", None)
    assert dict(await harness.cluster.read_notes()) == {"moves": "[1]"}
