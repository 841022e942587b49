"""The answers about a pod, its expected node meanwhile, and the outcome of the decision."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from leadline_controller.decisions.log import BOUND, PENDING
from leadline_controller.framework.model import Node, Pod
from leadline_controller.framework.ports import (
    ConflictError,
    InvalidError,
    NodeChanged,
    PodChanged,
    PodDeleted,
    Relisted,
    UnavailableError,
)
from leadline_controller.kubeobjects.manifest import read_node
from leadline_controller.scheduling import extender_service
from leadline_controller.scheduling.extender_args import ExtenderArgs, ExtenderBindingArgs
from leadline_controller.scheduling.extender_service import ExtenderError
from leadline_controller.snapshot.memory_cluster import MemoryCluster

from tests.controller.scheduling.extender_harness import Scene, extender_args, pending, wants, wide
from tests.kube.objects import Object, node

PATIENCE_S = 20.0
NAMES = ["n1", "n2", "n3"]


def nodes_with_mbps(*mbps: float) -> list[Node]:
    return [read_node(wide(f"n{i}", each)) for i, each in enumerate(mbps, 1)]


@pytest.fixture
def scene() -> Scene:
    """Three nodes, the third with the widest link and so the best for much data."""
    made = Scene(nodes_with_mbps(10, 100, 1000))
    made.list()
    return made


def put(scene: Scene, name: str, mbps: float | None = None) -> Pod:
    """A pod that our watch knows as well."""
    pod = scene.cluster.put_pod(pending(wants(name, mbps)))
    scene.hear(PodChanged(pod))
    return pod


def binding(pod: Pod, node: str) -> ExtenderBindingArgs:
    return ExtenderBindingArgs(pod.namespace, pod.name, pod.uid, node)


async def test_filter_runs_the_filters_that_kube_scheduler_lacks(scene: Scene) -> None:
    passing, failed = scene.extender_service.filter(
        extender_args(wants("web", 50), ["n3", "n1", "n2"])
    )
    assert passing == ["n3", "n2"]
    assert failed == {
        "n1": "Leadline NodeBandwidthFit: insufficient bandwidth: needs 50 Mbit/s, has 10"
    }
    huge = wants("huge")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    assert scene.extender_service.filter(extender_args(huge, NAMES)) == (NAMES, {})


async def test_filter_runs_every_filter_if_configured() -> None:
    scene = Scene(nodes_with_mbps(10, 100), every_filter=True)
    scene.list()
    huge = wants("huge")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    passing, failed = scene.extender_service.filter(extender_args(huge, ["n1", "n2"]))
    assert passing == []
    assert failed["n1"].startswith("Leadline NodeResourcesFit: insufficient cpu")
    claiming = wants("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    with pytest.raises(ExtenderError, match="resourceClaims"):
        scene.extender_service.filter(extender_args(claiming, ["n1"]))


async def test_demands_that_kube_scheduler_checks_are_no_obstacle(scene: Scene) -> None:
    claiming = wants("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert scene.extender_service.filter(extender_args(claiming, NAMES)) == (NAMES, {})
    assert scene.extender_service.prioritize(extender_args(claiming, NAMES))["n3"] == 10


async def test_the_strategys_choice_has_priority_10_and_the_worst_0(scene: Scene) -> None:
    ranks = scene.extender_service.prioritize(extender_args(wants("web", data_mb="100"), NAMES))
    assert ranks == {"n1": 0, "n2": 9, "n3": 10}
    ranks = scene.extender_service.prioritize(
        extender_args(wants("web", data_mb="100"), ["n1", "n2"])
    )
    assert ranks == {"n1": 0, "n2": 10}


async def test_an_unknown_node_is_refused_and_not_scored(scene: Scene) -> None:
    passing, failed = scene.extender_service.filter(extender_args(wants("web"), ["n1", "new"]))
    assert (passing, failed) == (["n1"], {"new": "Leadline does not know this node"})
    assert scene.extender_service.prioritize(extender_args(wants("web"), ["n1", "new"])) == {
        "n1": 10
    }


async def test_only_unknown_nodes_are_an_error(scene: Scene) -> None:
    arguments = extender_args(wants("web"), ["x", "y"])
    for ask in (scene.extender_service.filter, scene.extender_service.prioritize):
        with pytest.raises(ExtenderError, match="none of these nodes is known to Leadline, as 'x'"):
            ask(arguments)


async def test_whole_nodes_replace_those_of_the_watch(scene: Scene) -> None:
    sent = [wide("n1", 500), wide("new", 700), wide("n3", 5)]
    passing, failed = scene.extender_service.filter(extender_args(wants("web", 50), nodes=sent))
    assert passing == ["n1", "new"]
    assert failed.keys() == {"n3"}
    ranks = scene.extender_service.prioritize(
        extender_args(wants("web", data_mb="100"), nodes=sent)
    )
    assert ranks.keys() == {"n1", "new", "n3"}
    assert ranks["new"] == 10


async def test_an_unreadable_whole_node_is_refused(scene: Scene) -> None:
    odd = node("n2")
    odd["status"]["allocatable"]["cpu"] = "lots"
    passing, failed = scene.extender_service.filter(
        extender_args(wants("web"), nodes=[odd, wide("n1", 10)])
    )
    assert passing == ["n1"]
    assert "allocatable.cpu" in failed["n2"]


async def test_for_many_nodes_equal_refusals_have_equal_reasons() -> None:
    scene = Scene(nodes_with_mbps(*range(1, 31)))
    scene.list()
    names = [f"n{i}" for i in range(1, 31)]
    _, failed = scene.extender_service.filter(extender_args(wants("web", 50), names))
    assert set(failed.values()) == {"Leadline NodeBandwidthFit"}
    assert failed.keys() == set(names)


async def test_an_unknown_user_node_is_an_error_and_recorded(scene: Scene) -> None:
    with pytest.raises(ExtenderError, match=r"annotation leadline.dev/user-node: .* 'mars'"):
        scene.extender_service.filter(extender_args(wants("web", user_node="mars"), NAMES))
    assert scene.outcome("web") == (None, PENDING)


async def test_a_recorded_decision_has_the_nodes_that_kube_scheduler_refused(scene: Scene) -> None:
    scene.extender_service.filter(extender_args(wants("web", 50), ["n1", "n3", "n2"]))
    assert scene.decisions.get("default/web") is None  # it asks again, for the scores
    scene.extender_service.prioritize(extender_args(wants("web", 50), ["n3", "n2"]))
    record = scene.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert (record.strategy, record.outcome) == ("dacs", PENDING)
    assert record.decision.rejected()["n1"][0] == (
        "kube-scheduler: not among the nodes that it asked about"
    )


@pytest.mark.parametrize("mbps", [500, 5000])
async def test_filter_decides_when_at_most_one_node_is_left(scene: Scene, mbps: float) -> None:
    scene.extender_service.filter(extender_args(wants("web", mbps), NAMES))
    assert scene.outcome("web") == ("n3" if mbps == 500 else None, PENDING)


async def test_no_nodes_are_no_error(scene: Scene) -> None:
    assert scene.extender_service.filter(extender_args(wants("web"), [])) == ([], {})


async def test_a_pod_counts_on_our_choice_until_the_watch_shows_its_node(scene: Scene) -> None:
    pod = put(scene, "web", 60)
    arguments = extender_args(wants("web", 60, data_mb="100"), NAMES)
    scene.extender_service.filter(arguments)
    scene.extender_service.prioritize(arguments)
    assert scene.free_mbps() == {"n1": 10, "n2": 100, "n3": 940}
    scene.hear(PodChanged(replace(pod, node_name="n2")))
    assert scene.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}
    await scene.extender_service.close()
    assert scene.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}


async def test_a_burst_does_not_pile_up_on_one_link(scene: Scene) -> None:
    best = []
    for name in ("a", "b", "c"):
        put(scene, name, 600)
        arguments = extender_args(wants(name, 600), NAMES)
        best.append(scene.extender_service.filter(arguments)[0])
    assert best == [["n3"], [], []]


@asynccontextmanager
async def waiting_for_bandwidth(
    scene: Scene, arguments: ExtenderArgs
) -> AsyncIterator["asyncio.Task[None]"]:
    """Somebody who waits to learn where the pods before this one went."""
    waiting = asyncio.create_task(scene.extender_service.wait_for_bandwidth(arguments))
    try:
        await asyncio.sleep(0)
        yield waiting
        async with asyncio.timeout(PATIENCE_S):
            await waiting
    finally:
        waiting.cancel()


@pytest.mark.parametrize("bound_by_us", [True, False])
async def test_no_link_is_promised_twice_where_kube_scheduler_chose_otherwise(
    bound_by_us: bool,
) -> None:
    """It goes on to the next pod before anybody can know which node it took."""
    scene = Scene(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    scene.list()
    first, _ = put(scene, "a", 60), put(scene, "b", 60)
    arguments = extender_args(wants("a", 60, data_mb="100"), NAMES[:2])
    assert scene.extender_service.filter(arguments)[0] == ["n1", "n2"]
    assert scene.extender_service.prioritize(arguments)["n2"] == 10
    following = extender_args(wants("b", 60, data_mb="100"), NAMES[:2])
    async with waiting_for_bandwidth(scene, following) as waiting:
        assert not waiting.done()
        if bound_by_us:
            await scene.extender_service.bind(binding(first, "n1"))
        else:
            scene.hear(PodChanged(replace(first, node_name="n1")))
    assert scene.extender_service.filter(following)[0] == ["n2"]


async def test_the_wait_for_a_pod_that_kube_scheduler_gave_up_is_short() -> None:
    scene = Scene(nodes_with_mbps(100, 1000), uncertain_s=0.05)
    scene.list()
    put(scene, "a", 60)
    put(scene, "b", 60)
    scene.extender_service.prioritize(extender_args(wants("a", 60), NAMES[:2]))
    for _ in range(2):
        async with waiting_for_bandwidth(scene, extender_args(wants("b", 60), NAMES[:2])):
            pass
    assert scene.free_mbps() in ({"n1": 40, "n2": 1000}, {"n1": 100, "n2": 940})


async def test_a_pod_that_the_watch_does_not_show_yet_waits() -> None:
    scene = Scene(nodes_with_mbps(100), uncertain_s=PATIENCE_S)
    scene.list()
    async with waiting_for_bandwidth(scene, extender_args(wants("new", 60), ["n1"])) as waiting:
        assert not waiting.done()
        put(scene, "new", 60)
    scene.extender_service.filter(extender_args(wants("new", 60), ["n1"]))
    assert scene.free_mbps() == {"n1": 40}


async def test_a_pod_without_bandwidth_or_with_a_certain_node_delays_no_other() -> None:
    scene = Scene(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    scene.list()
    for name, mbps in (("any", None), ("wide", 500), ("next", 60), ("last", None)):
        put(scene, name, mbps)
    scene.extender_service.prioritize(extender_args(wants("any"), NAMES[:2]))
    scene.extender_service.filter(extender_args(wants("wide", 500), NAMES[:2]))  # one node only
    async with waiting_for_bandwidth(scene, extender_args(wants("next", 60), NAMES[:2])) as waiting:
        assert waiting.done()
    scene.extender_service.prioritize(extender_args(wants("next", 60), NAMES[:2]))
    for name, mbps in (("last", None), ("next", 60)):  # itself again
        async with waiting_for_bandwidth(
            scene, extender_args(wants(name, mbps), NAMES[:2])
        ) as waiting:
            assert waiting.done()


@pytest.mark.parametrize(("mbps", "waits"), [(4, False), (50, True), (100, True), (170, False)])
async def test_a_pod_does_not_wait_if_the_others_make_no_difference(
    mbps: float, waits: bool
) -> None:
    scene = Scene(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    scene.list()
    first, _ = put(scene, "first", 60), put(scene, "second", mbps)
    scene.extender_service.prioritize(extender_args(wants("first", 60, data_mb="1"), NAMES[:2]))
    async with waiting_for_bandwidth(
        scene, extender_args(wants("second", mbps), NAMES[:2])
    ) as waiting:
        assert waiting.done() != waits
        scene.hear(PodChanged(replace(first, node_name="n1")))


async def test_a_second_call_does_not_count_the_pod_itself(scene: Scene) -> None:
    put(scene, "web", 600)
    for _ in range(3):
        assert scene.extender_service.filter(extender_args(wants("web", 600), NAMES))[0] == ["n3"]


async def test_an_expectation_expires() -> None:
    scene = Scene(nodes_with_mbps(1000), expected_s=0.05)
    scene.list()
    put(scene, "web", 600)
    scene.extender_service.filter(extender_args(wants("web", 600), ["n1"]))
    assert scene.free_mbps() == {"n1": 400}
    for _ in range(100):
        await asyncio.sleep(0.02)
        if scene.free_mbps() == {"n1": 1000}:
            break
    assert scene.free_mbps() == {"n1": 1000}


async def test_close_withdraws_expected_pods(scene: Scene) -> None:
    put(scene, "web", 600)
    scene.extender_service.filter(extender_args(wants("web", 600), NAMES))
    await scene.extender_service.close()
    assert scene.free_mbps()["n3"] == 1000


async def test_a_deleted_pod_leaves_nothing_behind(scene: Scene) -> None:
    pod = put(scene, "web", 600)
    scene.extender_service.filter(extender_args(wants("web", 600), NAMES))
    scene.hear(PodDeleted(pod))
    assert scene.free_mbps()["n3"] == 1000
    again = Pod("default", "web", uid="another", node_name="n1")
    scene.hear(PodChanged(again))
    assert scene.outcome("web") == ("n3", PENDING)


async def test_the_watch_shows_the_pod_on_our_choice(scene: Scene) -> None:
    pod = put(scene, "web")
    scene.extender_service.prioritize(extender_args(wants("web", data_mb="100"), NAMES))
    scene.hear(PodChanged(replace(pod, node_name="n3")))
    assert scene.outcome("web") == ("n3", BOUND)
    await scene.extender_service.close()
    (seen,) = scene.cluster.events
    assert (seen.event.type, seen.event.reason) == ("Normal", "Advised")
    assert seen.event.message.startswith("n3 by dacs: ")


async def test_the_watch_shows_that_kube_scheduler_chose_another_node(scene: Scene) -> None:
    pod = put(scene, "web")
    scene.extender_service.prioritize(extender_args(wants("web", data_mb="100"), NAMES))
    scene.hear(Relisted(tuple(scene.cluster.nodes), (replace(pod, node_name="n2"),)))
    assert scene.outcome("web") == ("n2", BOUND)
    record = scene.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert record.why.startswith("kube-scheduler chose it, which has 9 of 10, over n3: ")
    assert record.decision.scores().keys() == set(NAMES)
    await scene.extender_service.close()
    assert scene.cluster.events[0].event.message.startswith("n2 by dacs: kube-scheduler chose it")


async def test_only_the_newest_decisions_keep_their_view(scene: Scene) -> None:
    pods = [put(scene, f"web-{i}") for i in range(40)]
    for pod in pods:
        scene.extender_service.prioritize(extender_args(wants(pod.name, data_mb="100"), NAMES))
    detailed = [uid for uid, each in scene.extender_service._pending.items() if each.has_basis]
    assert detailed == [pod.uid for pod in pods[-32:]]
    scene.hear(PodChanged(replace(pods[0], node_name="n2")))
    record = scene.decisions.get("default/web-0")
    assert record is not None
    assert record.why.startswith("kube-scheduler chose it over n3: ")
    await scene.extender_service.close()


async def test_the_watch_shows_a_pod_bound_against_our_decision(scene: Scene) -> None:
    pod = put(scene, "web", 5000)
    scene.extender_service.filter(extender_args(wants("web", 5000), NAMES))
    scene.hear(PodChanged(replace(pod, node_name="n2")))
    record = scene.decisions.get("default/web")
    assert record is not None
    assert (record.node, record.outcome) == ("n2", BOUND)
    assert record.why.startswith("kube-scheduler chose it without Leadline")


async def test_an_event_that_cannot_be_written_is_ignored(scene: Scene) -> None:
    pod = put(scene, "web")
    scene.extender_service.prioritize(extender_args(wants("web"), NAMES))
    scene.cluster.fail_next_event(UnavailableError("503"))
    scene.hear(PodChanged(replace(pod, node_name="n3")))
    await scene.extender_service.close()
    assert scene.cluster.events == ()
    assert scene.outcome("web")[1] == BOUND


async def test_bind_binds_exactly_this_pod(scene: Scene) -> None:
    pod = put(scene, "web", 60)
    scene.extender_service.prioritize(extender_args(wants("web", 60), NAMES))
    await scene.extender_service.bind(binding(pod, "n2"))
    assert scene.cluster.pod("default/web").node_name == "n2"
    assert scene.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}
    assert scene.outcome("web") == ("n2", BOUND)


async def test_bind_waits_a_moment_for_the_watch() -> None:
    """The filters look at the pod as the API server has it, not as anybody says that it is."""
    scene = Scene(nodes_with_mbps(10), uncertain_s=PATIENCE_S)
    scene.list()
    pod = scene.cluster.put_pod(pending(wants("new")))
    scene.extender_service.filter(extender_args(wants("new"), ["n1"]))
    waiting = asyncio.create_task(scene.extender_service.bind(binding(pod, "n1")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    scene.hear(PodChanged(pod))
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert scene.cluster.pod("default/new").node_name == "n1"


async def test_a_pod_that_the_watch_never_shows_is_not_bound(scene: Scene) -> None:
    pod = scene.cluster.put_pod(pending(wants("new")))
    scene.extender_service.filter(extender_args(wants("new"), NAMES))
    with pytest.raises(ExtenderError, match="the API server does not show pod default/new"):
        await scene.extender_service.bind(binding(pod, "n1"))
    assert scene.cluster.pod("default/new").node_name is None


async def test_bind_refuses_pods_without_an_earlier_call(scene: Scene) -> None:
    pod, other = put(scene, "web"), put(scene, "other")
    scene.extender_service.prioritize(extender_args(wants("other"), NAMES))
    with pytest.raises(
        ExtenderError, match="uid uid-web: no filter or prioritize call named this pod within 900"
    ):
        await scene.extender_service.bind(binding(pod, "n1"))
    await scene.clock.advance(899.0)
    await scene.extender_service.bind(binding(other, "n1"))


async def test_bind_refuses_pods_whose_last_call_is_too_old(scene: Scene) -> None:
    pod = put(scene, "web")
    scene.extender_service.filter(extender_args(wants("web"), NAMES))
    await scene.clock.advance(901.0)
    with pytest.raises(ExtenderError, match="no filter or prioritize call"):
        await scene.extender_service.bind(binding(pod, "n1"))
    scene.hear(PodDeleted(pod))
    assert not scene.extender_service._called_s


async def test_the_number_of_remembered_calls_is_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_service, "_MAX_CALLED", 100)
    for number in range(200):
        scene.extender_service.filter(extender_args(wants(f"p{number}"), []))
    assert len(scene.extender_service._called_s) == 100
    scene.extender_service.filter(
        extender_args({**wants("web"), "metadata": {"name": "w", "uid": "x" * 999}}, [])
    )
    assert not any(len(uid) > 253 for uid in scene.extender_service._called_s)
    assert not any(len(uid) > 253 for uid in scene.extender_service._pending)


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
    scene = Scene([read_node(node)])
    scene.list()
    made = wants("web")
    made["spec"] |= spec
    pod = scene.cluster.put_pod(pending(made))
    scene.hear(PodChanged(pod))
    assert scene.extender_service.filter(extender_args(made, ["n1"])) == (
        ["n1"],
        {},
    )  # kube-scheduler's to say
    with pytest.raises(ExtenderError, match=reason):
        await scene.extender_service.bind(binding(pod, "n1"))
    assert scene.cluster.pod("default/web").node_name is None


async def test_bind_accepts_demands_that_only_kube_scheduler_models() -> None:
    """A DaemonSet's pod goes to a node that is not ready; resource claims and kinds of volumes
    that no filter of ours knows are kube-scheduler's to judge."""
    scene = Scene([read_node(wide("n1", 10, ready=False))])
    scene.list()
    made = wants("web")
    made["spec"] |= {
        "resourceClaims": [{"name": "gpu"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "unheard-of"}}],
    }
    pod = scene.cluster.put_pod(pending(made))
    scene.hear(PodChanged(pod))
    scene.extender_service.filter(extender_args(made, ["n1"]))
    await scene.extender_service.bind(binding(pod, "n1"))
    assert scene.cluster.pod("default/web").node_name == "n1"


