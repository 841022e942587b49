"""The command line beside a controller of another release."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from leadline_controller.cli.__main__ import run


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
