"""The demo of `leadline lab run`: agents measure the boards, NetSched and then DACS place pods on a
cluster in memory, and the decisions are explained. For `--keep` and `leadline lab up` the
controller goes on: every 20 s a pod comes and the oldest goes, and it answers `leadline`.

It runs as a process of its own (`python -m leadline_controller.cli.demo`), because in a lab it must
be in the server's network namespace to reach the broker.
"""

import asyncio
import json
import socket
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from itertools import count, cycle, islice
from random import Random
from socket import if_nameindex
from typing import Any

import click
import grpc
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc
from rich.console import Console
from rich.progress import Progress

from leadline_controller.api.settings import ServeSettings
from leadline_controller.api.web_settings import WebSettings
from leadline_controller.cli import decisions, links, nodes
from leadline_controller.config import Settings
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Strategy
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.probing.budgets import BandwidthBudget
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.scheduling.scheduler import SchedulingProfile
from leadline_controller.snapshot.demo_cluster import DemoCluster
from leadline_controller.telemetry.bandwidth import LinkBandwidth
from leadline_controller.telemetry.link_readings import LinkReading
from leadline_controller.wiring import Controller, running, servers, strategy

ANCHOR = "server"
READY = "the controller answers at "
# On a busy machine boards are held back in most tests, and have to be tested often.
_MEASURING_TIMEOUT_S = 180.0
_NEAR = 4.0
_PLACING_TIMEOUT_S = 40.0
_POLL_S = 0.25
_ANOTHER_POD_S = 20.0
_NETSCHED_PODS, _DACS_PODS = 10, 6
_DACS_OPTIONS = {"lambda": 0.005}  # on a local network, 5 ms is a difference
_WANTED_MBPS = 2.0
_REQUEST = {CPU: 100, MEMORY: 64 * 1024**2, PODS: 1}
_LIMITS = ProbeLimits(interval_s=2, duration_ms=1500, max_bytes=25_000_000, ping_interval_s=2)
# A test of a link of 4 Mbit/s takes up to a second, and nobody wants to wait for its budget.
_BUDGET = BandwidthBudget(link_time_share=0.5, bytes_per_day=10**12)


@dataclass(frozen=True)
class Demo:
    """What the demo's process does. addresses: node -> address, of the boards that get pods and of
    the anchor. serve: where `leadline` is answered. tells: it prints the boards and the decisions.
    keeps: the controller goes on until it is interrupted. web_fd: an open socket that listens where
    browsers find the map, which may be in another network namespace."""

    broker: tuple[str, int]
    addresses: Mapping[str, str]
    netsched_options: Mapping[str, float]
    serve: str = "127.0.0.1:0"
    tells: bool = True
    keeps: bool = False
    web_fd: int | None = None

    def command(self) -> list[str]:
        """The command line of the process."""
        return [sys.executable, "-m", __name__, json.dumps(asdict(self))]


async def run(demo: Demo) -> int:
    """Run the demo. 0 if every pod got a node, else 1."""
    broker, addresses = demo.broker, demo.addresses
    cluster = DemoCluster([_node(name, address) for name, address in addresses.items()])
    settings = Settings(
        cluster="demo",
        broker_host=broker[0],
        broker_port=broker[1],
        anchors=(ANCHOR,),
        limits=_LIMITS,
        budget=_BUDGET,
        serve=ServeSettings(demo.serve),
        web=None if demo.web_fd is None else WebSettings(),
    )
    listener = None if demo.web_fd is None else socket.socket(fileno=demo.web_fd)
    controller = Controller(settings, cluster)
    boards = [name for name in addresses if name != ANCHOR]
    async with (
        controller.storing_decisions(),
        controller.probing(),
        servers.grpc(controller, "netsched, then dacs") as address,
        servers.web(controller, "netsched, then dacs", listener) as page,
        grpc.aio.insecure_channel(address) as channel,
    ):
        if not demo.tells:
            click.echo(f"{READY}{address}")
        elif page is not None:
            click.echo(f"the map, while this runs: {page}")
        # Boards are probed at the addresses of their nodes, so these have to be known.
        async with running(controller.follow()):
            # Through the loopback interface a board's tests all say something else.
            has_links = not all(ip_address(each).is_loopback for each in addresses.values())
            await _measure(controller, boards, has_links=has_links)
        netsched = [_pod(f"web-{i}") for i in range(1, _NETSCHED_PODS + 1)]
        wanted_mbps = _WANTED_MBPS if _bandwidth_is_known(controller) else None
        cameras = _cameras(boards, wanted_mbps)
        dacs = list(islice(cameras, _DACS_PODS))
        # The scheduler lists the nodes, so there is nothing to show before it runs.
        await _place(controller, cluster, strategy("netsched", demo.netsched_options), netsched)
        await _place(controller, cluster, strategy("dacs", _DACS_OPTIONS), dacs)
        if demo.tells:
            await _show(control_pb2_grpc.InspectionStub(channel), cluster, boards, netsched, dacs)
        if demo.keeps:
            if demo.tells:
                click.echo(f"\n{READY}{address}: in another terminal, try")
                click.echo(f"  export LEADLINE_ADDRESS={address}")
                for words in ("nodes", "explain web-1", "watch --only placements"):
                    click.echo(f"  leadline {words}")
                if page is not None:
                    click.echo(f"and open the map: {page}")
                click.echo("Ctrl-C ends it.")
            await _go_on(controller, cluster, (*netsched, *dacs), cameras)
    return 0 if all(cluster.pod(pod.key).node_name for pod in (*netsched, *dacs)) else 1


