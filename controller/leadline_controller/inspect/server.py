"""The inspection service over gRPC, in the event loop of the scheduler.

It only reads the controller's state. It builds answers about many nodes in slices or in a thread,
so that a decision never waits for a whole listing.
"""

# ruff: noqa: N802  # the methods are named by the schema

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import grpc
import msgspec
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import (
    control_pb2_grpc,
    replicas_pb2,
    replicas_pb2_grpc,
    rescheduling_pb2_grpc,
    status_pb2_grpc,
)
from leadline_wire.v1 import images_pb2 as pb_images
from leadline_wire.v1 import shadow_pb2 as pb_shadow
from leadline_wire.v1 import traffic_pb2 as pb_traffic

from leadline_controller import __version__
from leadline_controller.framework.node_table import CLASS_LABEL
from leadline_controller.framework.selectors import Selector, parse_selector
from leadline_controller.history.comparison import comparisons
from leadline_controller.inspect import (
    budget,
    history,
    images,
    placements,
    rescheduling,
    shadows,
    status,
)
from leadline_controller.inspect.nodes import NodeReader
from leadline_controller.inspect.parts import Parts, unreachable
from leadline_controller.inspect.traffic import TrafficReader
from leadline_controller.scheduling.replica_order import removed_as
from leadline_controller.serve.grpc_server import GrpcServer
from leadline_controller.serve.settings import ServeSettings
from leadline_controller.snapshot.capture import capture
from leadline_controller.snapshot.writing import write_snapshot

