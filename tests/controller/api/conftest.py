"""A running inspection service on a loopback port of its own."""

from collections.abc import AsyncIterator

import grpc
import pytest
from leadline_wire.v1 import control_pb2_grpc

from tests.controller.api.api_harness import ControllerHarness, answering, example_controller


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
