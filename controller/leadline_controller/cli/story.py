"""The main job told on one machine: wait until the boards are measured, let NetSched and then
DACS place pods on a simulated cluster, and say why each is where it is.

Runs as a process of its own (`python -m leadline_controller.cli.story`), because in the lab it
has to be on the server's network to reach the broker.
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
from leadline_controller.cli import render
from leadline_controller.config import Settings
from leadline_controller.filters import FILTERS
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.scheduling.scheduler import SchedulingProfile
from leadline_controller.snapshot.memory_cluster import MemoryCluster
from leadline_controller.wiring import Controller, strategy

ANCHOR = "server"
_SECONDS_TO_MEASURE = 60.0
_SECONDS_TO_PLACE = 15.0
_POLL_S = 0.25
_DACS_OPTIONS = {"lambda": 0.005}  # on a local network, 5 ms is a difference
_WANTED_MBPS = 2.0
_REQUEST = {CPU: 100, MEMORY: 64 * 1024**2, PODS: 1}
_LIMITS = ProbeLimits(interval_s=2.5, duration_ms=1500, max_bytes=25_000_000, ping_interval_s=2)


@dataclass(frozen=True, slots=True)
class Plot:
    """What the story is about. addresses: of the nodes, those that may get pods and the anchor.
    options: NetSched's."""

    broker_host: str
    broker_port: int
    addresses: dict[str, str]
    netsched_options: dict[str, float]
    netsched_pods: int = 10
    dacs_pods: int = 6

    def to_json(self) -> str:
        """For the command line of the process that tells it."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> "Plot":
        """The plot of a command line."""
        return cls(**json.loads(text))

    @property
    def boards(self) -> tuple[str, ...]:
        """The nodes that may get pods."""
        return tuple(name for name in self.addresses if name != ANCHOR)


def command(plot: Plot) -> list[str]:
    """The command line of the process that tells this plot."""
    return [sys.executable, "-m", __name__, plot.to_json()]


async def tell(plot: Plot, console: Console) -> int:
    """Tell it on `console`; 0 when every pod found a node."""
    cluster = MemoryCluster([_node(name, address) for name, address in plot.addresses.items()])
    settings = Settings(
        cluster="demo",
        broker_host=plot.broker_host,
        broker_port=plot.broker_port,
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
            await _measure(controller, plot.boards)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        async with grpc.aio.insecure_channel(address) as channel:
            teller = _ProgressPrinter(
                controller, cluster, control_pb2_grpc.InspectionStub(channel), console
            )
            return await teller.tell(plot)


class _ProgressPrinter:
    """Places and shows; what is shown came over gRPC, as the `leadline` command gets it."""

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

    async def tell(self, plot: Plot) -> int:
        netsched = [_pod(f"web-{i}") for i in range(1, plot.netsched_pods + 1)]
        users = [plot.boards[i % len(plot.boards)] for i in range(plot.dacs_pods)]
        wanted_mbps = _WANTED_MBPS if _bandwidth_is_known(self._controller) else None
        dacs = [
            _pod(
                f"camera-{i}",
                PodAnnotations(user_node=user, data_mb=0.5, bandwidth_mbps=wanted_mbps),
            )
            for i, user in enumerate(users, start=1)
        ]
        # The scheduler lists the nodes, so the first listing is after it ran.
        await self._place("netsched", plot.netsched_options, netsched)
        await self._place("dacs", _DACS_OPTIONS, dacs)
        nodes = await self._inspection.ListNodes(pb.ListNodesRequest())
        matrix = await self._inspection.GetMatrix(pb.GetMatrixRequest())
        self._title("What the agents measure on each node")
        render.nodes(self._console, nodes.nodes)
        self._title("Round trips between nodes, ms")
        render.matrix(self._console, matrix, "rtt")
        self._title("Bandwidth between nodes, Mbit/s")
        render.matrix(self._console, matrix, "bandwidth")
        for name, pods in (("netsched", netsched), ("dacs", dacs)):
            await self._show_placements(name, pods)
        for pod in (netsched[0], dacs[min(4, len(dacs) - 1)]):
            self._title(f"Why {pod.key} is where it is")
            answer = await self._inspection.ExplainPod(pb.ExplainPodRequest(pod=pod.key))
            render.explanation(self._console, answer)
        placed = [self._cluster.pod(pod.key).node_name for pod in (*netsched, *dacs)]
        return 0 if all(placed) else 1

    async def _place(self, name: str, options: dict[str, float], pods: Sequence[Pod]) -> None:
        how = SchedulingProfile(strategy(name, options), FILTERS, Random(1))  # noqa: S311  # breaks ties
        scheduling = asyncio.create_task(self._controller.scheduler(how).run())
        try:
            for pod in pods:
                self._cluster.put_pod(pod)
            async with asyncio.timeout(_SECONDS_TO_PLACE):
                while not all(self._tried(pod) for pod in pods):  # noqa: ASYNC110  # no event tells of it
                    await asyncio.sleep(_POLL_S / 5)
        except TimeoutError:
            pass  # what found no node is shown as pending, with the reason
        finally:
            scheduling.cancel()
            await asyncio.gather(scheduling, return_exceptions=True)

    def _tried(self, pod: Pod) -> bool:
        return self._controller.decisions.get(pod.key) is not None

    async def _show_placements(self, name: str, pods: Sequence[Pod]) -> None:
        answer = await self._inspection.ListPlacements(pb.ListPlacementsRequest())
        keys = {pod.key for pod in pods}
        counts = Counter(self._cluster.pod(key).node_name or "nowhere" for key in keys)
        told = ", ".join(
            f"{counts[board]} on {board}"
            for board in (*self._boards, "unresolvable")
            if counts[board]
        )
        self._title(f"Where {name} put {len(pods)} pods: {told}")
        render.placements(self._console, [p for p in answer.placements if p.pod in keys])

    def _title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")


async def _measure(controller: Controller, boards: Sequence[str]) -> None:
    """Wait until everything that can be measured here is, and say what can't."""
    nodes = (*boards, ANCHOR)
    told = Console(stderr=True)
    told.print("measuring the boards and their links: one bandwidth test at a time")
    with Progress(console=told, transient=True, disable=not told.is_terminal) as bar:
        task = bar.add_task("nodes measured", total=len(nodes))
        deadline_s = controller.clock.now_s() + _SECONDS_TO_MEASURE
        while controller.clock.now_s() < deadline_s and not bar.finished:
            await asyncio.sleep(_POLL_S)
            bar.update(task, completed=sum(_measured(controller, node) for node in nodes))
    for sentence in _unmeasured(controller, nodes):
        sys.stderr.write(f"{sentence}\n")


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
    told = []
    if silent:
        told.append(f"no agent was heard on {', '.join(silent)}")
    if "icmp" not in probes:
        told.append(
            "ICMP is not permitted here: round trips are bounds from each board's round trip "
            "to the broker"
        )
    if "iperf3" not in probes:
        told.append("iperf3 is not here: bandwidth stays unknown, and no pod asks for any")
    return told


def _node(name: str, address: str) -> Node:
    if name == ANCHOR:
        room = {CPU: 8000, MEMORY: 8 * 1024**3, PODS: 110}
        return Node(name, room, unschedulable=True, addresses=(address,))
    room = {CPU: 4000, MEMORY: 4 * 1024**3, PODS: 110}
    return Node(name, room, tier="edge", addresses=(address,))


def _pod(name: str, hints: PodAnnotations | None = None) -> Pod:
    return Pod("default", name, requests=_REQUEST, hints=hints or PodAnnotations())


def main() -> int:
    """Tell the plot on the command line."""
    parser = argparse.ArgumentParser(prog="leadline lab run")
    parser.add_argument("plot", type=Plot.from_json)
    arguments = parser.parse_args()
    try:
        return asyncio.run(tell(arguments.plot, Console()))
    except KeyboardInterrupt:
        return 130  # whoever started us was interrupted as well, and cleans up


if __name__ == "__main__":
    sys.exit(main())
