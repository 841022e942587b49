"""`bind` binds exactly the pod and node that were asked about, after the filters ran again."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from leadline_controller.cluster.service_profiles import (
    BoardProfile,
    ServiceProfile,
    ServiceProfiles,
)
from leadline_controller.extender.service import ExtenderError
from leadline_controller.framework.model import Pod
from leadline_controller.framework.ports import (
    ConflictError,
    InvalidError,
    PodChanged,
    PodDeleted,
    UnavailableError,
)
from leadline_controller.history.log import BOUND
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.strategies.response_time import ResponseTime

from tests.controller.extender.harness import (
    NAMES,
    PATIENCE_S,
    ExtenderHarness,
    binding,
    listed,
    nodes_with_mbps,
    pending,
    pod_manifest,
    replacement_manifest,
    wide,
)
from tests.kube.objects import Object
from tests.support.memory_cluster import MemoryCluster


async def test_bind_binds_exactly_this_pod(harness: ExtenderHarness) -> None:
    pod = harness.put("web", 60)
    harness.prioritize(pod_manifest("web", 60), NAMES)
    await harness.bind(pod, "n2")
    assert harness.cluster.pod("default/web").node_name == "n2"
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}
    assert harness.outcome("web") == ("n2", BOUND)


async def binds_once_heard(
    harness: ExtenderHarness, pod: Pod, change: PodChanged | PodDeleted
) -> None:
    """The pod is bound to n1, and not before the watch shows the change."""
    waiting = asyncio.create_task(harness.bind(pod, "n1"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    harness.hear(change)
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert harness.cluster.pod(pod.key).node_name == "n1"


async def test_bind_waits_a_moment_for_the_watch() -> None:
    """The filters look at the pod as the API server has it, not as the caller sent it."""
    harness = listed(nodes_with_mbps(10), uncertain_s=PATIENCE_S)
    pod = harness.cluster.put_pod(pending(pod_manifest("new")))
    harness.filter(pod_manifest("new"), ["n1"])
    await binds_once_heard(harness, pod, PodChanged(pod))


async def test_a_pod_that_the_watch_never_shows_is_not_bound(harness: ExtenderHarness) -> None:
    pod = harness.cluster.put_pod(pending(pod_manifest("new")))
    harness.filter(pod_manifest("new"), NAMES)
    with pytest.raises(ExtenderError, match="the API server does not show pod default/new"):
        await harness.bind(pod, "n1")
    assert harness.cluster.pod("default/new").node_name is None


async def test_bind_refuses_pods_without_an_earlier_call(harness: ExtenderHarness) -> None:
    pod, other = harness.put("web"), harness.put("other")
    harness.prioritize(pod_manifest("other"), NAMES)
    with pytest.raises(
        ExtenderError, match="uid uid-web: no filter or prioritize call named this pod within 900"
    ):
        await harness.bind(pod, "n1")
    await harness.clock.advance(899.0)
    await harness.bind(other, "n1")


async def test_bind_refuses_pods_whose_last_call_is_too_old(harness: ExtenderHarness) -> None:
    pod = harness.put("web")
    harness.filter(pod_manifest("web"), NAMES)
    await harness.clock.advance(901.0)
    with pytest.raises(ExtenderError, match="no filter or prioritize call"):
        await harness.bind(pod, "n1")
    harness.hear(PodDeleted(pod))
    assert not harness.extender_service._called_s


TAINT = {"key": "for", "value": "nobody", "effect": "NoSchedule"}
UNFIT: Mapping[str, tuple[Object, Object, str]] = {
    "a taint": (wide("n1", 10, taints=[TAINT]), {}, "n1: Leadline TaintToleration: "),
    "a cordon": (wide("n1", 10, unschedulable=True), {}, "n1: Leadline NodeUnschedulable: "),
    "no room": (wide("n1", 10, cpu="50m"), {}, "n1: Leadline NodeResourcesFit: insufficient cpu"),
    "no label": (wide("n1", 10), {"nodeSelector": {"disk": "fast"}}, "n1: Leadline NodeAffinity: "),
}


@pytest.mark.parametrize(("node", "spec", "reason"), UNFIT.values(), ids=UNFIT.keys())
async def test_bind_refuses_what_kube_scheduler_would_refuse(
    node: Object, spec: Object, reason: str
) -> None:
    harness = listed([read_node(node)])
    made = pod_manifest("web")
    made["spec"] |= spec
    pod = harness.put_manifest(made)
    assert harness.filter(made, ["n1"]) == (["n1"], {})  # kube-scheduler's to say
    with pytest.raises(ExtenderError, match=reason):
        await harness.bind(pod, "n1")
    assert harness.cluster.pod("default/web").node_name is None


async def test_bind_accepts_demands_that_only_kube_scheduler_models() -> None:
    """A DaemonSet's pod goes to a node that is not ready; resource claims and kinds of volumes
    that no filter of ours knows are kube-scheduler's to judge."""
    harness = listed([read_node(wide("n1", 10, ready=False))])
    made = pod_manifest("web")
    made["spec"] |= {
        "resourceClaims": [{"name": "gpu"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "unheard-of"}}],
    }
    pod = harness.put_manifest(made)
    harness.filter(made, ["n1"])
    await harness.bind(pod, "n1")
    assert harness.cluster.pod("default/web").node_name == "n1"


