"""KEDA's calls over real gRPC: answers, errors, streams, TLS."""

from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from leadline_controller.keda.request_rate import RateError
from leadline_controller.keda.server import KedaServer
from leadline_controller.serve.listeners import THIS_MACHINE
from leadline_controller.serve.settings import KedaSettings, ServeError, TlsFiles
from leadline_wire.v1 import externalscaler_pb2 as pb
from leadline_wire.v1.externalscaler_pb2_grpc import ExternalScalerStub

from tests.controller.extender.listening import files
from tests.controller.keda.scene import RATE, TIME, Scene, replica
from tests.support.certificates import Authority


class Counted(Scene):
    """A service with one replica, whose rate is unknown until the test sets it."""

    def __init__(self) -> None:
        super().__init__(replica("web-1", "w1"))
        self.known = True
        self.asked: list[tuple[str, tuple[Hashable, ...]]] = []
        self.service._requests_per_s = self.rate

    def rate(self, counter: str, client: tuple[Hashable, ...]) -> float:
        self.asked.append((counter, client))
        if not self.known:
            raise RateError("no two values of it are known yet")
        return self.rate_per_s


@asynccontextmanager
async def serving(scene: Counted, tls: TlsFiles | None = None) -> AsyncIterator[str]:
    server = KedaServer(KedaSettings("127.0.0.1:0", tls), scene.service, poll_s=0.02)
    try:
        yield await server.start()
    finally:
        await server.stop()


@pytest.fixture
def scene() -> Counted:
    return Counted()


@pytest.fixture
async def stub(scene: Counted) -> AsyncIterator[Any]:
    async with serving(scene) as address, grpc.aio.insecure_channel(address) as channel:
        yield ExternalScalerStub(channel)


def ref(metadata: Mapping[str, str]) -> pb.ScaledObjectRef:
    return pb.ScaledObjectRef(name="web", namespace="default", scalerMetadata=metadata)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


async def test_the_specification_has_the_target_as_a_float(stub: Any) -> None:
    answer = await stub.GetMetricSpec(ref({**RATE, "target": "0.5"}))
    (spec,) = answer.metricSpecs
    assert (spec.metricName, spec.targetSizeFloat, spec.targetSize) == ("request-rate", 0.5, 0)
    (spec,) = (await stub.GetMetricSpec(ref(TIME))).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat) == ("response-time", 1.0)


async def test_the_value_answers_by_the_name_that_was_asked(scene: Counted, stub: Any) -> None:
    scene.rate_per_s = 120.5
    request = pb.GetMetricsRequest(scaledObjectRef=ref(RATE), metricName="s0-request-rate")
    (value,) = (await stub.GetMetrics(request)).metricValues
    assert (value.metricName, value.metricValueFloat) == ("s0-request-rate", 120.5)


async def test_a_counter_is_asked_for_by_a_connection_and_a_namespace(scene: Counted) -> None:
    async with serving(scene) as address:
        for options in ((), (("grpc.primary_user_agent", "another"),)):
            async with grpc.aio.insecure_channel(address, options=options) as channel:
                stub: Any = ExternalScalerStub(channel)
                await stub.IsActive(ref(RATE))
                await stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref(RATE)))
    assert {counter for counter, _ in scene.asked} == {RATE["requests"]}
    first, again, second, _ = [client for _, client in scene.asked]
    assert first == again
    assert first[:1] == second[:1] == (THIS_MACHINE,)
    assert first[1] != second[1]
    assert first[2:] == second[2:] == ("default",)


async def test_a_service_is_active_while_it_is_requested(scene: Counted, stub: Any) -> None:
    assert not (await stub.IsActive(ref(RATE))).result
    scene.rate_per_s = 0.1
    assert (await stub.IsActive(ref(RATE))).result


async def test_a_stream_tells_each_change_and_waits_while_the_rate_is_unknown(
    scene: Counted, stub: Any
) -> None:
    scene.known = False
    stream = stub.StreamIsActive(ref(RATE))
    scene.known = True
    assert not (await stream.read()).result
    scene.rate_per_s = 3.0
    assert (await stream.read()).result
    stream.cancel()


async def test_an_unknown_rate_is_an_error_and_no_number(scene: Counted, stub: Any) -> None:
    scene.known = False
    request = pb.GetMetricsRequest(scaledObjectRef=ref(RATE), metricName="request-rate")
    for call in (stub.GetMetrics(request), stub.IsActive(ref(RATE))):
        code, details = await refusal(call)
        assert (code, "known" in details) == (grpc.StatusCode.FAILED_PRECONDITION, True)


async def test_a_wrong_trigger_is_refused_in_every_call(stub: Any) -> None:
    wrong = ref({**RATE, "pods": "?"})
    calls = (
        stub.IsActive(wrong),
        stub.GetMetricSpec(wrong),
        stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=wrong, metricName="x")),
        stub.StreamIsActive(wrong).read(),
    )
    for call in calls:
        code, details = await refusal(call)
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith("pods: expected")


async def test_only_those_with_a_certificate_are_answered(
    scene: Counted, authority: Authority
) -> None:
    server, caller = authority.server("127.0.0.1"), authority.client("keda")
    async with serving(scene, files(server)) as address:
        shown = files(caller).client_credentials()
        async with grpc.aio.secure_channel(address, shown) as channel:
            assert not (await ExternalScalerStub(channel).IsActive(ref(RATE))).result
        nobody = grpc.ssl_channel_credentials(authority.ca_file.read_bytes())
        async with grpc.aio.secure_channel(address, nobody) as channel:
            code, _ = await refusal(ExternalScalerStub(channel).IsActive(ref(RATE), timeout=10))
            assert code == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("address", ["0.0.0.0:25507", "10.0.0.1:25507", "unix:/run/keda"])
def test_other_machines_need_tls_and_a_socket_is_refused(address: str) -> None:
    with pytest.raises(ServeError):
        KedaSettings(address)
