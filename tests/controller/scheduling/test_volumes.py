"""Pods whose volumes have to be reserved or made first, on a clock that moves when told to."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from leadline_controller.framework.cluster_objects import (
    Claim,
    ClusterObject,
    StorageClass,
    Unreadable,
    Volume,
    VolumePlan,
)
from leadline_controller.framework.model import ClaimUse, Pod
from leadline_controller.framework.ports import (
    ClusterError,
    ConflictError,
    Event,
    InvalidError,
    StorageChangedError,
    UnavailableError,
)
from leadline_controller.framework.selectors import Requirement
from leadline_controller.scheduling.volumes import TIMEOUT_S

from tests.controller.scheduling.harness import CountingCluster, SchedulerHarness, node, pod

MADE = StorageClass("made", "test.leadline.dev/by-hand", waits=True)
FOUND = StorageClass("found", "kubernetes.io/no-provisioner", waits=True)


def claim(name: str = "c", kind: StorageClass = MADE, **fields: Any) -> Claim:
    return Claim("default", name, f"uid-{name}", kind.name, **fields)


def volume(name: str, node_name: str, **fields: Any) -> Volume:
    here = ((Requirement("kubernetes.io/hostname", "In", (node_name,)),),)
    return Volume(name, FOUND.name, Fraction(2**30), affinity=here, available=True, **fields)


def mounting(name: str, *claims: str) -> Pod:
    return pod(name, claims=tuple(ClaimUse(each) for each in claims or ("c",)))


class Stored(CountingCluster):
    """Two nodes and storage classes; a test plays the controllers that bind and make volumes."""

    def __init__(self, *pods: Pod, claims: Sequence[Claim] = ()) -> None:
        hosts = [node(n, labels={"kubernetes.io/hostname": n}) for n in ("n1", "n2")]
        super().__init__(hosts, pods)
        self.plans: list[VolumePlan] = []
        stored: list[ClusterObject] = [MADE, FOUND, *claims]
        for each in stored:
            self.put_object(each)

    async def prepare(self, plan: VolumePlan) -> None:
        self.plans.append(plan)
        await super().prepare(plan)

    def bind_claim(self, there: Claim, at: Volume) -> None:
        self.put_object(replace(at, claim=there.key, claim_uid=there.uid, available=False))
        self.put_object(replace(there, volume=at.name, bound=True))


def failures(harness: SchedulerHarness, name: str) -> list[str]:
    return [e.message for e in harness.events(name) if e.type == "Warning"]


async def test_a_pod_is_bound_only_after_its_volume_is_provisioned() -> None:
    harness = SchedulerHarness(cluster := Stored(mounting("p"), claims=[claim()]))
    async with harness.running():
        await harness.clock.advance(1)
        (plan,) = cluster.plans
        assert (plan.selects, cluster.bind_calls) == (("default/c",), {})

        cluster.bind_claim(claim(selected_node=plan.node), volume("v", plan.node))
        await harness.clock.advance(1)
    assert harness.where() == {"p": plan.node}
    assert cluster.bound == {"default/p": 1}


async def test_an_existing_volume_is_reserved_and_its_pod_is_bound_there() -> None:
    cluster = Stored(mounting("p"), claims=[claim(kind=FOUND)])
    cluster.put_object(volume("v", "n2"))
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(1)
        assert cluster.plans == [VolumePlan("n2", (("v", "default/c"),))]
        cluster.bind_claim(claim(kind=FOUND), volume("v", "n2"))
        await harness.clock.advance(1)
    assert harness.where() == {"p": "n2"}


async def test_one_volume_is_not_reserved_for_two_pods() -> None:
    cluster = Stored(mounting("p", "c"), mounting("q", "d"))
    for name in "cd":
        cluster.put_object(claim(name, FOUND))
    cluster.put_object(volume("v", "n1"))
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(1)
        assert len(cluster.plans) == 1
        cluster.put_object(volume("w", "n2"))
        await harness.clock.advance(10)
    assert {plan.binds[0][0] for plan in cluster.plans} == {"v", "w"}


async def test_pods_that_wait_for_volumes_delay_no_others() -> None:
    names = [f"w{i:02}" for i in range(40)]
    cluster = Stored(*(mounting(name, name) for name in names))
    for name in names:
        cluster.put_object(claim(name))
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(1)
        cluster.put_pod(pod("quick", cpu=0))
        await harness.clock.advance(1)
        assert harness.where()["quick"] is not None
        assert set(cluster.bind_calls) == {"default/quick"}
        assert len(cluster.plans) == 16  # as many as fit, by their CPU
        assert sum(harness.cpu_requested().values()) == 8000


def annotation_removed(cluster: Stored, plan: VolumePlan) -> None:
    cluster.put_object(claim())


def selected_elsewhere(cluster: Stored, plan: VolumePlan) -> None:
    cluster.put_object(claim(selected_node="elsewhere"))


def claim_deleted(cluster: Stored, plan: VolumePlan) -> None:
    cluster.remove_object(claim())


def claim_lost(cluster: Stored, plan: VolumePlan) -> None:
    cluster.put_object(claim(selected_node=plan.node, volume="v", lost=True))


def volume_elsewhere(cluster: Stored, plan: VolumePlan) -> None:
    other = "n2" if plan.node == "n1" else "n1"
    cluster.bind_claim(claim(selected_node=plan.node), volume("v", other))


def node_removed(cluster: Stored, plan: VolumePlan) -> None:
    cluster.remove_node(plan.node)


def forgotten_in_a_new_listing(cluster: Stored, plan: VolumePlan) -> None:
    cluster.put_object(claim())
    cluster.relist()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (annotation_removed, "no volume could be made for claim default/c"),
        (selected_elsewhere, "no volume could be made for claim default/c"),
        (claim_deleted, "claim default/c is gone"),
        (claim_lost, "claim default/c is gone"),
        (volume_elsewhere, "volume v is not reached"),
        (node_removed, "is gone"),
        (forgotten_in_a_new_listing, "no volume could be made for claim default/c"),
    ],
)
async def test_a_failed_volume_has_an_event_and_the_pod_is_retried(
    trouble: Callable[[Stored, VolumePlan], None], said: str
) -> None:
    harness = SchedulerHarness(cluster := Stored(mounting("p"), claims=[claim()]))
    async with harness.running():
        await harness.clock.advance(1)
        trouble(cluster, cluster.plans[0])
        await harness.clock.advance(0)
        assert said in failures(harness, "p")[0]
        assert sum(harness.cpu_requested().values()) == 0

        cluster.bind_claim(claim(), volume("v", next(n.name for n in cluster.nodes)))
        await harness.clock.advance(30)
    assert cluster.bound == {"default/p": 1}


async def test_the_state_before_the_plan_is_no_failure() -> None:
    """The watch may be late: what it shows of the claim can be older than the annotation."""
    harness = SchedulerHarness(cluster := Stored(mounting("p"), claims=[claim()]))
    async with harness.running():
        await harness.clock.advance(1)
        harness.scheduler._volumes._waits["uid-p"].seen.clear()
        cluster.put_object(claim(size_bytes=Fraction(1)))
        await harness.clock.advance(1)
    assert failures(harness, "p") == []


async def test_the_wait_for_a_volume_times_out() -> None:
    harness = SchedulerHarness(cluster := Stored(mounting("p"), claims=[claim()]))
    async with harness.running():
        await harness.clock.advance(TIMEOUT_S + 1)
        assert failures(harness, "p") == ["its volumes were not bound within 600 s"]
        await harness.clock.advance(10)
    assert len(cluster.plans) == 2


async def test_a_pod_deleted_meanwhile_is_not_bound_and_takes_no_resources() -> None:
    cluster = Stored(mounting("p"), mounting("q", "d"))
    for name in "cd":
        cluster.put_object(claim(name))
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(1)
        cluster.remove_pod("default/p")
        cluster.put_pod(replace(cluster.pod("default/q"), terminating=True))
        await harness.clock.advance(1)
        assert sum(harness.cpu_requested().values()) == 0
        for plan, name in zip(cluster.plans, "cd", strict=True):
            cluster.bind_claim(claim(name, selected_node=plan.node), volume(name, plan.node))
        await harness.clock.advance(TIMEOUT_S)
    assert cluster.bind_calls == {}


async def test_a_cancelled_scheduler_does_not_wait_for_volumes() -> None:
    harness = SchedulerHarness(cluster := Stored(mounting("p"), claims=[claim()]))
    async with harness.running() as running:
        await harness.clock.advance(1)
        running.cancel()
        await harness.clock.advance(0)
        assert running.done()
    assert (len(cluster.plans), cluster.bind_calls) == (1, {})


async def test_a_missing_permission_is_named() -> None:
    why = '403: csinodes is forbidden: User "x" cannot list resource "csinodes"'
    cluster = Stored(mounting("p"), pod("other"), claims=[claim()])
    cluster.put_object(missing := Unreadable("csinodes", why))
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(1)
        assert cluster.plans == []
        assert harness.where()["other"] is not None
        assert why in failures(harness, "p")[0]

        cluster.remove_object(missing)
        await harness.clock.advance(5)
    assert len(cluster.plans) == 1


async def test_a_forbidden_plan_has_an_event_and_is_not_repeated_at_once() -> None:
    class Forbidden(Stored):
        async def prepare(self, plan: VolumePlan) -> None:
            self.plans.append(plan)
            raise InvalidError('403: cannot patch resource "persistentvolumeclaims"')

    cluster = Forbidden(mounting("p"))
    cluster.put_object(claim())
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(5)
    assert len(cluster.plans) == 1
    assert harness.events("p") == [
        Event("Warning", "FailedBinding", '403: cannot patch resource "persistentvolumeclaims"')
    ]


@pytest.mark.parametrize(
    "error",
    [
        StorageChangedError("claim default/c is no longer free"),
        ConflictError("409: etcdserver: request timed out"),
        UnavailableError("500: internal error"),
        ClusterError("410: gone"),
    ],
)
async def test_a_plan_that_could_not_be_written_is_made_again(error: ClusterError) -> None:
    class Troubled(Stored):
        async def prepare(self, plan: VolumePlan) -> None:
            await super().prepare(plan)
            if len(self.plans) == 1:  # done all the same, or not: it is the same plan again
                raise error

    cluster = Troubled(mounting("p"))
    cluster.put_object(claim())
    harness = SchedulerHarness(cluster)
    async with harness.running():
        await harness.clock.advance(0.5)
        assert (len(cluster.plans), sum(harness.cpu_requested().values())) == (1, 0)
        await harness.clock.advance(1)
        first, second = cluster.plans
        assert first == second
        cluster.bind_claim(claim(selected_node=second.node), volume("v", second.node))
        await harness.clock.advance(1)
    assert cluster.bound == {"default/p": 1}
