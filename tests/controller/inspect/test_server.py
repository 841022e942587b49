"""The inspection service over gRPC: its answers, its errors and its watches."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from leadline_controller import __version__
from leadline_controller.cli.decisions import explanation_tables
from leadline_controller.framework.model import PODS
from leadline_controller.framework.ports import NodeDeleted, PodChanged
from leadline_controller.history.log import BOUND, PENDING
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.placements import why_unexplained
from leadline_controller.inspect.server import SERVICE, InspectionServer
from leadline_controller.probing.scheduler import ProbingStatus
from leadline_controller.serve.settings import ServeSettings
from leadline_controller.telemetry.bandwidth_tests import BandwidthTest
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc

from tests.controller.inspect.harness import NAN, ControllerHarness, next_event, pod

if TYPE_CHECKING:  # the generated code has the name for type checkers only
    from leadline_wire.v1.control_pb2_grpc import InspectionAsyncStub as Stub

    Stream = grpc.aio.UnaryStreamCall[pb.WatchRequest, pb.WatchEvent]
else:
    Stub = control_pb2_grpc.InspectionStub
    Stream = grpc.aio.UnaryStreamCall


def metrics(status: pb.NodeStatus) -> dict[str, float]:
    return {metric.name: metric.value for metric in status.metrics}


async def nodes_of(stub: Stub) -> dict[str, pb.NodeStatus]:
    response = await stub.ListNodes(pb.ListNodesRequest())
    return {status.name: status for status in response.nodes}


async def test_version_returns_version_cluster_and_strategy(stub: Stub) -> None:
    response = await stub.GetVersion(pb.GetVersionRequest())
    assert (response.version, response.cluster, response.strategy) == (
        __version__,
        "lab",
        "netsched",
    )


async def test_version_returns_the_leader(harness: ControllerHarness, stub: Stub) -> None:
    leads = await stub.GetVersion(pb.GetVersionRequest())
    harness.turn.leading, harness.turn.named = False, "another"
    stands_by = await stub.GetVersion(pb.GetVersionRequest())
    assert (leads.leader, leads.lease_holder) == (True, "this-one")
    assert (stands_by.leader, stands_by.lease_holder) == (False, "another")


async def test_a_standby_names_the_leader_that_can_explain(
    harness: ControllerHarness, stub: Stub
) -> None:
    harness.turn.leading, harness.turn.named = False, "another"
    harness.cluster.apply(PodChanged(pod("new")))
    with pytest.raises(grpc.aio.AioRpcError, match=r"stands by.*another"):
        await stub.ExplainPod(pb.ExplainPodRequest(pod="new"))
    # It can still explain the decisions that it made before it lost the Lease.
    assert (await stub.ExplainPod(pb.ExplainPodRequest(pod="web-1"))).placement.pod


async def test_health_answers_for_the_server_and_for_the_service(channel: grpc.aio.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ("", SERVICE):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="leadline.v1.Nothing"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_services(channel: grpc.aio.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
    answers = [each async for each in stub.ServerReflectionInfo(iter(requests))]
    listed = {service.name for service in answers[0].list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= listed


async def test_nodes_are_those_of_the_cluster_and_of_all_agents(stub: Stub) -> None:
    nodes = await nodes_of(stub)
    assert list(nodes) == ["guest", "n1", "n2", "n3"]
    assert [status.in_cluster for status in nodes.values()] == [False, True, True, True]
    assert list(nodes["guest"].notes) == ["not in the cluster"]
    assert list(nodes["n1"].notes) == []
    assert list(nodes["n2"].notes) == ["cordoned", "under-voltage", "throttled"]
    assert list(nodes["n3"].notes) == ["agent never heard"]


async def test_a_node_has_its_measurements_with_their_age(stub: Stub) -> None:
    n1 = (await nodes_of(stub))["n1"]
    assert metrics(n1)["cpu_percent"] == 12.5
    assert metrics(n1)["cpu_celsius"] == 51.0
    by_name = {metric.name: metric for metric in n1.metrics}
    assert by_name["cpu_percent"].age_s == pytest.approx(13.0)
    assert by_name["cpu_celsius"].age_s == pytest.approx(13.0)
    assert by_name["bandwidth_mbps"].lower_bound
    assert not by_name["cpu_percent"].lower_bound
    assert (n1.agent, n1.agent_version, n1.hardware_model) == ("online", "0.1.0", "Pi 4")
    assert n1.report_age_s == pytest.approx(13.0)


async def test_a_bandwidth_that_a_test_contradicts_is_suspect(
    harness: ControllerHarness, stub: Stub
) -> None:
    harness.telemetry.bandwidth(BandwidthTest("n2", "n1", 94.9, 0.1, harness.now_s))
    harness.telemetry.bandwidth(BandwidthTest("n2", "n1", 9.0, 0.1, harness.now_s))
    by_name = {metric.name: metric for metric in (await nodes_of(stub))["n2"].metrics}
    assert by_name["bandwidth_mbps"].suspect
    assert by_name["bandwidth_mbps"].value == 9.0  # until another test decides
    assert (by_name["bandwidth_mbps"].source, by_name["cpu_percent"].source) == ("tests", "")
    assert not by_name["cpu_percent"].suspect


async def test_the_budget_is_that_of_the_probe_scheduler(
    harness: ControllerHarness, stub: Stub
) -> None:
    answer = await stub.GetBudget(pb.GetBudgetRequest())
    assert [status.name for status in answer.nodes] == ["n1", "n2"]
    assert (answer.nodes[0].day_bytes, answer.nodes[0].day_bytes_left) == (500_000_000,) * 2
    assert not answer.uplinks[0].HasField("pings_per_minute")
    assert (answer.running[0].client, list(answer.running[0].uplinks)) == ("n1", ["lte"])
    assert (answer.leader, answer.lease_holder) == (True, "this-one")
    harness.budget = ProbingStatus()
    assert not (await stub.GetBudget(pb.GetBudgetRequest())).nodes


async def test_unknown_values_are_absent(stub: Stub) -> None:
    nodes = await nodes_of(stub)
    assert "memory_percent" not in metrics(nodes["n2"])
    assert not nodes["n3"].metrics
    assert not nodes["n3"].HasField("report_age_s")
    assert nodes["n3"].agent == "unknown"


async def test_values_that_are_not_finite_are_left_out(
    harness: ControllerHarness, stub: Stub
) -> None:
    harness.report("n1", cpu_percent=math.inf, memory_percent=NAN, cpu_celsius=NAN)
    for status in (await nodes_of(stub)).values():
        assert all(math.isfinite(metric.value) for metric in status.metrics)
    explained = await stub.ExplainPod(pb.ExplainPodRequest(pod="web-1"))
    assert explained.scores
    for score in explained.scores:
        assert all(math.isfinite(part) for part in score.parts.values())


async def test_an_expired_report_is_unknown_but_has_its_age(
    harness: ControllerHarness, stub: Stub
) -> None:
    harness.now_s += 600
    n1 = (await nodes_of(stub))["n1"]
    assert list(metrics(n1)) == ["bandwidth_mbps"]
    assert n1.report_age_s == pytest.approx(613.0)
    assert list(n1.notes) == ["no fresh report"]


async def test_pods_and_requests_of_a_node_are_counted(
    harness: ControllerHarness, stub: Stub
) -> None:
    before = (await nodes_of(stub))["n1"]
    harness.cluster.apply(PodChanged(pod("by-hand", cpu_milli=250, node_name="n1")))
    harness.cluster.apply(PodChanged(pod("done", node_name="n1", finished=True)))
    after = (await nodes_of(stub))["n1"]
    assert after.pods == before.pods + 1
    assert after.requested.cpu_milli == before.requested.cpu_milli + 250
    assert after.allocatable.cpu_milli == 4000
    assert after.allocatable.pods == harness.cluster.nodes()["n1"].allocatable[PODS]


async def test_an_agent_that_left_and_one_that_lost_messages(
    harness: ControllerHarness, stub: Stub
) -> None:
    harness.telemetry.status("n1", bytes(16), 1, online=False)
    for _ in range(3):
        harness.stamp("n2")  # sent, never arrived
    harness.report("n2")
    nodes = await nodes_of(stub)
    assert nodes["n1"].agent == "offline"
    assert "agent offline" in nodes["n1"].notes
    assert nodes["n2"].lost_messages == 3
    assert "3 messages lost" in nodes["n2"].notes


async def test_one_node_with_its_links_and_pods(harness: ControllerHarness, stub: Stub) -> None:
    response = await stub.GetNode(pb.GetNodeRequest(name="n1"))
    assert response.node.name == "n1"
    (link,) = response.links
    assert (link.a, link.b, link.rtt_method) == ("n1", "n2", "icmp")
    assert link.rtt_ms == pytest.approx(0.42)
    assert link.bandwidth_is_lower_bound
    placed = harness.decisions.get("default/web-1")
    assert placed is not None
    assert placed.node == "n1"
    assert "default/web-1" in response.placed_pods


async def test_links_and_blocks_of_a_node_do_not_hold_up_the_event_loop(
    harness: ControllerHarness, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def recorded(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return method(*arguments)

        return call

    monkeypatch.setattr(NodeReader, "links_of", recorded(NodeReader.links_of))
    monkeypatch.setattr(harness.sampler, "block", recorded(harness.sampler.block))
    await stub.GetNode(pb.GetNodeRequest(name="n1", history=pb.GetHistoryRequest()))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_an_unknown_node_is_not_found(stub: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetNode(pb.GetNodeRequest(name="n9"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert "no node 'n9'" in str(caught.value.details())


async def test_matrix_holds_all_nodes_and_the_links_known(stub: Stub) -> None:
    response = await stub.GetMatrix(pb.GetMatrixRequest())
    assert list(response.nodes) == ["guest", "n1", "n2", "n3"]
    (link,) = response.links
    assert link.bandwidth_mbps == pytest.approx(94.9)
    assert link.bandwidth_age_s == pytest.approx(130.0)


async def test_placements_from_the_oldest_and_by_age(stub: Stub) -> None:
    response = await stub.ListPlacements(pb.ListPlacementsRequest())
    assert [(each.pod, each.outcome) for each in response.placements] == [
        ("default/web-1", BOUND),
        ("default/huge", PENDING),
        ("default/web-2", "failed: the API server refused it"),
    ]
    assert [each.age_s for each in response.placements] == [10.0, 5.0, 0.0]
    recent = await stub.ListPlacements(pb.ListPlacementsRequest(since_s=6))
    assert [each.pod for each in recent.placements] == ["default/huge", "default/web-2"]


@pytest.mark.parametrize("since_s", [-1.0, NAN, math.inf])
async def test_an_invalid_age_is_refused(stub: Stub, since_s: float) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListPlacements(pb.ListPlacementsRequest(since_s=since_s))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_explain_returns_the_reason_and_the_refused_nodes(stub: Stub) -> None:
    explained = await stub.ExplainPod(pb.ExplainPodRequest(pod="web-1"))
    assert explained.placement.node == "n1"
    assert explained.placement.why.startswith("best in")
    assert explained.better == "higher"
    assert dict(explained.options) == {"alpha": "0.5"}
    totals = {score.node: score.total for score in explained.scores if score.HasField("total")}
    assert max(totals, key=totals.__getitem__) == "n1"
    assert "n3" not in totals  # nothing was measured there, so it has no total
    rejected = {each.node: list(each.reasons) for each in explained.rejected}
    assert list(rejected) == ["n2"]
    assert rejected["n2"][0].startswith("NodeUnschedulable: ")


async def test_explain_tells_when_a_scale_down_removes_the_pod(
    harness: ControllerHarness, stub: Stub
) -> None:
    for name, cost in (("web-2", 999_000_000), ("web-1", 999_500_000), ("web-3", 1_000_000_000)):
        made = pod(name, node_name="n1", labels={"app": "web"}, deletion_cost=cost)
        harness.cluster.apply(PodChanged(made))
    harness.cluster.apply(PodChanged(pod("web-4", node_name="n1", labels={"app": "web"})))
    explained = await stub.ExplainPod(pb.ExplainPodRequest(pod="web-1"))
    assert (explained.removed_as, explained.removed_of) == (2, 3)
    assert "a scale-down removes it as 2 of 3" in map(str, explanation_tables(explained))


async def test_explain_returns_why_a_pod_fits_nowhere(stub: Stub) -> None:
    explained = await stub.ExplainPod(pb.ExplainPodRequest(pod="default/huge"))
    assert explained.placement.node == ""
    assert not explained.scores
    assert {each.node for each in explained.rejected} == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("nobody", "the cluster has no such pod"),
        ("other/nobody", "pod other/nobody"),
        ("foreign", "schedulerName is default-scheduler"),
        ("waiting", "pending and nothing is decided"),
        ("old", "not remembered any more"),
    ],
)
async def test_explain_says_why_there_is_no_decision(
    harness: ControllerHarness, stub: Stub, key: str, reason: str
) -> None:
    harness.cluster.apply(PodChanged(pod("foreign", scheduler_name="default-scheduler")))
    harness.cluster.apply(PodChanged(pod("waiting")))
    harness.cluster.apply(PodChanged(pod("old", node_name="n1")))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ExplainPod(pb.ExplainPodRequest(pod=key))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert reason in str(caught.value.details())
    assert "\n" not in str(caught.value.details())


def test_explain_says_which_scheduler_a_pod_belongs_to(harness: ControllerHarness) -> None:
    theirs = pod("theirs", scheduler_name="default-scheduler")
    harness.cluster.apply(PodChanged(theirs))
    harness.cluster.apply(PodChanged(pod("ours")))
    source = replace(harness.source, advises=True)
    reason = why_unexplained(source, "default/theirs")
    assert reason == (
        "pod default/theirs is pending: kube-scheduler places it (schedulerName "
        "default-scheduler), and has not asked Leadline about it lately"
    )
    harness.cluster.apply(PodChanged(replace(theirs, node_name="n1")))
    reason = why_unexplained(source, "default/theirs")
    assert reason.startswith("pod default/theirs is on n1: kube-scheduler places it ")
    assert "before kube-scheduler asked Leadline" in reason
    assert "is pending and nothing is decided" in why_unexplained(source, "default/ours")
    reason = why_unexplained(replace(source, places=False), "default/ours")
    assert "kubernetes.standalone is false" in reason


async def test_a_request_too_large_is_refused(stub: Stub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ExplainPod(pb.ExplainPodRequest(pod="x" * 100_000))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_watch_sends_the_state_and_then_the_changes(
    harness: ControllerHarness, stub: Stub
) -> None:
    stream = stub.Watch(pb.WatchRequest())
    first = [await next_event(stream) for _ in range(7)]
    assert [each.node.name for each in first[:4]] == ["guest", "n1", "n2", "n3"]
    pods = [each.placement.pod for each in first[4:]]
    assert pods == ["default/web-1", "default/huge", "default/web-2"]

    harness.now_s += 1  # ages alone are no news
    harness.decisions.set_outcome("default/huge", BOUND)
    event = await next_event(stream)
    assert (event.placement.pod, event.placement.outcome) == ("default/huge", BOUND)

    harness.report("n1", cpu_percent=99.0)
    event = await next_event(stream)
    assert metrics(event.node)["cpu_percent"] == 99.0

    harness.cluster.apply(NodeDeleted("n3"))
    event = await next_event(stream)
    assert event.node_gone == "n3"
    stream.cancel()


async def test_a_watch_tells_when_it_has_sent_the_nodes_of_a_listed_cluster(
    harness: ControllerHarness, stub: Stub
) -> None:
    """Before that, a controller that has just started would show none."""
    harness.cluster.listed = False
    stream = stub.Watch(pb.WatchRequest(only=["nodes"], sync=True))
    first = [await next_event(stream) for _ in range(4)]
    assert [each.node.name for each in first] == ["guest", "n1", "n2", "n3"]
    harness.cluster.apply(NodeDeleted("n3"))
    assert (await next_event(stream)).node_gone == "n3"
    harness.cluster.listed = True
    event = await next_event(stream)
    assert list(event.node.notes) == ["not in the cluster"], "the guest"
    assert (await next_event(stream)).synced
    harness.report("n1", cpu_percent=99.0)
    assert (await next_event(stream)).node.name == "n1", "it is sent once"
    stream.cancel()


async def test_stopping_ends_the_watches_without_an_error(harness: ControllerHarness) -> None:
    server = InspectionServer(ServeSettings("127.0.0.1:0"), harness.source, poll_s=60)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        stream = control_pb2_grpc.InspectionStub(channel).Watch(pb.WatchRequest())
        seen = [await stream.read() for _ in range(7)]
        await server.stop()
        assert await stream.read() == grpc.aio.EOF
    assert len(seen) == 7
