"""kubelet's probes: what they answer, and that a silent client keeps none of them out."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from leadline_controller.serve.health import HealthServer
from leadline_controller.serve.settings import HealthSettings, ServeError


@dataclass
class Probed:
    """A server of probes, and what it is told."""

    address: str = ""
    stuck: list[str] = field(default_factory=list)
    is_ready: bool = True

    async def ask(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as client:
            answer = await client.get(f"http://{self.address}{path}")
            return answer.status, await answer.text()


@pytest.fixture
async def probed() -> AsyncIterator[Probed]:
    made = Probed()
    settings = HealthSettings("127.0.0.1:0")
    server = HealthServer(settings, lambda: made.stuck, lambda: made.is_ready)
    made.address = await server.start()
    yield made
    await server.stop()


async def test_a_healthy_controller_says_so(probed: Probed) -> None:
    assert await probed.ask("/healthz") == (200, "ok\n")
    assert await probed.ask("/readyz") == (200, "ok\n")
    assert (await probed.ask("/"))[0] == 404


async def test_it_is_not_ready_before_it_knows_the_cluster_but_needs_no_restart(
    probed: Probed,
) -> None:
    probed.is_ready = False
    assert await probed.ask("/readyz") == (503, "waits for the API server\n")
    assert await probed.ask("/healthz") == (200, "ok\n")


async def test_a_loop_that_hangs_is_named(probed: Probed) -> None:
    probed.stuck = ["the election"]
    for path in ("/healthz", "/readyz"):
        assert await probed.ask(path) == (503, "stuck: the election\n")


async def test_silent_connections_keep_no_probe_out(probed: Probed) -> None:
    host, _, port = probed.address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(40)]
    try:
        assert await probed.ask("/healthz") == (200, "ok\n")
    finally:
        for each in silent:
            each.close()


async def test_an_address_in_use_is_told(probed: Probed) -> None:
    another = HealthServer(HealthSettings(probed.address), list, lambda: True)
    with pytest.raises(ServeError, match=f"health address {probed.address}: cannot listen there"):
        await another.start()
    await another.stop()


@pytest.mark.parametrize("address", ["25510", "unix:/run/x", "here"])
def test_kubelet_takes_host_and_port_only(address: str) -> None:
    with pytest.raises(ServeError, match="host:port"):
        HealthSettings(address)
