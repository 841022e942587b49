"""The command line beside a controller of another release."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from leadline_controller.cli.__main__ import run
from leadline_wire.v1 import control_pb2 as pb


@pytest.fixture
async def older() -> AsyncIterator[str]:
    """The address of a controller that knows none of today's requests."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.mark.parametrize("question", [["nodes"], ["status"], ["budget"], ["images"]])
async def test_a_request_that_an_older_controller_does_not_know_is_one_line(
    question: list[str], older: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await asyncio.to_thread(run, [*question, "--address", older])
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "does not know this request; is it an older leadline?" in said.err


async def overlooking(_: pb.ListNodesRequest, __: object) -> pb.ListNodesResponse:
    """The answer of a controller that does not know the field of a selector."""
    return pb.ListNodesResponse(nodes=[pb.NodeStatus(name="n1")])


async def test_a_controller_that_overlooks_a_selector_is_not_believed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    method = grpc.unary_unary_rpc_method_handler(
        overlooking, pb.ListNodesRequest.FromString, pb.ListNodesResponse.SerializeToString
    )
    service = pb.DESCRIPTOR.services_by_name["Inspection"].full_name
    server = grpc.aio.server()
    server.add_registered_method_handlers(service, {"ListNodes": method})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        asked = ["nodes", "--address", f"127.0.0.1:{port}"]
        assert await asyncio.to_thread(run, asked) == 0
        assert "n1" in capsys.readouterr().out
        assert await asyncio.to_thread(run, [*asked, "-l", "a=b"]) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert "does not know selectors" in said.err
    finally:
        await server.stop(None)