SERVICE = pb.DESCRIPTOR.services_by_name["Inspection"].full_name
REPLICAS = replicas_pb2.DESCRIPTOR.services_by_name["Replicas"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
# What a watch can be limited to.
WATCHED = NODES, PLACEMENTS = "nodes", "placements"
_POLL_S = 1.0
_MAX_REPLICAS = 1000
_PART_BYTES = 256 * 1024
_MOST_SNAPSHOTS = 4  # at a time


class InspectionServer(GrpcServer):
    """Serves Inspection, health checking and reflection at the settings' address. poll_s: how
    often watches look for changes."""

    def __init__(self, settings: ServeSettings, source: Parts, *, poll_s: float = _POLL_S) -> None:
        servicer = _Inspection(source, poll_s)

        def register(server: grpc.aio.Server) -> None:
            control_pb2_grpc.add_InspectionServicer_to_server(servicer, server)
            replicas_pb2_grpc.add_ReplicasServicer_to_server(_Replicas(source), server)
            rescheduling_pb2_grpc.add_ReschedulingServicer_to_server(
                rescheduling.service(source), server
            )
            status_pb2_grpc.add_DiagnosisServicer_to_server(status.Diagnosis(source), server)

        services = (SERVICE, REPLICAS, rescheduling.SERVICE, status.SERVICE)
        super().__init__(settings, services, register, servicer.stopping.set, "grpc")


class _Inspection(control_pb2_grpc.InspectionServicer):
    def __init__(self, source: Parts, poll_s: float) -> None:
        self._source = source
        self._poll_s = poll_s
        self._nodes_lock = asyncio.Lock()
        self._snapshots = asyncio.Semaphore(_MOST_SNAPSHOTS)
        self._nodes_at_s = -math.inf
        self._nodes: list[tuple[pb.NodeStatus, bytes]] = []
        self._nodes_listed = False
        self.stopping = asyncio.Event()

    async def GetVersion(self, _: pb.GetVersionRequest, __: Context) -> pb.GetVersionResponse:
        source = self._source
        return pb.GetVersionResponse(
            version=__version__,
            cluster=source.cluster_name,
            strategy=source.rule.strategy.name,
            leader=source.leadership.leads(),
            lease_holder=source.leadership.holder(),
            unreachable=unreachable(source),
        )

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        selector = await _selector(request.selector, context)
        nodes = await NodeReader(self._source).statuses(selector)
        return pb.ListNodesResponse(nodes=nodes, selector=request.selector)

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> pb.GetNodeResponse:
        reader = NodeReader(self._source)
        if request.name not in reader.names:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no node {request.name[:200]!r}: the cluster has none and no agent of that name "
                "was heard",
            )
        answer = pb.GetNodeResponse(
            node=reader.status(request.name),
            links=await asyncio.to_thread(reader.links_of, request.name),
            placed_pods=reader.placed_pods(request.name),
        )
        if request.HasField("history"):
            request.history.name = request.name
            answer.history.CopyFrom(await self.GetHistory(request.history, context))
        return answer

    async def GetHistory(
        self, request: pb.GetHistoryRequest, context: Context
    ) -> pb.GetHistoryResponse:
        source, now = self._source, self._source.decisions.now()
        now_unix_s = now.unix_s(now)
        if now_unix_s is None:  # nothing is recorded without a clock
            return pb.GetHistoryResponse()
        try:
            shown = history.span(request, now_unix_s)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        blocks = await history.blocks_of(source, request.name, shown)
        if not blocks and request.name not in NodeReader(source).names:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no node {request.name[:200]!r}: the cluster has none, and none of that name was "
                "measured then",
            )
        return await asyncio.to_thread(history.response, blocks, shown, request.series)

    async def GetMatrix(self, _: pb.GetMatrixRequest, __: Context) -> pb.GetMatrixResponse:
        return await asyncio.to_thread(NodeReader(self._source).matrix)

    async def GetBudget(self, _: pb.GetBudgetRequest, __: Context) -> pb.GetBudgetResponse:
        source = self._source
        found = await asyncio.to_thread(source.probe_scheduler.budget, source.clock.now_s())
        answer = budget.response(found)
        answer.leader, answer.lease_holder = source.leadership.leads(), source.leadership.holder()
        return answer

    async def ListImages(
        self, _: pb_images.ListImagesRequest, __: Context
    ) -> pb_images.ListImagesResponse:
        source = self._source
        nodes = list(source.state.images.statuses(source.state.table))
        registries = source.image_lookup.statuses() if source.image_lookup else []
        return await asyncio.to_thread(images.response, nodes, registries)

    async def CompareStrategies(
        self, request: pb_shadow.CompareStrategiesRequest, context: Context
    ) -> pb_shadow.CompareStrategiesResponse:
        source = self._source
        try:
            age_s = shadows.age_s(request)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        decisions, truncated = await source.history.shadows(age_s)
        now = source.decisions.now()
        found = await asyncio.to_thread(comparisons, decisions, now)
        return shadows.response(source, found, truncated=truncated)

    async def GetTraffic(
        self, request: pb_traffic.GetTrafficRequest, context: Context
    ) -> pb_traffic.GetTrafficResponse:
        reader, of = TrafficReader(self._source), request.of
        if of and not await asyncio.to_thread(reader.knows, of):
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"nothing known of {of[:300]!r}: expected namespace/name of a workload with pods, "
                "node/name, or an address that pods talk to",
            )
        return await asyncio.to_thread(reader.response, of)

    async def ListPlacements(
        self, request: pb.ListPlacementsRequest, context: Context
    ) -> pb.ListPlacementsResponse:
        since_s = request.since_s
        if not math.isfinite(since_s) or since_s < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "since_s: expected seconds, 0 for all"
            )
        selector = await _selector(request.selector, context)
        select = placements.selection(request, self._source, selector)
        limit = {} if not request.limit else {"limit": request.limit}
        records, truncated = await self._source.history.since(
            since_s or None, select=select, **limit
        )
        now = self._source.decisions.now()
        answer = await asyncio.to_thread(placements.listing, records, now, truncated=truncated)
        answer.selector = request.selector
        return answer

    async def ExplainPod(
        self, request: pb.ExplainPodRequest, context: Context
    ) -> pb.ExplainPodResponse:
        key = request.pod if "/" in request.pod else f"default/{request.pod}"
        records = await placements.decisions_about(self._source, key)
        if not records:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, placements.why_unexplained(self._source, key)
            )
        # Records are immutable, and an explanation over a large cluster takes long to make.
        now, place = self._source.decisions.now(), removed_as(self._source.state, key)
        answer = await asyncio.to_thread(placements.explanation, records, now)
        answer.removed_as, answer.removed_of = place
        return answer

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchEvent]:
        only = set(request.only) or set(WATCHED)
        if unknown := only.difference(WATCHED):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"only: expected {' or '.join(WATCHED)}, got {min(unknown)[:80]!r}",
            )
        # It sends states and not every step between them: all changes that happen while its client
        # is slow become one event. So it needs no queue, and the cluster's size bounds its memory.
        sent: dict[str, bytes] = {}
        number = 0
        syncs = request.sync
        while not self.stopping.is_set():
            nodes, listed = await self._fingerprinted() if NODES in only else ([], False)
            for node, fingerprint in nodes:
                if sent.get(node.name) != fingerprint:
                    sent[node.name] = fingerprint
                    yield pb.WatchEvent(node=node)
            for name in sent.keys() - {node.name for node, _ in nodes}:
                del sent[name]
                yield pb.WatchEvent(node_gone=name)
            if syncs and listed:
                syncs = False
                yield pb.WatchEvent(synced=True)
            now = self._source.decisions.now()
            records = self._source.decisions.all() if PLACEMENTS in only else ()
            changed = [x for x in records if x.number > number]
            for record in sorted(changed, key=lambda x: x.number):
                number = record.number
                yield pb.WatchEvent(placement=placements.placement(record, now))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self.stopping.wait()

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.SnapshotPart]:
        if not self._source.state.listed:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "the API server has not listed its nodes and pods yet; try again in a few seconds",
            )
        if self._snapshots.locked():
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_MOST_SNAPSHOTS} snapshots are being fetched already; try again later",
            )
        async with self._snapshots:  # each takes as much memory as the file has bytes
            source = self._source
            taken = capture(
                *(source.state, source.telemetry, source.clock.now_s(), source.rule),
                # kube-scheduler asks about pods of any name.
                None if source.scheduler is None and source.advises else source.scheduler_name,
            )
            made = await asyncio.to_thread(write_snapshot, taken, anonymous=request.anonymous)
            text = await asyncio.to_thread(msgspec.json.encode, made)
            for at in range(0, len(text), _PART_BYTES):
                yield pb.SnapshotPart(json=text[at : at + _PART_BYTES])

    async def _fingerprinted(self) -> tuple[list[tuple[pb.NodeStatus, bytes]], bool]:
        """The nodes with their fingerprints, updated every poll_s for all watches together, and
        whether the cluster was listed then."""
        async with self._nodes_lock:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._nodes_at_s >= self._poll_s:
                self._nodes_listed = self._source.state.listed
                self._nodes = [
                    (status, _fingerprint(status))
                    for status in await NodeReader(self._source).statuses()
                ]
                self._nodes_at_s = now_s
            return self._nodes, self._nodes_listed