async def _place(
    controller: Controller, cluster: DemoCluster, by: Strategy, pods: Sequence[Pod]
) -> None:
    how = SchedulingProfile(by, FILTERS, Random(1))  # noqa: S311  # breaks ties
    async with running(controller.scheduler(how).run()):
        for pod in pods:
            cluster.put_pod(pod)
        # A pod without a node is shown as pending, with the reason.
        with suppress(TimeoutError):
            async with asyncio.timeout(_PLACING_TIMEOUT_S):
                while not all(controller.decisions.get(pod.key) for pod in pods):  # noqa: ASYNC110  # has no event
                    await asyncio.sleep(_POLL_S / 5)


async def _go_on(
    controller: Controller, cluster: DemoCluster, pods: Iterable[Pod], cameras: Iterator[Pod]
) -> None:
    """Until it is cancelled, a pod comes and the oldest goes, every 20 s."""
    how = SchedulingProfile(strategy("dacs", _DACS_OPTIONS), FILTERS, Random(1))  # noqa: S311  # breaks ties
    async with controller.rescheduling(how), running(controller.scheduler(how).run()):
        present = deque(pods)
        for pod in cameras:
            await asyncio.sleep(_ANOTHER_POD_S)
            await cluster.evict(cluster.pod(present.popleft().key))
            cluster.put_pod(pod)
            present.append(pod)


async def _show(
    inspection: Any,
    cluster: DemoCluster,
    boards: Sequence[str],
    netsched: Sequence[Pod],
    dacs: Sequence[Pod],
) -> None:
    """Print what the controller answers over gRPC, as `leadline` does."""
    console = Console()

    def title(text: str) -> None:
        console.print(f"\n[bold]{text}[/bold]")

    listed = await inspection.ListNodes(pb.ListNodesRequest())
    matrix = await inspection.GetMatrix(pb.GetMatrixRequest())
    title("What the agents measure on each node")
    console.print(nodes.NodesTable(listed.nodes))
    title("Round trips between nodes, ms")
    console.print(links.matrix_of(matrix, "rtt"))
    title("Bandwidth between nodes, Mbit/s")
    console.print(links.matrix_of(matrix, "bandwidth"))
    answer = await inspection.ListPlacements(pb.ListPlacementsRequest())
    for name, pods in (("netsched", netsched), ("dacs", dacs)):
        keys = {pod.key for pod in pods}
        pods_on = Counter(cluster.pod(key).node_name for key in keys)
        counts = [f"{pods_on[board]} on {board}" for board in boards if pods_on[board]]
        counts += [f"{pods_on[None]} nowhere"] if pods_on[None] else []
        title(f"Where {name} put {len(pods)} pods: {', '.join(counts)}")
        placed = [each for each in answer.placements if each.pod in keys]
        console.print(decisions.placements_table(placed))
    for pod in (netsched[0], dacs[4]):
        title(f"Why {pod.key} is where it is")
        answer = await inspection.ExplainPod(pb.ExplainPodRequest(pod=pod.key))
        console.print(*decisions.explanation_tables(answer), sep="\n")


