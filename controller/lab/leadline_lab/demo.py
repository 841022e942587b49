"""The demo of `leadline lab run`: agents measure the boards, the same pods are placed by
kube-scheduler's rule and by NetSched, and each really sends its data; DACS places others, and the
decisions are explained. For `--keep` and `leadline lab up` the controller goes on: every 20 s a pod
comes and the oldest goes, and it answers `leadline`.
"""

import asyncio
import json
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import count, cycle, groupby, islice
from random import Random
from typing import Any

import click
import grpc
from leadline_controller.cli import decisions, human, links, nodes
from leadline_controller.cli.output import show, table, working
from leadline_controller.filters import FILTERS
from leadline_controller.framework.cycle import Rule, decide_in_turn
from leadline_controller.framework.model import CPU, MEMORY, PODS, Node, Pod, PodAnnotations
from leadline_controller.framework.view import ClusterView
from leadline_controller.map.settings import WebSettings
from leadline_controller.probing.budgets import BandwidthBudget
from leadline_controller.probing.planning import ProbeLimits
from leadline_controller.scheduling.scheduler import Scheduler
from leadline_controller.serve.settings import GrpcSettings
from leadline_controller.settings import Settings
from leadline_controller.wiring import Controller, Servers, running, strategy
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc
from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.text import Text

from leadline_lab.demo_cluster import DemoCluster
from leadline_lab.demo_process import READY, Demo
from leadline_lab.errors import LabError
from leadline_lab.played import PlayedBoards
from leadline_lab.sending import computed_s, sent_s
from leadline_lab.spec import SERVER, LabSpec, parse_spec

# It takes 12 s, and several times as long on a machine that does much else.
_MEASURING_TIMEOUT_S = 90.0
_NEAR = 4.0
_PLACING_TIMEOUT_S = 40.0
_POLL_S = 0.25
_ANOTHER_POD_S = 20.0
_NETSCHED_PODS, _DACS_PODS = 10, 6
# kube-scheduler puts three of ten pods on a board with 4 Mbit/s: 7 s.
_SENT_MB = 1.2
# All boards of a lab share one machine, so CPU, memory and disk are the same on each; those of
# played boards are unknown, as their packets are.
_SHARED_MACHINE = {"cpu": 0.0, "memory": 0.0, "disk": 0.0}
_PLAYED = {**_SHARED_MACHINE, "packets_received": 0.0, "packets_sent": 0.0}
_DACS_OPTIONS = {"lambda": 0.005}  # on a local network, 5 ms is a difference
_REQUEST = {CPU: 100, MEMORY: 64 * 1024**2, PODS: 1}
# The first test begins when those of an earlier controller must have ended, by these limits.
_LIMITS = ProbeLimits(
    interval_s=2, duration_ms=1000, max_bytes=25_000_000, ttl_ms=2000, ping_interval_s=2
)
# A test of a link of 4 Mbit/s takes up to a second, and nobody wants to wait for its budget.
_BUDGET = BandwidthBudget(link_time_share=0.5, bytes_per_day=10**12)