async def test_with_every_filter_bind_refuses_demands_that_leadline_does_not_model() -> None:
    harness = listed([read_node(wide("n1", 10, ready=False))], every_filter=True)
    claiming = pod_manifest("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    for made, reason in ((pod_manifest("web"), "NodeReady"), (claiming, "resourceClaims")):
        pod = harness.put_manifest(made)
        with suppress(ExtenderError):
            harness.filter(made, ["n1"])
        with pytest.raises(ExtenderError, match=reason):
            await harness.bind(pod, "n1")


async def test_a_pods_own_expectation_does_not_prevent_its_binding() -> None:
    harness = listed([read_node(wide("n1", 10, cpu="100m")), read_node(wide("n2", 10, cpu="100m"))])
    first, second = harness.put("a"), harness.put("b")
    for name in ("a", "b"):
        harness.prioritize(pod_manifest(name), ["n1"])
    await harness.bind(first, "n1")
    with pytest.raises(ExtenderError, match="NodeResourcesFit"):
        await harness.bind(second, "n1")
    await harness.bind(second, "n2")


async def test_bind_checks_again_while_the_watch_is_behind() -> None:
    harness = ExtenderHarness([read_node(wide("n1", 10, cpu="100m"))], uncertain_s=PATIENCE_S)
    there = replace(pending(pod_manifest("there")), node_name="n1")
    harness.cluster.put_pod(there)
    harness.list()
    pod = harness.put("web")
    harness.filter(pod_manifest("web"), ["n1"])
    await binds_once_heard(harness, pod, PodDeleted(there))


async def test_bind_runs_leadlines_own_filters_again(harness: ExtenderHarness) -> None:
    first, second = harness.put("a", 60), harness.put("b", 60)
    harness.prioritize(pod_manifest("a", 60), ["n2", "n3"])
    harness.prioritize(
        pod_manifest("b", 60), ["n2"]
    )  # the node that b is expected on does not count
    await harness.bind(first, "n2")
    assert harness.free_mbps()["n2"] == -20
    with pytest.raises(ExtenderError, match=r"n2: Leadline NodeBandwidthFit: .* has 40"):
        await harness.bind(second, "n2")
    assert harness.cluster.pod("default/b").node_name is None
    await harness.bind(second, "n3")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"node": "mars"}, "the cluster has no node mars"),
        ({"name": "other"}, "uid uid-web is of pod default/web, not other"),
        (
            {"uid": "uid-of-before"},
            "uid uid-of-before: no filter or prioritize call named this pod",
        ),
        ({"name": "gone", "uid": "uid-gone"}, "the API server does not show pod default/gone"),
    ],
)
async def test_bind_refuses_missing_objects(
    harness: ExtenderHarness, wrong: dict[str, str], reason: str
) -> None:
    pod = harness.put("web")
    for name in ("web", "gone"):
        harness.filter(pod_manifest(name), NAMES)
    with pytest.raises(ExtenderError, match=reason):
        await harness.extender_service.bind(replace(binding(pod, "n1"), **wrong))
    assert harness.cluster.pod("default/web").node_name is None


