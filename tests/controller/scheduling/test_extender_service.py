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
from leadline_controller.scheduling.extender_service import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderError,
)
from leadline_controller.snapshot.memory_cluster import MemoryCluster

from tests.controller.scheduling.extender_harness import (
    ExtenderHarness,
    extender_args,
    pending,
    pod_manifest,
    wide,
)
from tests.kube.objects import Object, node

PATIENCE_S = 20.0
NAMES = ["n1", "n2", "n3"]


def nodes_with_mbps(*mbps: float) -> list[Node]:
    return [read_node(wide(f"n{i}", each)) for i, each in enumerate(mbps, 1)]


@pytest.fixture
def harness() -> ExtenderHarness:
    """Three nodes, the third with the widest link and so the best for much data."""
    made = ExtenderHarness(nodes_with_mbps(10, 100, 1000))
    made.list()
    return made


def put(harness: ExtenderHarness, name: str, mbps: float | None = None) -> Pod:
    """A pod that our watch knows as well."""
    pod = harness.cluster.put_pod(pending(pod_manifest(name, mbps)))
    harness.hear(PodChanged(pod))
    return pod


def binding(pod: Pod, node: str) -> ExtenderBindingArgs:
    return ExtenderBindingArgs(pod.namespace, pod.name, pod.uid, node)


async def test_filter_runs_the_filters_that_kube_scheduler_lacks(harness: ExtenderHarness) -> None:
    passing, failed = harness.extender_service.filter(
        extender_args(pod_manifest("web", 50), ["n3", "n1", "n2"])
    )
    assert passing == ["n3", "n2"]
    assert failed == {
        "n1": "Leadline NodeBandwidthFit: insufficient bandwidth: needs 50 Mbit/s, has 10"
    }
    huge = pod_manifest("huge")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    assert harness.extender_service.filter(extender_args(huge, NAMES)) == (NAMES, {})


