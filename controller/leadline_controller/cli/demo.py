"""The demo of `leadline lab run`: agents measure the boards, NetSched and then DACS place pods on a
cluster in memory, and the decisions are explained.

It runs as a process of its own (`python -m leadline_controller.cli.demo`), because in a lab it must
be in the server's network namespace to reach the broker.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc
from rich.console import Console
from rich.progress import Progress

from leadline_controller.api.settings import ServeSettings
from leadline_controller.cli import decisions, links, nodes
from leadline_controller.config import Settings
from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.scheduling.scheduler import SchedulingProfile
from leadline_controller.snapshot.memory_cluster import MemoryCluster
from leadline_controller.wiring import Controller, strategy

ANCHOR = "server"
_MEASURING_TIMEOUT_S = 60.0
_PLACING_TIMEOUT_S = 15.0
_POLL_S = 0.25
_DACS_OPTIONS = {"lambda": 0.005}  # on a local network, 5 ms is a difference
_WANTED_MBPS = 2.0
_REQUEST = {CPU: 100, MEMORY: 64 * 1024**2, PODS: 1}
_LIMITS = ProbeLimits(interval_s=2.5, duration_ms=1500, max_bytes=25_000_000, ping_interval_s=2)


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What a demo runs on. addresses: node -> address, of the boards that get pods and of the
    anchor."""

    broker_host: str
    broker_port: int
    addresses: dict[str, str]
    netsched_options: dict[str, float]
    netsched_pods: int = 10
    dacs_pods: int = 6

    def to_json(self) -> str:
        """The settings as an argument of the demo's process."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> "DemoSettings":
        """The settings in an argument that `to_json` made."""
        return cls(**json.loads(text))

    @property
    def boards(self) -> tuple[str, ...]:
        """The nodes that get pods."""
        return tuple(name for name in self.addresses if name != ANCHOR)


def command(demo: DemoSettings) -> list[str]:
    """The command line of the demo's process."""
    return [sys.executable, "-m", __name__, demo.to_json()]


async def run(demo: DemoSettings, console: Console) -> int:
    """Run the demo and print it on `console`. 0 if every pod got a node, else 1."""
    cluster = MemoryCluster([_node(name, address) for name, address in demo.addresses.items()])
    settings = Settings(
        cluster="demo",
        broker_host=demo.broker_host,
        broker_port=demo.broker_port,
        anchors=(ANCHOR,),
        limits=_LIMITS,
        serve=ServeSettings("127.0.0.1:0"),
    )
    controller = Controller(settings, cluster)
    async with (
        controller.remembering(),
        controller.measuring(),
        controller.serving("netsched, then dacs") as address,
    ):
        # Boards are probed at the addresses of their nodes, so these have to be known.
        following = asyncio.create_task(controller.follow())
        try:
            await _measure(controller, demo.boards)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        async with grpc.aio.insecure_channel(address) as channel:
            inspection = control_pb2_grpc.InspectionStub(channel)
            return await _Demo(controller, cluster, inspection, console).run(demo)


class _Demo:
    """Places pods, and prints what the controller answers over gRPC, as `leadline` does."""

    def __init__(
        self,
        controller: Controller,
        cluster: MemoryCluster,
        inspection: Any,
        console: Console,
    ) -> None:
        self._controller = controller
        self._cluster = cluster
        self._inspection = inspection
        self._console = console
        self._boards = [node.name for node in cluster.nodes if not node.unschedulable]

    async def run(self, demo: DemoSettings) -> int:
        netsched = [_pod(f"web-{i}") for i in range(1, demo.netsched_pods + 1)]
        users = [demo.boards[i % len(demo.boards)] for i in range(demo.dacs_pods)]
        wanted_mbps = _WANTED_MBPS if _bandwidth_is_known(self._controller) else None
        dacs = [
            _pod(
                f"camera-{i}",
                PodAnnotations(user_node=user, data_mb=0.5, bandwidth_mbps=wanted_mbps),
            )
            for i, user in enumerate(users, start=1)
        ]
        # The scheduler lists the nodes, so there is nothing to show before it runs.
        await self._place("netsched", demo.netsched_options, netsched)
        await self._place("dacs", _DACS_OPTIONS, dacs)
        listed = await self._inspection.ListNodes(pb.ListNodesRequest())
        matrix = await self._inspection.GetMatrix(pb.GetMatrixRequest())
        self._title("What the agents measure on each node")
        self._console.print(nodes.NodesTable(listed.nodes))
        self._title("Round trips between nodes, ms")
        self._console.print(links.matrix_of(matrix, "rtt"))
        self._title("Bandwidth between nodes, Mbit/s")
        self._console.print(links.matrix_of(matrix, "bandwidth"))
        for name, pods in (("netsched", netsched), ("dacs", dacs)):
            await self._show_placements(name, pods)
        for pod in (netsched[0], dacs[min(4, len(dacs) - 1)]):
            self._title(f"Why {pod.key} is where it is")
            answer = await self._inspection.ExplainPod(pb.ExplainPodRequest(pod=pod.key))
            self._console.print(*decisions.explanation_tables(answer), sep="\n")
        placed = [self._cluster.pod(pod.key).node_name for pod in (*netsched, *dacs)]
        return 0 if all(placed) else 1

    async def _place(self, name: str, options: dict[str, float], pods: Sequence[Pod]) -> None:
        how = SchedulingProfile(strategy(name, options), FILTERS, Random(1))  # noqa: S311  # breaks ties
        scheduling = asyncio.create_task(self._controller.scheduler(how).run())
        try:
            for pod in pods:
                self._cluster.put_pod(pod)
            async with asyncio.timeout(_PLACING_TIMEOUT_S):
                while not all(self._decided(pod) for pod in pods):  # noqa: ASYNC110  # has no event
                    await asyncio.sleep(_POLL_S / 5)
        except TimeoutError:
            pass  # a pod without a node is shown as pending, with the reason
        finally:
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)

    def _decided(self, pod: Pod) -> bool:
        return self._controller.decisions.get(pod.key) is not None

    async def _show_placements(self, name: str, pods: Sequence[Pod]) -> None:
        answer = await self._inspection.ListPlacements(pb.ListPlacementsRequest())
        keys = {pod.key for pod in pods}
        nodes = Counter(self._cluster.pod(key).node_name for key in keys)
        counts = [f"{nodes[board]} on {board}" for board in self._boards if nodes[board]]
        counts += [f"{nodes[None]} nowhere"] if nodes[None] else []
        self._title(f"Where {name} put {len(pods)} pods: {', '.join(counts)}")
        of_these = [each for each in answer.placements if each.pod in keys]
        self._console.print(decisions.placements_table(of_these))

    def _title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")