async def run(demo: Demo) -> int:
    """Run the demo. 0 if every pod got a node and its data arrived, else 1."""
    spec = parse_spec(demo.spec)
    played = PlayedBoards(spec) if demo.broker is None else None
    real = {host.name: spec.address(host.name) for host in spec.hosts}
    addresses = played.addresses if played else real
    cluster = DemoCluster([_node(name, address) for name, address in addresses.items()])
    listener = None if demo.web_fd is None else socket.socket(fileno=demo.web_fd)
    netsched = _rule("netsched", _PLAYED if played else _SHARED_MACHINE)
    controller = Controller(_settings(demo), cluster, _rule("dacs", _DACS_OPTIONS), clock=played)
    measure = partial(played.run, controller) if played else controller.measure
    first = Scheduler(cluster, controller.step_by(netsched), on_change=controller.notify)
    webs = web_pods()
    cameras = _cameras([board.name for board in spec.boards])
    watching = list(islice(cameras, _DACS_PODS))
    async with (
        controller.storing_decisions(),
        Servers(controller, listener).serving() as served,
        # Loopback must not go through a proxy that the environment sets.
        grpc.aio.insecure_channel(served["grpc"], (("grpc.enable_http_proxy", 0),)) as channel,
    ):
        stub = control_pb2_grpc.InspectionStub(channel)
        address, page = served["grpc"], served.get("web")
        if not demo.tells:
            click.echo(f"{READY}{address}")
        elif page is not None:
            click.echo(f"the map, while this runs: {page}")
        async with AsyncExitStack() as measuring:
            await measuring.enter_async_context(running(measure()))
            # Boards are probed at the addresses of their nodes, so these have to be known.
            async with running(controller.follow()):
                if played is None:
                    await _measure(controller, spec)
                else:
                    await played.measured.wait()
                if demo.tells:
                    await _show_measured(stub)
                view = controller.step.view()
            kube = by_kube_schedulers_rule(view, webs)
            # The scheduler lists the nodes, so there is nothing to show before it runs.
            async with running(first.run()):
                await _place(controller, cluster, webs)
            async with running(*controller.placing()):
                await _place(controller, cluster, watching)
                placed = {pod.key: cluster.pod(pod.key).node_name for pod in (*webs, *watching)}
                code = 0 if all(placed.values()) else 1
                if demo.tells:
                    await _show_placed(stub, "netsched", webs)
                    await _show_placed(stub, "dacs", watching)
                    await measuring.aclose()
                    ours = {pod.key: placed[pod.key] for pod in webs}
                    code |= await _race(spec, kube, ours, played)
                    await measuring.enter_async_context(running(measure()))
                if demo.tells and demo.keeps:
                    _invite(address, page)
                if demo.keeps:
                    await _go_on(cluster, (*webs, *watching), cameras)
    return code


def by_kube_schedulers_rule(view: ClusterView, pods: Iterable[Pod]) -> dict[str, str | None]:
    """Where kube-scheduler would put these pods, by its filters and its scores of free CPU and
    memory: pod -> node."""
    decided = decide_in_turn(view, pods, _rule("kube-default", {}))
    return {decision.pod.key: decision.node for decision, _ in decided}


def _settings(demo: Demo) -> Settings:
    broker_host, broker_port = demo.broker or ("", 0)
    return Settings(
        warm_up_s=0.0,
        cluster="demo",
        broker_host=broker_host,
        broker_port=broker_port,
        anchors=(SERVER,),
        limits=_LIMITS,
        budget=_BUDGET,
        serve=GrpcSettings(demo.serve),
        web=None if demo.web_fd is None else WebSettings(),
    )


def _invite(address: str, page: str | None) -> None:
    click.echo(f"\n{READY}{address}: in another terminal, try")
    click.echo(f"  export LEADLINE_ADDRESS={address}")
    for words in ("nodes", "explain web-1", "watch --only placements"):
        click.echo(f"  leadline {words}")
    if page is not None:
        click.echo(f"and open the map: {page}")
    click.echo("Ctrl-C ends it.")


async def _place(controller: Controller, cluster: DemoCluster, pods: Sequence[Pod]) -> None:
    for pod in pods:
        cluster.put_pod(pod)

    def is_placed(pod: Pod) -> bool:
        decided = controller.decisions.get(pod.key)
        if decided is None:
            return False
        # Binding follows. A pod that fits nowhere is shown as pending, with the reason.
        return decided.node is None or cluster.pod(pod.key).node_name is not None

    with suppress(TimeoutError):
        async with asyncio.timeout(_PLACING_TIMEOUT_S):
            while not all(map(is_placed, pods)):  # noqa: ASYNC110  # has no event
                await asyncio.sleep(_POLL_S / 5)


async def _go_on(cluster: DemoCluster, pods: Iterable[Pod], cameras: Iterator[Pod]) -> None:
    """Until it is cancelled, a pod comes and the oldest goes, every 20 s."""
    present = deque(pods)
    for pod in cameras:
        await asyncio.sleep(_ANOTHER_POD_S)
        await cluster.evict(cluster.pod(present.popleft().key))
        cluster.put_pod(pod)
        present.append(pod)


def _title(text: str) -> None:
    show(Text(f"\n{text}", "bold"))


