"""KEDA's external scaler over gRPC: reads triggers, and answers how far to scale.

An answer that is not known is an error and not a number, so that KEDA and the HPA leave the
replicas as they are.
"""

# ruff: noqa: N802  # the methods are named by the schema

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from leadline_wire.v1 import externalscaler_pb2 as pb
from leadline_wire.v1 import externalscaler_pb2_grpc

from leadline_controller.keda.request_rate import RateError
from leadline_controller.keda.scaler import (
    Client,
    NotReadyError,
    ScalerService,
    Trigger,
    TriggerError,
    read_trigger,
)
from leadline_controller.serve.grpc_server import GrpcServer
from leadline_controller.serve.listeners import peer_of
from leadline_controller.serve.settings import KedaSettings

SERVICE = pb.DESCRIPTOR.services_by_name["ExternalScaler"].full_name
Context = grpc.aio.ServicerContext[Any, Any]
_POLL_S = 2.0


class KedaServer(GrpcServer):
    """Serves ExternalScaler, health checking and reflection. poll_s: how often streams look for
    changes."""

    def __init__(
        self, settings: KedaSettings, service: ScalerService, *, poll_s: float = _POLL_S
    ) -> None:
        servicer = _ExternalScaler(service, poll_s)

        def register(server: grpc.aio.Server) -> None:
            externalscaler_pb2_grpc.add_ExternalScalerServicer_to_server(servicer, server)

        super().__init__(settings, (SERVICE,), register, servicer.stopping.set, "keda")


class _ExternalScaler(externalscaler_pb2_grpc.ExternalScalerServicer):
    def __init__(self, service: ScalerService, poll_s: float) -> None:
        self._service = service
        self._poll_s = poll_s
        self.stopping = asyncio.Event()

    async def IsActive(self, request: pb.ScaledObjectRef, context: Context) -> pb.IsActiveResponse:
        trigger = await _trigger(request, context)
        try:
            return pb.IsActiveResponse(result=self._service.is_active(trigger, _client(context)))
        except RateError as error:
            await _unknown(context, error)

    async def StreamIsActive(
        self, request: pb.ScaledObjectRef, context: Context
    ) -> AsyncIterator[pb.IsActiveResponse]:
        trigger, sent = await _trigger(request, context), None
        client = _client(context)
        while not self.stopping.is_set():
            with contextlib.suppress(RateError):  # until the rate is known
                if sent != (sent := self._service.is_active(trigger, client)):
                    yield pb.IsActiveResponse(result=sent)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self.stopping.wait()

    async def GetMetricSpec(
        self, request: pb.ScaledObjectRef, context: Context
    ) -> pb.GetMetricSpecResponse:
        trigger = await _trigger(request, context)
        spec = pb.MetricSpec(metricName=trigger.metric, targetSizeFloat=trigger.target)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: Context
    ) -> pb.GetMetricsResponse:
        trigger = await _trigger(request.scaledObjectRef, context)
        try:
            value = await self._service.value(trigger, _client(context))
        except TriggerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except (RateError, NotReadyError) as error:
            await _unknown(context, error)
        found = pb.MetricValue(metricName=request.metricName[:256], metricValueFloat=value)
        return pb.GetMetricsResponse(metricValues=[found])


def _client(context: Context) -> Client:
    """Who calls, its address and its connection; its namespace is in the trigger."""
    connection = context.peer()  # such as ipv6:%5B::1%5D:40000
    host = unquote(connection).partition(":")[2].rpartition(":")[0].strip("[]")
    return peer_of((host,)), connection


async def _trigger(request: pb.ScaledObjectRef, context: Context) -> Trigger:
    try:
        return read_trigger(request.namespace, dict(request.scalerMetadata))
    except TriggerError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


async def _unknown(context: Context, error: Exception) -> NoReturn:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