async def _measure(controller: Controller, boards: Sequence[str]) -> None:
    """Wait until all is measured that can be on this machine, and print what cannot."""
    nodes = (*boards, ANCHOR)
    progress = Console(stderr=True)
    progress.print("measuring the boards and their links: one bandwidth test at a time")
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task("nodes measured", total=len(nodes))
        deadline_s = controller.clock.now_s() + _MEASURING_TIMEOUT_S
        while controller.clock.now_s() < deadline_s and not bar.finished:
            await asyncio.sleep(_POLL_S)
            bar.update(task, completed=sum(_measured(controller, node) for node in nodes))
    for line in _unmeasured(controller, nodes):
        sys.stderr.write(f"{line}\n")


def _measured(controller: Controller, node: str) -> bool:
    now_s = controller.clock.now_s()
    agent = controller.telemetry.agents().get(node)
    if agent is None:
        return False
    known = controller.telemetry.measurements(node, now_s)
    linked = any(
        node in (link.a, link.b) and link.rtt_ms is not None
        for link in controller.telemetry.links(now_s)
    )
    return (
        "cpu_percent" in known
        and linked
        and ("bandwidth_mbps" in known or "iperf3" not in agent.probes)
    )


def _bandwidth_is_known(controller: Controller) -> bool:
    now_s = controller.clock.now_s()
    return any(
        "bandwidth_mbps" in controller.telemetry.measurements(node, now_s)
        for node in controller.telemetry.agents()
    )


def _unmeasured(controller: Controller, nodes: Iterable[str]) -> list[str]:
    agents = controller.telemetry.agents()
    silent = [node for node in nodes if node not in agents]
    probes = {probe for agent in agents.values() for probe in agent.probes}
    lines = []
    if silent:
        lines.append(f"no agent was heard on {', '.join(silent)}")
    if "icmp" not in probes:
        lines.append(
            "ICMP is not permitted here: round trips are bounds from each board's round trip "
            "to the broker"
        )
    if "iperf3" not in probes:
        lines.append("iperf3 is not here: bandwidth stays unknown, and no pod asks for any")
    return lines


def _node(name: str, address: str) -> Node:
    if name == ANCHOR:
        room = {CPU: 8000, MEMORY: 8 * 1024**3, PODS: 110}
        return Node(name, room, unschedulable=True, addresses=(address,))
    room = {CPU: 4000, MEMORY: 4 * 1024**3, PODS: 110}
    return Node(name, room, tier="edge", addresses=(address,))


def _pod(name: str, annotations: PodAnnotations | None = None) -> Pod:
    return Pod("default", name, requests=_REQUEST, annotations=annotations or PodAnnotations())


def main() -> int:
    """Run the demo that the command line describes."""
    parser = argparse.ArgumentParser(prog="leadline lab run")
    parser.add_argument("settings", type=DemoSettings.from_json)
    arguments = parser.parse_args()
    try:
        return asyncio.run(run(arguments.settings, Console()))
    except KeyboardInterrupt:
        return 130  # the parent process was interrupted as well, and cleans up


if __name__ == "__main__":
    sys.exit(main())