class _Replicas(replicas_pb2_grpc.ReplicasServicer):
    def __init__(self, source: Parts) -> None:
        self._cluster = source.state

    async def ListReplicas(
        self, request: replicas_pb2.ListReplicasRequest, context: Context
    ) -> replicas_pb2.ListReplicasResponse:
        wanted = dict(request.labels)
        if not wanted:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "labels: expected one at least")
        found = [
            pod
            for pod, _ in self._cluster.pods()
            if pod.namespace == request.namespace
            and wanted.items() <= pod.labels.items()
            and pod.ip
            and not (pod.finished or pod.terminating)
        ]
        nodes = self._cluster.nodes()
        replicas = []
        for pod in sorted(found, key=lambda each: each.name)[:_MAX_REPLICAS]:
            node = nodes.get(pod.node_name or "")
            node_class = node.labels.get(CLASS_LABEL, "") if node is not None else ""
            replicas.append(
                replicas_pb2.Replica(
                    pod=pod.name, node=pod.node_name, node_class=node_class, address=pod.ip
                )
            )
        return replicas_pb2.ListReplicasResponse(replicas=replicas)


async def _selector(text: str, context: Context) -> Selector:
    try:
        return parse_selector(text)
    except ValueError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"selector: {error}")


def _fingerprint(status: pb.NodeStatus) -> bytes:
    """Everything about a node but ages and predictions: watches send it when this has changed."""
    bare = pb.NodeStatus()
    bare.CopyFrom(status)
    bare.ClearField("report_age_s")
    bare.ClearField("predicted_ms")
    for metric in bare.metrics:
        metric.ClearField("age_s")
        metric.ClearField("confidence")
    return bare.SerializeToString(deterministic=True)
