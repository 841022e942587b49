"""The map of a controller with a real broker and real agents, through a restart."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod
from leadline_controller.history.store import HistorySettings
from leadline_controller.map.settings import WebSettings
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import Settings
from leadline_controller.strategies.netsched import NetSched
from leadline_controller.wiring import Controller, Servers, running

from tests.controller.map.harness import get, streaming
from tests.support.agents import agent_config, running_agent
from tests.support.memory_cluster import MemoryCluster
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port

pytestmark = pytest.mark.broker

BOARDS = {"pi-1": "127.0.0.1", "pi-2": "127.0.0.2"}
PATIENCE_S = 120.0


@pytest.fixture
def broker() -> Any:
    with mosquitto() as broker:
        yield broker


def cluster() -> MemoryCluster:
    room = {CPU: 4000, MEMORY: 4 << 30, PODS: 110}
    return MemoryCluster(
        [Node(name, room, addresses=(address,)) for name, address in BOARDS.items()]
    )


@asynccontextmanager
async def serving(
    broker: Broker, kept: MemoryCluster, folder: Path, port: int
) -> AsyncIterator[str]:
    """A controller that places pods; yields the map's address without the last slash."""
    settings = Settings(
        broker_host=broker.host,
        broker_port=broker.port,
        warm_up_s=0.0,
        limits=ProbeLimits(ping_interval_s=1),
        serve=GrpcSettings("127.0.0.1:0"),
        web=WebSettings(f"127.0.0.1:{port}"),
        decisions=HistorySettings(folder / "decisions.db"),
    )
    controller = Controller(settings, kept, Rule(NetSched(), FILTERS, Random(1)))
    async with (
        controller.storing_decisions(),
        Servers(controller).serving() as addresses,
        running(controller.measure(), *controller.placing()),
    ):
        yield addresses["web"].removesuffix("/")


async def eventually(url: str, is_there: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The first answer of which that is true."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            _, answer = await get(url)
            if is_there(answer):
                return answer
            await asyncio.sleep(0.2)


def measured(answer: dict[str, Any]) -> bool:
    nodes = answer["nodes"]
    return (
        {each["name"] for each in nodes} == BOARDS.keys()
        and all(each["online"] and each["memory_percent"] for each in nodes)
        and any(each["source"] == "measured" for each in answer["links"])
    )


async def test_boards_links_and_placements_appear_and_survive_a_restart(
    broker: Broker, tmp_path: Path
) -> None:
    kept, port = cluster(), free_port()
    with ExitStack() as stack:
        for name, address in BOARDS.items():
            config = agent_config(tmp_path / name, broker.port, name)
            config.write_text(f'{config.read_text()}[probe]\naddress = "{address}"\n')
            stack.enter_context(running_agent(config))
        async with serving(broker, kept, tmp_path, port) as address:
            shown = await eventually(f"{address}/api/overview", measured)
            (link,) = shown["links"]
            assert (link["a"], link["b"]) == ("pi-1", "pi-2")
            assert link["rtt_ms"] > 0
            async with streaming(address, shown["stream_id"]) as events:
                kept.put_pod(Pod("default", "web-1", uid="uid-web-1", requests={CPU: 100}))
                decision = await events.until("decision")
                assert decision["id"] == "default/web-1"
            placed = await eventually(
                f"{address}/api/overview",
                lambda answer: [each for each in answer["nodes"] if each["pods"]],
            )
            (on,) = [each["name"] for each in placed["nodes"] if each["pods"]]
            assert on == decision["node"]
            _, explained = await get(f"{address}/api/decisions/default%2Fweb-1")
            assert {each["node"] for each in explained["scores"]} == BOARDS.keys()
            last_id = placed["stream_id"]
        async with (
            serving(broker, kept, tmp_path, port) as address,
            streaming(address, last_id=last_id) as events,
        ):
            assert (await events.next())[0] == "reload"
            again = await eventually(
                f"{address}/api/overview",
                lambda answer: measured(answer) and any(each["pods"] for each in answer["nodes"]),
            )
            assert again["run"] != shown["run"]
            _, listed = await get(f"{address}/api/decisions")
            assert [each["id"] for each in listed["decisions"]] == ["default/web-1"]
