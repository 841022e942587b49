"""A running inspection service on a loopback port of its own, and certificates for an extender."""

from collections.abc import AsyncIterator

import grpc
import pytest
from leadline_wire.v1 import control_pb2_grpc

from tests.controller.extender.listening import Secured, client_context, files
from tests.controller.inspect.harness import ControllerHarness, answering, example_controller
from tests.support.certificates import Authority


@pytest.fixture
def harness() -> ControllerHarness:
    return example_controller()


@pytest.fixture
async def address(harness: ControllerHarness) -> AsyncIterator[str]:
    async with answering(harness) as address:
        yield address


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> "control_pb2_grpc.InspectionAsyncStub":
    return control_pb2_grpc.InspectionStub(channel)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="session")
def secured(authority: Authority) -> Secured:
    shown = client_context(authority, authority.client("kube-scheduler"))
    return Secured(files(authority.server("127.0.0.1")), shown)