async def _show_measured(inspection: Any) -> None:
    """Print what the controller answers over gRPC, as `leadline` does."""
    listed = await inspection.ListNodes(pb.ListNodesRequest())
    matrix = await inspection.GetMatrix(pb.GetMatrixRequest())
    _title("What the agents measure on each node")
    show(nodes.NodesTable(listed.nodes))
    _title("Round trips between nodes, ms")
    show(links.matrix_of(matrix, "rtt"))
    _title("Bandwidth between nodes, Mbit/s")
    show(links.matrix_of(matrix, "bandwidth"))


async def _show_placed(inspection: Any, name: str, pods: Sequence[Pod]) -> None:
    """Print where a strategy put the pods and why, and explain the first one."""
    keys = {pod.key for pod in pods}
    answer = await inspection.ListPlacements(pb.ListPlacementsRequest())
    placed = [each for each in answer.placements if each.pod in keys]
    _title(f"Where {name} put {len(pods)} pods")
    show(table(("PODS", "NODE", "WHY"), _grouped(placed)))
    _title(f"Why {pods[0].key} is where it is")
    answer = await inspection.ExplainPod(pb.ExplainPodRequest(pod=pods[0].key))
    show(*decisions.explanation_tables(answer))


def _grouped(placements: Iterable[pb.Placement]) -> Iterator[tuple[str, str, str]]:
    """One row for the pods in sequence that are on one node for one reason."""
    for (node, why), group in groupby(placements, lambda each: (each.node, each.why)):
        names = [each.pod.partition("/")[2] for each in group]
        several = f"{names[0]} to {names[-1]}"
        yield names[0] if len(names) == 1 else several, node or "none", why


async def _race(
    spec: LabSpec,
    kube: Mapping[str, str | None],
    ours: Mapping[str, str | None],
    played: PlayedBoards | None,
) -> int:
    """Let the pods send their data, first from where kube-scheduler's rule puts them, and print
    how long each took. kube, ours: pod -> board. 0 if all arrived, else 1."""
    columns = {"kube-scheduler's rule": kube, "leadline": ours}
    took = {}
    if played is None:  # the last bandwidth test is not to run beside the pods' data
        await asyncio.sleep(_LIMITS.duration_ms / 1000)
    for name, boards in columns.items():
        where = {pod: board for pod, board in boards.items() if board is not None}
        if played:
            took[name] = computed_s(spec, where, _SENT_MB)
            continue
        click.echo(f"{len(where)} pods send {_SENT_MB:g} MB each, placed by {name}", err=True)
        try:
            with working("sending"):
                took[name] = await sent_s(spec, where, _SENT_MB)
        except (LabError, OSError) as error:
            click.echo(f"the pods' data did not arrive: {error}", err=True)
            return 1
    how = "would take, by the speeds of the links," if played else "took"
    _title(f"How long {len(ours)} pods {how} to send {_SENT_MB:g} MB each to the server")
    show(race_table(spec, columns, took))
    click.echo("The rule is kube-scheduler's filters and its scores of free CPU and memory.")
    return 0


def race_table(
    spec: LabSpec,
    columns: Mapping[str, Mapping[str, str | None]],
    took_s: Mapping[str, Mapping[str, float]],
) -> RenderableType:
    """A row for each board: its link, and by each scheduler its pods and when the last had sent.
    columns: scheduler -> pod -> board. took_s: scheduler -> pod -> seconds."""

    def cells(board: str) -> Iterator[str]:
        for name, boards in columns.items():
            pods = [pod for pod, where in boards.items() if where == board]
            last_s = max((took_s[name][pod] for pod in pods), default=0.0)
            yield f"{len(pods)} pod{'s'[: len(pods) != 1]}, {last_s:.1f} s" if pods else "-"

    rows = [(x.name, human.number(x.rate_mbps), *cells(x.name)) for x in spec.boards]
    last_s = (max(took_s[name].values(), default=0.0) for name in columns)
    rows.append(("all", "", *(f"{each:.1f} s" for each in last_s)))
    return table(("BOARD", "LINK\nMbit/s", *columns), rows, numbers=("LINK\nMbit/s",))