async def test_with_every_filter_bind_refuses_demands_that_leadline_does_not_model() -> None:
    scene = Scene([read_node(wide("n1", 10, ready=False))], every_filter=True)
    scene.list()
    claiming = wants("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    for made, reason in ((wants("web"), "NodeReady"), (claiming, "resourceClaims")):
        pod = scene.cluster.put_pod(pending(made))
        scene.hear(PodChanged(pod))
        with suppress(ExtenderError):
            scene.extender_service.filter(extender_args(made, ["n1"]))
        with pytest.raises(ExtenderError, match=reason):
            await scene.extender_service.bind(binding(pod, "n1"))


async def test_a_pods_own_expectation_does_not_prevent_its_binding() -> None:
    scene = Scene([read_node(wide("n1", 10, cpu="100m")), read_node(wide("n2", 10, cpu="100m"))])
    scene.list()
    first, second = put(scene, "a"), put(scene, "b")
    for name in ("a", "b"):
        scene.extender_service.prioritize(extender_args(wants(name), ["n1"]))
    await scene.extender_service.bind(binding(first, "n1"))
    with pytest.raises(ExtenderError, match="NodeResourcesFit"):
        await scene.extender_service.bind(binding(second, "n1"))
    await scene.extender_service.bind(binding(second, "n2"))


async def test_bind_checks_again_while_the_watch_is_behind() -> None:
    scene = Scene([read_node(wide("n1", 10, cpu="100m"))], uncertain_s=PATIENCE_S)
    there = replace(pending(wants("there")), node_name="n1")
    scene.cluster.put_pod(there)
    scene.list()
    pod = put(scene, "web")
    scene.extender_service.filter(extender_args(wants("web"), ["n1"]))
    waiting = asyncio.create_task(scene.extender_service.bind(binding(pod, "n1")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    scene.hear(PodDeleted(there))
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert scene.cluster.pod("default/web").node_name == "n1"


async def test_data_about_a_pod_that_the_watch_does_not_show_is_not_kept(scene: Scene) -> None:
    made = wants("web")
    made["metadata"]["labels"] = {f"k{i}": "v" for i in range(9000)}
    scene.extender_service.prioritize(extender_args(made, NAMES))
    record = scene.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert (record.decision.pod.labels, record.decision.has_basis) == ({}, False)
    known = put(scene, "web")
    scene.extender_service.prioritize(extender_args(made, NAMES))
    record = scene.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert record.decision.pod is known


async def test_only_the_newest_pending_decisions_keep_their_view(scene: Scene) -> None:
    for number in range(100):
        scene.extender_service.prioritize(extender_args(wants(f"p{number}"), NAMES))
    assert sum(decision.has_basis for decision in scene.extender_service._pending.values()) == 32
    assert scene.extender_service._pending["uid-p99"].has_basis


async def test_bind_runs_leadlines_own_filters_again(scene: Scene) -> None:
    first, second = put(scene, "a", 60), put(scene, "b", 60)
    scene.extender_service.prioritize(extender_args(wants("a", 60), ["n2", "n3"]))
    scene.extender_service.prioritize(
        extender_args(wants("b", 60), ["n2"])
    )  # where b is expected is no matter
    await scene.extender_service.bind(binding(first, "n2"))
    assert scene.free_mbps()["n2"] == -20
    with pytest.raises(ExtenderError, match=r"n2: Leadline NodeBandwidthFit: .* has 40"):
        await scene.extender_service.bind(binding(second, "n2"))
    assert scene.cluster.pod("default/b").node_name is None
    await scene.extender_service.bind(binding(second, "n3"))


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
    scene: Scene, wrong: dict[str, str], reason: str
) -> None:
    pod = put(scene, "web")
    for name in ("web", "gone"):
        scene.extender_service.filter(extender_args(wants(name), NAMES))
    with pytest.raises(ExtenderError, match=reason):
        await scene.extender_service.bind(replace(binding(pod, "n1"), **wrong))
    assert scene.cluster.pod("default/web").node_name is None


async def test_a_pod_recreated_meanwhile_is_not_bound(scene: Scene) -> None:
    """Our watch still shows the one before; the API server knows its uid no more."""
    pod = put(scene, "web")
    scene.extender_service.filter(extender_args(wants("web"), NAMES))
    scene.cluster.put_pod(replace(pod, uid="another"))
    with pytest.raises(ExtenderError, match="has another uid"):
        await scene.extender_service.bind(binding(pod, "n1"))


@pytest.mark.parametrize("error", [InvalidError("403: no"), UnavailableError("503: later")])
async def test_a_failed_binding_is_reported_and_takes_no_resources(
    scene: Scene, error: Exception
) -> None:
    pod = put(scene, "web", 60)
    scene.extender_service.prioritize(extender_args(wants("web", 60), NAMES))
    assert isinstance(error, InvalidError | UnavailableError)
    scene.cluster.fail_next_bind(error)
    with pytest.raises(ExtenderError, match=str(error)):
        await scene.extender_service.bind(binding(pod, "n2"))
    assert scene.free_mbps()["n2"] == 100
    assert scene.outcome("web")[1] == f"failed: {error}"
    await scene.extender_service.bind(binding(pod, "n2"))
    assert scene.outcome("web") == ("n2", BOUND)


async def test_a_binding_with_a_lost_answer_counts_when_the_watch_shows_it(
    scene: Scene,
) -> None:
    pod = put(scene, "web", 60)
    scene.extender_service.filter(extender_args(wants("web", 60), NAMES))
    scene.hear(PodChanged(replace(pod, node_name="n2")))
    await scene.extender_service.bind(binding(pod, "n2"))
    with pytest.raises(ExtenderError, match="pod default/web is on n2 already"):
        await scene.extender_service.bind(binding(pod, "n3"))
    assert scene.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}


async def test_a_failed_binding_that_the_watch_shows_was_successful() -> None:
    class Late(MemoryCluster):
        async def bind(self, pod: Pod, node: str) -> None:
            late.hear(PodChanged(replace(pod, node_name="n1")))
            raise ConflictError("409: is already assigned")

    late = Scene(cluster=Late(nodes_with_mbps(100, 100)))
    late.list()
    pod, other = put(late, "web", 60), put(late, "other", 60)
    for name in ("web", "other"):
        late.extender_service.filter(extender_args(wants(name, 60), NAMES[:2]))
    await late.extender_service.bind(binding(pod, "n1"))
    with pytest.raises(ExtenderError, match="409"):
        await late.extender_service.bind(binding(other, "n2"))
    assert late.free_mbps() == {"n1": -20, "n2": 100}


class Stuck(MemoryCluster):
    async def bind(self, pod: Pod, node: str) -> None:
        await asyncio.Event().wait()


async def test_a_cancelled_binding_takes_no_resources() -> None:
    scene = Scene(cluster=Stuck(nodes_with_mbps(100)))
    scene.list()
    pod = put(scene, "web", 60)
    scene.extender_service.filter(extender_args(wants("web", 60), ["n1"]))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await scene.extender_service.bind(binding(pod, "n1"))
    assert scene.free_mbps() == {"n1": 100}


async def test_before_the_first_list_there_are_no_answers() -> None:
    scene = Scene(nodes_with_mbps(10))
    assert "has not listed its nodes" in str(scene.extender_service.not_ready_reason())
    with pytest.raises(ExtenderError, match="has not listed"):
        await scene.extender_service.bind(ExtenderBindingArgs("default", "web", "u", "n1"))
    scene.list()
    assert scene.extender_service.not_ready_reason() is None


async def test_after_a_start_it_waits_for_the_agents_for_a_bounded_time() -> None:
    scene = Scene(nodes_with_mbps(10, 20), warm_up_s=15.0)
    scene.list()
    assert "the agents of 2 nodes, for 15 s at most" in str(
        scene.extender_service.not_ready_reason()
    )
    await scene.clock.advance(14.0)
    assert scene.extender_service.not_ready_reason()
    await scene.clock.advance(1.0)
    assert scene.extender_service.not_ready_reason() is None
    scene.hear(NodeChanged(read_node(wide("late", 1))))
    assert scene.extender_service.not_ready_reason() is None


async def test_the_number_of_pending_decisions_is_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_service, "_MAX_PENDING", 100)
    for number in range(200):
        scene.extender_service.filter(extender_args(wants(f"p{number}", 5000), ["n1"]))
    assert len(scene.extender_service._pending) == 100


async def test_every_filter_runs_on_whole_nodes_that_the_watch_has_not_shown() -> None:
    scene = Scene(nodes_with_mbps(10, 20), every_filter=True)
    resident = replace(pending(wants("there")), labels={"app": "web"}, node_name="n2")
    scene.cluster.put_pod(resident)
    scene.list()
    made = wants("web")
    made["metadata"]["labels"] = {"app": "web"}
    hostname, mine = "kubernetes.io/hostname", {"matchLabels": {"app": "web"}}
    required = [{"topologyKey": hostname, "labelSelector": mine}]
    made["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    made["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": hostname,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": mine,
        }
    ]
    sent = [wide("new", 30), wide("n1", 10), wide("n2", 20)]
    passing, failed = scene.extender_service.filter(extender_args(made, nodes=sent))
    assert passing == ["new", "n1"]
    assert "InterPodAffinity" in failed["n2"]