async def test_filter_runs_every_filter_if_configured() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10, 100), every_filter=True)
    harness.list()
    huge = pod_manifest("huge")
    huge["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    passing, failed = harness.extender_service.filter(extender_args(huge, ["n1", "n2"]))
    assert passing == []
    assert failed["n1"].startswith("Leadline NodeResourcesFit: insufficient cpu")
    claiming = pod_manifest("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    with pytest.raises(ExtenderError, match="resourceClaims"):
        harness.extender_service.filter(extender_args(claiming, ["n1"]))


async def test_demands_that_kube_scheduler_checks_are_no_obstacle(harness: ExtenderHarness) -> None:
    claiming = pod_manifest("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    assert harness.extender_service.filter(extender_args(claiming, NAMES)) == (NAMES, {})
    assert harness.extender_service.prioritize(extender_args(claiming, NAMES))["n3"] == 10


async def test_the_strategys_choice_has_priority_10_and_the_worst_0(
    harness: ExtenderHarness,
) -> None:
    ranks = harness.extender_service.prioritize(
        extender_args(pod_manifest("web", data_mb="100"), NAMES)
    )
    assert ranks == {"n1": 0, "n2": 9, "n3": 10}
    ranks = harness.extender_service.prioritize(
        extender_args(pod_manifest("web", data_mb="100"), ["n1", "n2"])
    )
    assert ranks == {"n1": 0, "n2": 10}


async def test_an_unknown_node_is_refused_and_not_scored(harness: ExtenderHarness) -> None:
    passing, failed = harness.extender_service.filter(
        extender_args(pod_manifest("web"), ["n1", "new"])
    )
    assert (passing, failed) == (["n1"], {"new": "Leadline does not know this node"})
    assert harness.extender_service.prioritize(
        extender_args(pod_manifest("web"), ["n1", "new"])
    ) == {"n1": 10}


async def test_only_unknown_nodes_are_an_error(harness: ExtenderHarness) -> None:
    arguments = extender_args(pod_manifest("web"), ["x", "y"])
    for ask in (harness.extender_service.filter, harness.extender_service.prioritize):
        with pytest.raises(ExtenderError, match="none of these nodes is known to Leadline, as 'x'"):
            ask(arguments)


async def test_whole_nodes_replace_those_of_the_watch(harness: ExtenderHarness) -> None:
    sent = [wide("n1", 500), wide("new", 700), wide("n3", 5)]
    passing, failed = harness.extender_service.filter(
        extender_args(pod_manifest("web", 50), nodes=sent)
    )
    assert passing == ["n1", "new"]
    assert failed.keys() == {"n3"}
    ranks = harness.extender_service.prioritize(
        extender_args(pod_manifest("web", data_mb="100"), nodes=sent)
    )
    assert ranks.keys() == {"n1", "new", "n3"}
    assert ranks["new"] == 10


async def test_an_unreadable_whole_node_is_refused(harness: ExtenderHarness) -> None:
    odd = node("n2")
    odd["status"]["allocatable"]["cpu"] = "lots"
    passing, failed = harness.extender_service.filter(
        extender_args(pod_manifest("web"), nodes=[odd, wide("n1", 10)])
    )
    assert passing == ["n1"]
    assert "allocatable.cpu" in failed["n2"]


async def test_for_many_nodes_equal_refusals_have_equal_reasons() -> None:
    harness = ExtenderHarness(nodes_with_mbps(*range(1, 31)))
    harness.list()
    names = [f"n{i}" for i in range(1, 31)]
    _, failed = harness.extender_service.filter(extender_args(pod_manifest("web", 50), names))
    assert set(failed.values()) == {"Leadline NodeBandwidthFit"}
    assert failed.keys() == set(names)


async def test_an_unknown_user_node_is_an_error_and_recorded(harness: ExtenderHarness) -> None:
    with pytest.raises(ExtenderError, match=r"annotation leadline.dev/user-node: .* 'mars'"):
        harness.extender_service.filter(extender_args(pod_manifest("web", user_node="mars"), NAMES))
    assert harness.outcome("web") == (None, PENDING)


async def test_a_recorded_decision_has_the_nodes_that_kube_scheduler_refused(
    harness: ExtenderHarness,
) -> None:
    harness.extender_service.filter(extender_args(pod_manifest("web", 50), ["n1", "n3", "n2"]))
    assert harness.decisions.get("default/web") is None  # it asks again, for the scores
    harness.extender_service.prioritize(extender_args(pod_manifest("web", 50), ["n3", "n2"]))
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert (record.strategy, record.outcome) == ("dacs", PENDING)
    assert record.decision.rejected()["n1"][0] == (
        "kube-scheduler: not among the nodes that it asked about"
    )


@pytest.mark.parametrize("mbps", [500, 5000])
async def test_filter_decides_when_at_most_one_node_is_left(
    harness: ExtenderHarness, mbps: float
) -> None:
    harness.extender_service.filter(extender_args(pod_manifest("web", mbps), NAMES))
    assert harness.outcome("web") == ("n3" if mbps == 500 else None, PENDING)


async def test_no_nodes_are_no_error(harness: ExtenderHarness) -> None:
    assert harness.extender_service.filter(extender_args(pod_manifest("web"), [])) == ([], {})


async def test_a_pod_counts_on_our_choice_until_the_watch_shows_its_node(
    harness: ExtenderHarness,
) -> None:
    pod = put(harness, "web", 60)
    arguments = extender_args(pod_manifest("web", 60, data_mb="100"), NAMES)
    harness.extender_service.filter(arguments)
    harness.extender_service.prioritize(arguments)
    assert harness.free_mbps() == {"n1": 10, "n2": 100, "n3": 940}
    harness.hear(PodChanged(replace(pod, node_name="n2")))
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}
    await harness.extender_service.close()
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}


async def test_a_burst_does_not_pile_up_on_one_link(harness: ExtenderHarness) -> None:
    best = []
    for name in ("a", "b", "c"):
        put(harness, name, 600)
        arguments = extender_args(pod_manifest(name, 600), NAMES)
        best.append(harness.extender_service.filter(arguments)[0])
    assert best == [["n3"], [], []]


@asynccontextmanager
async def waiting_for_bandwidth(
    harness: ExtenderHarness, arguments: ExtenderArgs
) -> AsyncIterator["asyncio.Task[None]"]:
    """Somebody who waits to learn where the pods before this one went."""
    waiting = asyncio.create_task(harness.extender_service.wait_for_bandwidth(arguments))
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
    harness = ExtenderHarness(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    harness.list()
    first, _ = put(harness, "a", 60), put(harness, "b", 60)
    arguments = extender_args(pod_manifest("a", 60, data_mb="100"), NAMES[:2])
    assert harness.extender_service.filter(arguments)[0] == ["n1", "n2"]
    assert harness.extender_service.prioritize(arguments)["n2"] == 10
    following = extender_args(pod_manifest("b", 60, data_mb="100"), NAMES[:2])
    async with waiting_for_bandwidth(harness, following) as waiting:
        assert not waiting.done()
        if bound_by_us:
            await harness.extender_service.bind(binding(first, "n1"))
        else:
            harness.hear(PodChanged(replace(first, node_name="n1")))
    assert harness.extender_service.filter(following)[0] == ["n2"]


async def test_the_wait_for_a_pod_that_kube_scheduler_gave_up_is_short() -> None:
    harness = ExtenderHarness(nodes_with_mbps(100, 1000), uncertain_s=0.05)
    harness.list()
    put(harness, "a", 60)
    put(harness, "b", 60)
    harness.extender_service.prioritize(extender_args(pod_manifest("a", 60), NAMES[:2]))
    for _ in range(2):
        async with waiting_for_bandwidth(harness, extender_args(pod_manifest("b", 60), NAMES[:2])):
            pass
    assert harness.free_mbps() in ({"n1": 40, "n2": 1000}, {"n1": 100, "n2": 940})


async def test_a_pod_that_the_watch_does_not_show_yet_waits() -> None:
    harness = ExtenderHarness(nodes_with_mbps(100), uncertain_s=PATIENCE_S)
    harness.list()
    async with waiting_for_bandwidth(
        harness, extender_args(pod_manifest("new", 60), ["n1"])
    ) as waiting:
        assert not waiting.done()
        put(harness, "new", 60)
    harness.extender_service.filter(extender_args(pod_manifest("new", 60), ["n1"]))
    assert harness.free_mbps() == {"n1": 40}


async def test_a_pod_without_bandwidth_or_with_a_certain_node_delays_no_other() -> None:
    harness = ExtenderHarness(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    harness.list()
    for name, mbps in (("any", None), ("wide", 500), ("next", 60), ("last", None)):
        put(harness, name, mbps)
    harness.extender_service.prioritize(extender_args(pod_manifest("any"), NAMES[:2]))
    harness.extender_service.filter(
        extender_args(pod_manifest("wide", 500), NAMES[:2])
    )  # one node only
    async with waiting_for_bandwidth(
        harness, extender_args(pod_manifest("next", 60), NAMES[:2])
    ) as waiting:
        assert waiting.done()
    harness.extender_service.prioritize(extender_args(pod_manifest("next", 60), NAMES[:2]))
    for name, mbps in (("last", None), ("next", 60)):  # itself again
        async with waiting_for_bandwidth(
            harness, extender_args(pod_manifest(name, mbps), NAMES[:2])
        ) as waiting:
            assert waiting.done()


@pytest.mark.parametrize(("mbps", "waits"), [(4, False), (50, True), (100, True), (170, False)])
async def test_a_pod_does_not_wait_if_the_others_make_no_difference(
    mbps: float, waits: bool
) -> None:
    harness = ExtenderHarness(nodes_with_mbps(100, 1000), uncertain_s=PATIENCE_S)
    harness.list()
    first, _ = put(harness, "first", 60), put(harness, "second", mbps)
    harness.extender_service.prioritize(
        extender_args(pod_manifest("first", 60, data_mb="1"), NAMES[:2])
    )
    async with waiting_for_bandwidth(
        harness, extender_args(pod_manifest("second", mbps), NAMES[:2])
    ) as waiting:
        assert waiting.done() != waits
        harness.hear(PodChanged(replace(first, node_name="n1")))


async def test_a_second_call_does_not_count_the_pod_itself(harness: ExtenderHarness) -> None:
    put(harness, "web", 600)
    for _ in range(3):
        assert harness.extender_service.filter(extender_args(pod_manifest("web", 600), NAMES))[
            0
        ] == ["n3"]


async def test_an_expectation_expires() -> None:
    harness = ExtenderHarness(nodes_with_mbps(1000), expected_s=0.05)
    harness.list()
    put(harness, "web", 600)
    harness.extender_service.filter(extender_args(pod_manifest("web", 600), ["n1"]))
    assert harness.free_mbps() == {"n1": 400}
    for _ in range(100):
        await asyncio.sleep(0.02)
        if harness.free_mbps() == {"n1": 1000}:
            break
    assert harness.free_mbps() == {"n1": 1000}


async def test_close_withdraws_expected_pods(harness: ExtenderHarness) -> None:
    put(harness, "web", 600)
    harness.extender_service.filter(extender_args(pod_manifest("web", 600), NAMES))
    await harness.extender_service.close()
    assert harness.free_mbps()["n3"] == 1000


async def test_a_deleted_pod_leaves_nothing_behind(harness: ExtenderHarness) -> None:
    pod = put(harness, "web", 600)
    harness.extender_service.filter(extender_args(pod_manifest("web", 600), NAMES))
    harness.hear(PodDeleted(pod))
    assert harness.free_mbps()["n3"] == 1000
    again = Pod("default", "web", uid="another", node_name="n1")
    harness.hear(PodChanged(again))
    assert harness.outcome("web") == ("n3", PENDING)


async def test_the_watch_shows_the_pod_on_our_choice(harness: ExtenderHarness) -> None:
    pod = put(harness, "web")
    harness.extender_service.prioritize(extender_args(pod_manifest("web", data_mb="100"), NAMES))
    harness.hear(PodChanged(replace(pod, node_name="n3")))
    assert harness.outcome("web") == ("n3", BOUND)
    await harness.extender_service.close()
    (seen,) = harness.cluster.events
    assert (seen.event.type, seen.event.reason) == ("Normal", "Advised")
    assert seen.event.message.startswith("n3 by dacs: ")


async def test_the_watch_shows_that_kube_scheduler_chose_another_node(
    harness: ExtenderHarness,
) -> None:
    pod = put(harness, "web")
    harness.extender_service.prioritize(extender_args(pod_manifest("web", data_mb="100"), NAMES))
    harness.hear(Relisted(tuple(harness.cluster.nodes), (replace(pod, node_name="n2"),)))
    assert harness.outcome("web") == ("n2", BOUND)
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert record.why.startswith("kube-scheduler chose it, which has 9 of 10, over n3: ")
    assert record.decision.scores().keys() == set(NAMES)
    await harness.extender_service.close()
    assert harness.cluster.events[0].event.message.startswith("n2 by dacs: kube-scheduler chose it")


async def test_only_the_newest_decisions_keep_their_view(harness: ExtenderHarness) -> None:
    pods = [put(harness, f"web-{i}") for i in range(40)]
    for pod in pods:
        harness.extender_service.prioritize(
            extender_args(pod_manifest(pod.name, data_mb="100"), NAMES)
        )
    detailed = [uid for uid, each in harness.extender_service._pending.items() if each.has_basis]
    assert detailed == [pod.uid for pod in pods[-32:]]
    harness.hear(PodChanged(replace(pods[0], node_name="n2")))
    record = harness.decisions.get("default/web-0")
    assert record is not None
    assert record.why.startswith("kube-scheduler chose it over n3: ")
    await harness.extender_service.close()


async def test_the_watch_shows_a_pod_bound_against_our_decision(harness: ExtenderHarness) -> None:
    pod = put(harness, "web", 5000)
    harness.extender_service.filter(extender_args(pod_manifest("web", 5000), NAMES))
    harness.hear(PodChanged(replace(pod, node_name="n2")))
    record = harness.decisions.get("default/web")
    assert record is not None
    assert (record.node, record.outcome) == ("n2", BOUND)
    assert record.why.startswith("kube-scheduler chose it without Leadline")


async def test_an_event_that_cannot_be_written_is_ignored(harness: ExtenderHarness) -> None:
    pod = put(harness, "web")
    harness.extender_service.prioritize(extender_args(pod_manifest("web"), NAMES))
    harness.cluster.fail_next_event(UnavailableError("503"))
    harness.hear(PodChanged(replace(pod, node_name="n3")))
    await harness.extender_service.close()
    assert harness.cluster.events == ()
    assert harness.outcome("web")[1] == BOUND


async def test_bind_binds_exactly_this_pod(harness: ExtenderHarness) -> None:
    pod = put(harness, "web", 60)
    harness.extender_service.prioritize(extender_args(pod_manifest("web", 60), NAMES))
    await harness.extender_service.bind(binding(pod, "n2"))
    assert harness.cluster.pod("default/web").node_name == "n2"
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}
    assert harness.outcome("web") == ("n2", BOUND)


async def test_bind_waits_a_moment_for_the_watch() -> None:
    """The filters look at the pod as the API server has it, not as anybody says that it is."""
    harness = ExtenderHarness(nodes_with_mbps(10), uncertain_s=PATIENCE_S)
    harness.list()
    pod = harness.cluster.put_pod(pending(pod_manifest("new")))
    harness.extender_service.filter(extender_args(pod_manifest("new"), ["n1"]))
    waiting = asyncio.create_task(harness.extender_service.bind(binding(pod, "n1")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    harness.hear(PodChanged(pod))
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert harness.cluster.pod("default/new").node_name == "n1"


async def test_a_pod_that_the_watch_never_shows_is_not_bound(harness: ExtenderHarness) -> None:
    pod = harness.cluster.put_pod(pending(pod_manifest("new")))
    harness.extender_service.filter(extender_args(pod_manifest("new"), NAMES))
    with pytest.raises(ExtenderError, match="the API server does not show pod default/new"):
        await harness.extender_service.bind(binding(pod, "n1"))
    assert harness.cluster.pod("default/new").node_name is None


async def test_bind_refuses_pods_without_an_earlier_call(harness: ExtenderHarness) -> None:
    pod, other = put(harness, "web"), put(harness, "other")
    harness.extender_service.prioritize(extender_args(pod_manifest("other"), NAMES))
    with pytest.raises(
        ExtenderError, match="uid uid-web: no filter or prioritize call named this pod within 900"
    ):
        await harness.extender_service.bind(binding(pod, "n1"))
    await harness.clock.advance(899.0)
    await harness.extender_service.bind(binding(other, "n1"))


async def test_bind_refuses_pods_whose_last_call_is_too_old(harness: ExtenderHarness) -> None:
    pod = put(harness, "web")
    harness.extender_service.filter(extender_args(pod_manifest("web"), NAMES))
    await harness.clock.advance(901.0)
    with pytest.raises(ExtenderError, match="no filter or prioritize call"):
        await harness.extender_service.bind(binding(pod, "n1"))
    harness.hear(PodDeleted(pod))
    assert not harness.extender_service._called_s


async def test_the_number_of_remembered_calls_is_bounded(
    harness: ExtenderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_service, "_MAX_CALLED", 100)
    for number in range(200):
        harness.extender_service.filter(extender_args(pod_manifest(f"p{number}"), []))
    assert len(harness.extender_service._called_s) == 100
    harness.extender_service.filter(
        extender_args({**pod_manifest("web"), "metadata": {"name": "w", "uid": "x" * 999}}, [])
    )
    assert not any(len(uid) > 253 for uid in harness.extender_service._called_s)
    assert not any(len(uid) > 253 for uid in harness.extender_service._pending)


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
    harness = ExtenderHarness([read_node(node)])
    harness.list()
    made = pod_manifest("web")
    made["spec"] |= spec
    pod = harness.cluster.put_pod(pending(made))
    harness.hear(PodChanged(pod))
    assert harness.extender_service.filter(extender_args(made, ["n1"])) == (
        ["n1"],
        {},
    )  # kube-scheduler's to say
    with pytest.raises(ExtenderError, match=reason):
        await harness.extender_service.bind(binding(pod, "n1"))
    assert harness.cluster.pod("default/web").node_name is None


async def test_bind_accepts_demands_that_only_kube_scheduler_models() -> None:
    """A DaemonSet's pod goes to a node that is not ready; resource claims and kinds of volumes
    that no filter of ours knows are kube-scheduler's to judge."""
    harness = ExtenderHarness([read_node(wide("n1", 10, ready=False))])
    harness.list()
    made = pod_manifest("web")
    made["spec"] |= {
        "resourceClaims": [{"name": "gpu"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "unheard-of"}}],
    }
    pod = harness.cluster.put_pod(pending(made))
    harness.hear(PodChanged(pod))
    harness.extender_service.filter(extender_args(made, ["n1"]))
    await harness.extender_service.bind(binding(pod, "n1"))
    assert harness.cluster.pod("default/web").node_name == "n1"


async def test_with_every_filter_bind_refuses_demands_that_leadline_does_not_model() -> None:
    harness = ExtenderHarness([read_node(wide("n1", 10, ready=False))], every_filter=True)
    harness.list()
    claiming = pod_manifest("claims")
    claiming["spec"]["resourceClaims"] = [{"name": "gpu"}]
    for made, reason in ((pod_manifest("web"), "NodeReady"), (claiming, "resourceClaims")):
        pod = harness.cluster.put_pod(pending(made))
        harness.hear(PodChanged(pod))
        with suppress(ExtenderError):
            harness.extender_service.filter(extender_args(made, ["n1"]))
        with pytest.raises(ExtenderError, match=reason):
            await harness.extender_service.bind(binding(pod, "n1"))


async def test_a_pods_own_expectation_does_not_prevent_its_binding() -> None:
    harness = ExtenderHarness(
        [read_node(wide("n1", 10, cpu="100m")), read_node(wide("n2", 10, cpu="100m"))]
    )
    harness.list()
    first, second = put(harness, "a"), put(harness, "b")
    for name in ("a", "b"):
        harness.extender_service.prioritize(extender_args(pod_manifest(name), ["n1"]))
    await harness.extender_service.bind(binding(first, "n1"))
    with pytest.raises(ExtenderError, match="NodeResourcesFit"):
        await harness.extender_service.bind(binding(second, "n1"))
    await harness.extender_service.bind(binding(second, "n2"))


async def test_bind_checks_again_while_the_watch_is_behind() -> None:
    harness = ExtenderHarness([read_node(wide("n1", 10, cpu="100m"))], uncertain_s=PATIENCE_S)
    there = replace(pending(pod_manifest("there")), node_name="n1")
    harness.cluster.put_pod(there)
    harness.list()
    pod = put(harness, "web")
    harness.extender_service.filter(extender_args(pod_manifest("web"), ["n1"]))
    waiting = asyncio.create_task(harness.extender_service.bind(binding(pod, "n1")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    harness.hear(PodDeleted(there))
    async with asyncio.timeout(PATIENCE_S):
        await waiting
    assert harness.cluster.pod("default/web").node_name == "n1"


async def test_data_about_a_pod_that_the_watch_does_not_show_is_not_kept(
    harness: ExtenderHarness,
) -> None:
    made = pod_manifest("web")
    made["metadata"]["labels"] = {f"k{i}": "v" for i in range(9000)}
    harness.extender_service.prioritize(extender_args(made, NAMES))
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert (record.decision.pod.labels, record.decision.has_basis) == ({}, False)
    known = put(harness, "web")
    harness.extender_service.prioritize(extender_args(made, NAMES))
    record = harness.decisions.get("default/web")
    assert record is not None
    assert record.decision is not None
    assert record.decision.pod is known


async def test_only_the_newest_pending_decisions_keep_their_view(harness: ExtenderHarness) -> None:
    for number in range(100):
        harness.extender_service.prioritize(extender_args(pod_manifest(f"p{number}"), NAMES))
    assert sum(decision.has_basis for decision in harness.extender_service._pending.values()) == 32
    assert harness.extender_service._pending["uid-p99"].has_basis


async def test_bind_runs_leadlines_own_filters_again(harness: ExtenderHarness) -> None:
    first, second = put(harness, "a", 60), put(harness, "b", 60)
    harness.extender_service.prioritize(extender_args(pod_manifest("a", 60), ["n2", "n3"]))
    harness.extender_service.prioritize(
        extender_args(pod_manifest("b", 60), ["n2"])
    )  # where b is expected is no matter
    await harness.extender_service.bind(binding(first, "n2"))
    assert harness.free_mbps()["n2"] == -20
    with pytest.raises(ExtenderError, match=r"n2: Leadline NodeBandwidthFit: .* has 40"):
        await harness.extender_service.bind(binding(second, "n2"))
    assert harness.cluster.pod("default/b").node_name is None
    await harness.extender_service.bind(binding(second, "n3"))


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
    pod = put(harness, "web")
    for name in ("web", "gone"):
        harness.extender_service.filter(extender_args(pod_manifest(name), NAMES))
    with pytest.raises(ExtenderError, match=reason):
        await harness.extender_service.bind(replace(binding(pod, "n1"), **wrong))
    assert harness.cluster.pod("default/web").node_name is None


async def test_a_pod_recreated_meanwhile_is_not_bound(harness: ExtenderHarness) -> None:
    """Our watch still shows the one before; the API server knows its uid no more."""
    pod = put(harness, "web")
    harness.extender_service.filter(extender_args(pod_manifest("web"), NAMES))
    harness.cluster.put_pod(replace(pod, uid="another"))
    with pytest.raises(ExtenderError, match="has another uid"):
        await harness.extender_service.bind(binding(pod, "n1"))


@pytest.mark.parametrize("error", [InvalidError("403: no"), UnavailableError("503: later")])
async def test_a_failed_binding_is_reported_and_takes_no_resources(
    harness: ExtenderHarness, error: Exception
) -> None:
    pod = put(harness, "web", 60)
    harness.extender_service.prioritize(extender_args(pod_manifest("web", 60), NAMES))
    assert isinstance(error, InvalidError | UnavailableError)
    harness.cluster.fail_next_bind(error)
    with pytest.raises(ExtenderError, match=str(error)):
        await harness.extender_service.bind(binding(pod, "n2"))
    assert harness.free_mbps()["n2"] == 100
    assert harness.outcome("web")[1] == f"failed: {error}"
    await harness.extender_service.bind(binding(pod, "n2"))
    assert harness.outcome("web") == ("n2", BOUND)


async def test_a_binding_with_a_lost_answer_counts_when_the_watch_shows_it(
    harness: ExtenderHarness,
) -> None:
    pod = put(harness, "web", 60)
    harness.extender_service.filter(extender_args(pod_manifest("web", 60), NAMES))
    harness.hear(PodChanged(replace(pod, node_name="n2")))
    await harness.extender_service.bind(binding(pod, "n2"))
    with pytest.raises(ExtenderError, match="pod default/web is on n2 already"):
        await harness.extender_service.bind(binding(pod, "n3"))
    assert harness.free_mbps() == {"n1": 10, "n2": 40, "n3": 1000}


async def test_a_failed_binding_that_the_watch_shows_was_successful() -> None:
    class Late(MemoryCluster):
        async def bind(self, pod: Pod, node: str) -> None:
            late.hear(PodChanged(replace(pod, node_name="n1")))
            raise ConflictError("409: is already assigned")

    late = ExtenderHarness(cluster=Late(nodes_with_mbps(100, 100)))
    late.list()
    pod, other = put(late, "web", 60), put(late, "other", 60)
    for name in ("web", "other"):
        late.extender_service.filter(extender_args(pod_manifest(name, 60), NAMES[:2]))
    await late.extender_service.bind(binding(pod, "n1"))
    with pytest.raises(ExtenderError, match="409"):
        await late.extender_service.bind(binding(other, "n2"))
    assert late.free_mbps() == {"n1": -20, "n2": 100}


class Stuck(MemoryCluster):
    async def bind(self, pod: Pod, node: str) -> None:
        await asyncio.Event().wait()


async def test_a_cancelled_binding_takes_no_resources() -> None:
    harness = ExtenderHarness(cluster=Stuck(nodes_with_mbps(100)))
    harness.list()
    pod = put(harness, "web", 60)
    harness.extender_service.filter(extender_args(pod_manifest("web", 60), ["n1"]))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await harness.extender_service.bind(binding(pod, "n1"))
    assert harness.free_mbps() == {"n1": 100}


async def test_before_the_first_list_there_are_no_answers() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10))
    assert "has not listed its nodes" in str(harness.extender_service.not_ready_reason())
    with pytest.raises(ExtenderError, match="has not listed"):
        await harness.extender_service.bind(ExtenderBindingArgs("default", "web", "u", "n1"))
    harness.list()
    assert harness.extender_service.not_ready_reason() is None


async def test_after_a_start_it_waits_for_the_agents_for_a_bounded_time() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10, 20), warm_up_s=15.0)
    harness.list()
    assert "the agents of 2 nodes, for 15 s at most" in str(
        harness.extender_service.not_ready_reason()
    )
    await harness.clock.advance(14.0)
    assert harness.extender_service.not_ready_reason()
    await harness.clock.advance(1.0)
    assert harness.extender_service.not_ready_reason() is None
    harness.hear(NodeChanged(read_node(wide("late", 1))))
    assert harness.extender_service.not_ready_reason() is None


async def test_the_number_of_pending_decisions_is_bounded(
    harness: ExtenderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_service, "_MAX_PENDING", 100)
    for number in range(200):
        harness.extender_service.filter(extender_args(pod_manifest(f"p{number}", 5000), ["n1"]))
    assert len(harness.extender_service._pending) == 100


async def test_every_filter_runs_on_whole_nodes_that_the_watch_has_not_shown() -> None:
    harness = ExtenderHarness(nodes_with_mbps(10, 20), every_filter=True)
    resident = replace(pending(pod_manifest("there")), labels={"app": "web"}, node_name="n2")
    harness.cluster.put_pod(resident)
    harness.list()
    made = pod_manifest("web")
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
    passing, failed = harness.extender_service.filter(extender_args(made, nodes=sent))
    assert passing == ["new", "n1"]
    assert "InterPodAffinity" in failed["n2"]


@pytest.mark.parametrize(("label_count", "keeps_its_view"), [(10, True), (20_000, False)])
async def test_a_decision_over_given_nodes_keeps_its_view_only_while_they_are_small(
    harness: ExtenderHarness, label_count: int, keeps_its_view: bool
) -> None:
    """Callers could fill the memory with nodes of their own; the answer is the same."""
    given = [wide(name, 100) for name in NAMES]
    given[0]["metadata"]["labels"] |= {f"k{i}": f"v{i}" for i in range(label_count)}
    pod = put(harness, "web")
    arguments = extender_args(pod_manifest("web"), nodes=given)
    assert harness.extender_service.prioritize(arguments).keys() == set(NAMES)
    record = harness.decisions.get(pod.key)
    assert record is not None
    assert record.decision is not None
    assert record.decision.has_basis == keeps_its_view
    assert harness.extender_service._pending[pod.uid].has_basis == keeps_its_view