async def test_a_pod_recreated_meanwhile_is_not_bound(harness: ExtenderHarness) -> None:
    """Our watch still shows the one before; the API server knows its uid no more."""
    pod = harness.put("web")
    harness.filter(pod_manifest("web"), NAMES)
    harness.cluster.put_pod(replace(pod, uid="another"))
    with pytest.raises(ExtenderError, match="has another uid"):
        await harness.bind(pod, "n1")


@pytest.mark.parametrize("error", [InvalidError("403: no"), UnavailableError("503: later")])
async def test_a_failed_binding_is_reported_and_takes_no_resources(
    harness: ExtenderHarness, error: Exception
) -> None:
    pod = harness.put("web", 60)
    harness.prioritize(pod_manifest("web", 60), NAMES)
    assert isinstance(error, InvalidError | UnavailableError)
    harness.cluster.fail_next_bind(error)
    with pytest.raises(ExtenderError, match=str(error)):
        await harness.bind(pod, "n2")
    assert harness.free_mbps()["n2"] == 100
    assert harness.outcome("web")[1] == f"failed: {error}"
    await harness.bind(pod, "n2")
    assert harness.outcome("web") == ("n2", BOUND)


async def test_a_binding_with_a_lost_answer_counts_when_the_watch_shows_it(
    harness: ExtenderHarness,
) -> None:
    pod = harness.put("web", 60)
    harness.filter(pod_manifest("web", 60), NAMES)
    harness.hear(PodChanged(replace(pod, node_name="n2")))
    await harness.bind(pod, "n2")
    with pytest.raises(ExtenderError, match="pod default/web is on n2 already"):
        await harness.bind(pod, "n3")
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}


async def test_a_failed_binding_that_the_watch_shows_was_successful() -> None:
    class Late(MemoryCluster):
        async def bind(self, pod: Pod, node: str) -> None:
            late.hear(PodChanged(replace(pod, node_name="n1")))
            raise ConflictError("409: is already assigned")

    late = listed(cluster=Late(nodes_with_mbps(100, 100)))
    pod, other = late.put("web", 60), late.put("other", 60)
    for name in ("web", "other"):
        late.filter(pod_manifest(name, 60), NAMES[:2])
    await late.bind(pod, "n1")
    with pytest.raises(ExtenderError, match="409"):
        await late.bind(other, "n2")
    assert late.free_mbps() == {"n1": -20, "n2": 100}


class Stuck(MemoryCluster):
    async def bind(self, pod: Pod, node: str) -> None:
        await asyncio.Event().wait()


async def test_a_cancelled_binding_takes_no_resources() -> None:
    harness = listed(cluster=Stuck(nodes_with_mbps(100)))
    pod = harness.put("web", 60)
    harness.filter(pod_manifest("web", 60), ["n1"])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await harness.bind(pod, "n1")
    assert harness.free_mbps() == {"n1": 100}


async def test_bind_knows_a_profile_that_is_only_in_the_controllers_file() -> None:
    boards = {"n1": BoardProfile("", 10.0, 1.0, 1.0, 100)}
    profiles = ServiceProfiles([ServiceProfile("default", {"app": "web"}, boards)])
    harness = ExtenderHarness(nodes_with_mbps(100), strategy=ResponseTime())
    harness.state.use_profiles(profiles)
    harness.list()
    manifest = pod_manifest("web", response_time_ms="100", user_node="n1")
    manifest["metadata"]["labels"] = {"app": "web"}
    pod = harness.put_manifest(manifest)
    assert harness.filter(manifest, ["n1"])[0] == ["n1"]
    await harness.bind(pod, "n1")
    assert harness.cluster.pod("default/web").node_name == "n1"


async def test_a_replacement_may_take_the_room_that_is_kept_for_it() -> None:
    harness = listed(nodes_with_mbps(100))
    harness.keep_room(60, "n1")
    manifest = replacement_manifest("web", 60)
    pod = harness.put_manifest(manifest)
    assert harness.filter(manifest, ["n1"])[0] == ["n1"]
    await harness.bind(pod, "n1")
    assert harness.cluster.pod("default/web").node_name == "n1"