async def _measure(controller: Controller, boards: Sequence[str], *, has_links: bool) -> None:
    """Wait until all is measured that can be here, and print what cannot. has_links: each
    board has a link of its own, whose bandwidth is to be known well."""
    measured, done = (*boards, ANCHOR), set[str]()
    progress = Console(stderr=True)
    progress.print("measuring the boards and their links")
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task("nodes measured", total=len(measured))
        deadline_s = controller.clock.now_s() + _MEASURING_TIMEOUT_S
        while controller.clock.now_s() < deadline_s and not bar.finished:
            await asyncio.sleep(_POLL_S)
            # On a busy machine hardly ever is none of them suspect.
            done |= {x for x in measured if _is_measured(controller, x, has_links=has_links)}
            bar.update(task, completed=len(done))
    agents = controller.telemetry.agents()
    probes = {probe for agent in agents.values() for probe in agent.probes}
    if silent := [node for node in measured if node not in agents]:
        sys.stderr.write(f"no agent was heard on {', '.join(silent)}\n")
    if "icmp" not in probes:
        sys.stderr.write(
            "ICMP is not permitted here: round trips are bounds from each board's round trip "
            "to the broker\n"
        )
    if "iperf3" not in probes:
        sys.stderr.write("iperf3 is not here: bandwidth stays unknown, and no pod asks for any\n")


def _is_measured(controller: Controller, node: str, *, has_links: bool) -> bool:
    now_s, telemetry = controller.clock.now_s(), controller.telemetry
    agent = telemetry.agents().get(node)
    if agent is None:
        return False
    known = telemetry.measurements(node, now_s)
    links = [x for x in telemetry.links(now_s) if node in (x.a, x.b)]
    (link,) = telemetry.node_links((node,), now_s)
    return (
        "cpu_percent" in known
        # A report leaves the packets out if a bandwidth test ran since the last one.
        and ("packets_sent_per_s" in known or len(if_nameindex()) == 1)
        and ("iperf3" not in agent.probes or _is_tested(node, link.bandwidth, links, has_links))
        and any(x.rtt_ms is not None for x in links)
    )


def _is_tested(
    node: str, bandwidth: LinkBandwidth | None, links: Sequence[LinkReading], has_links: bool
) -> bool:
    """Whether the bandwidth is known. A test with a slow board says little about a fast one, so a
    board waits for its test with the server, and until that is near what is believed."""
    if bandwidth is None or node == ANCHOR or not has_links:
        return bandwidth is not None
    least_mbps, most_mbps = bandwidth.mbps / _NEAR, bandwidth.mbps * _NEAR
    with_server = [x.bandwidth_mbps for x in links if ANCHOR in (x.a, x.b) and x.bandwidth_mbps]
    return (
        not bandwidth.is_suspect
        and bandwidth.claimed_mbps <= most_mbps
        and any(least_mbps <= mbps <= most_mbps for mbps in with_server)
    )


def _bandwidth_is_known(controller: Controller) -> bool:
    now_s, telemetry = controller.clock.now_s(), controller.telemetry
    return any("bandwidth_mbps" in telemetry.measurements(x, now_s) for x in telemetry.agents())


def _node(name: str, address: str) -> Node:
    room = {CPU: 4000, MEMORY: 4 * 1024**3, PODS: 110}
    if name == ANCHOR:
        return Node(name, room, unschedulable=True, addresses=(address,))
    return Node(name, room, tier="edge", addresses=(address,))


def _cameras(boards: Sequence[str], wanted_mbps: float | None) -> Iterator[Pod]:
    """Pods for DACS without an end; their users are at one board after the other."""
    for number, user in zip(count(1), cycle(boards), strict=False):
        annotations = PodAnnotations(user_node=user, data_mb=0.5, bandwidth_mbps=wanted_mbps)
        yield _pod(f"camera-{number}", annotations)


def _pod(name: str, annotations: PodAnnotations | None = None) -> Pod:
    return Pod("default", name, requests=_REQUEST, annotations=annotations or PodAnnotations())


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(run(Demo(**json.loads(sys.argv[1])))))
    except KeyboardInterrupt:
        sys.exit(130)  # the parent process was interrupted as well, and cleans up