async def _measure(controller: Controller, spec: LabSpec) -> None:
    """Wait until all is measured that can be here, and print what cannot."""
    measured, known = [host.name for host in spec.hosts], set[str]()
    progress = Console(stderr=True)
    progress.print("measuring the boards and their links")
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task("nodes measured", total=len(measured))
        deadline_s = controller.clock.now_s() + _MEASURING_TIMEOUT_S
        while controller.clock.now_s() < deadline_s and len(known) < len(measured):
            await asyncio.sleep(_POLL_S)
            known = _measured(controller, measured)
            bar.update(task, completed=len(known))
    agents = controller.telemetry.agents()
    probes = {probe for agent in agents.values() for probe in agent.probes}
    if silent := [node for node in measured if node not in agents]:
        sys.stderr.write(f"no agent was heard on {', '.join(silent)}\n")
    elif "iperf3" not in probes:
        sys.stderr.write("iperf3 is not here: bandwidth stays unknown\n")
    elif late := [node for node in measured if node not in known]:
        sys.stderr.write(f"this machine is too busy to measure {', '.join(late)} well\n")


def _measured(controller: Controller, names: Sequence[str]) -> set[str]:
    """The nodes of which everything is known that the demo shows."""
    now_s, telemetry = controller.clock.now_s(), controller.telemetry
    agents, pairs = telemetry.agents(), telemetry.links(now_s)
    links = {link.name: link.bandwidth for link in telemetry.node_links(names, now_s)}
    believed = {x: y.mbps for x, y in links.items() if y and (x == SERVER or not y.is_suspect)}
    tests = {frozenset((x.a, x.b)): x.bandwidth_mbps or 0.0 for x in pairs}
    tested = well_tested(believed, tests)

    def is_measured(node: str) -> bool:
        known = telemetry.board(node, now_s).values
        return (
            node in agents
            and {"cpu_percent", "packets_sent_per_s"} <= known.keys()
            and any(node in (x.a, x.b) and x.rtt_ms is not None for x in pairs)
            and ("iperf3" not in agents[node].probes or node in tested)
        )

    return set(filter(is_measured, names))


def well_tested(
    believed_mbps: Mapping[str, float], tests_mbps: Mapping[frozenset[str], float]
) -> set[str]:
    """The nodes whose link a test has told: one with the server, or with a much faster board. With
    a slower one it tells that board's link."""

    def is_told(node: str) -> bool:
        least_mbps = 2 * believed_mbps[node]
        faster = [x for x, mbps in believed_mbps.items() if x == SERVER or mbps > least_mbps]
        told_mbps = [tests_mbps.get(frozenset((node, x)), 0.0) for x in faster]
        return node == SERVER or max(told_mbps, default=0.0) >= believed_mbps[node] / _NEAR

    return set(filter(is_told, believed_mbps))


def _rule(name: str, options: Mapping[str, float]) -> Rule:
    return Rule(strategy(name, options), FILTERS, Random(1))  # noqa: S311  # breaks ties


def _node(name: str, address: str) -> Node:
    room = {CPU: 4000, MEMORY: 4 * 1024**3, PODS: 110}
    if name == SERVER:
        return Node(name, room, unschedulable=True, addresses=(address,))
    return Node(name, room, tier="edge", addresses=(address,))


def web_pods() -> list[Pod]:
    """The pods that kube-scheduler's rule and NetSched place."""
    return [_pod(f"web-{number}") for number in range(1, _NETSCHED_PODS + 1)]


def _cameras(boards: Sequence[str]) -> Iterator[Pod]:
    """Pods for DACS without an end; their users are at one board after the other."""
    for number, user in zip(count(1), cycle(boards), strict=False):
        yield _pod(f"camera-{number}", PodAnnotations(user_node=user, data_mb=0.5))


def _pod(name: str, annotations: PodAnnotations | None = None) -> Pod:
    return Pod("default", name, requests=_REQUEST, annotations=annotations or PodAnnotations())


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(run(Demo(**json.loads(sys.argv[1])))))
    except KeyboardInterrupt:
        sys.exit(130)  # the parent process was interrupted as well, and cleans up
