"""Attacks on a controller by the messages of a board or of another client of the broker."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import grpc
import psutil
from leadline_controller.telemetry.session import BrokerTls
from leadline_wire.v1 import control_pb2 as pb
from leadline_wire.v1 import control_pb2_grpc
from leadline_wire.v1 import telemetry_pb2 as wire
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.attack.mqtt_flood import CONTEXT, MALLORY, births, pour, pour_mutated
from tests.controller.telemetry.board_builder import CLUSTER, BoardMessages
from tests.controller.telemetry.running_session import RunningSession, listening
from tests.controller.telemetry.wire_client import WireClient, connected
from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.objects import node
from tests.support.boards import Pace, reporting
from tests.support.broker_role import controller_of, role_broker
from tests.support.certificates import Authority, Certificate
from tests.support.check import Check
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port, wait_until
from tests.support.processes import waited_for
from tests.support.threads import beside
from tests.system.daemons import Daemon, clean_environ

_REPOSITORY = Path(__file__).parents[2]
HONEST = Pace(report_s=1.0, life_s=inf, rtt_every=0)


class Controller:
    """A controller's measuring in a process of its own; see telemetry_controller."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.stub = control_pb2_grpc.InspectionStub(grpc.insecure_channel(address))

    def status(self) -> dict[str, Any]:
        """Stalls since the last call, memory, refusals."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.line()

    def line(self) -> dict[str, Any]:
        """Its next line of output."""
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def nodes(self) -> dict[str, pb.NodeStatus]:
        """Every node and agent that it knows."""
        return {each.name: each for each in self.stub.ListNodes(pb.ListNodesRequest()).nodes}

    def links(self) -> list[pb.LinkStatus]:
        """Every link of which it believes something."""
        return list(self.stub.GetMatrix(pb.GetMatrixRequest()).links)


@contextmanager
def controller(broker: Broker, nodes: Mapping[str, str], **limits: object) -> Iterator[Controller]:
    """A controller of a cluster with these nodes (name -> address)."""
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attack.telemetry_controller"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_REPOSITORY,
        env=clean_environ(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asked = {
        **{"cluster": CLUSTER, "host": broker.host, "port": broker.port, "grpc": address},
        **{"nodes": dict(nodes), "limits": limits},
    }
    try:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        started = Controller(process, address)
        assert started.line() == {"ready": True}
        wait_until(
            lambda: len(started.nodes()) >= len(nodes), "the controller knows its nodes", 180
        )
        yield started
    finally:
        process.stdin.close()
        waited_for(process, 30)
        process.stdout.close()


def boards(count: int, prefix: str = "pi", net: int = 10) -> dict[str, str]:
    """Nodes, each with an address."""
    return {
        f"{prefix}-{i}": f"{net}.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"
        for i in range(1, count + 1)
    }


# Row 8: the planner of bandwidth tests.


def many_boards(count: int, leases: int) -> Check:
    """All boards are born; bandwidth leases are planned, many at a time, each board in one."""
    nodes = boards(count)
    with (
        mosquitto() as broker,
        controller(broker, nodes, interval_s=1.0, ttl_ms=100, duration_ms=1000) as attacked,
        connected(broker) as client,
    ):
        before = attacked.status()
        client.listen_to_all(CLUSTER)
        pour(broker, births(CLUSTER, nodes), "boards")
        with suppress(TimeoutError):
            wait_until(lambda: len(_tests(client)) >= leases, "tests are planned", 90)
        given, after = _tests(client).values(), attacked.status()
    ends = [end for lease in given for end in (lease.node, lease.bandwidth.peer.node)]
    grown = after["most_mb"] - before["rss_mb"]
    return Check(
        f"{count:,} boards are born, {leases} bandwidth tests or more are planned",
        "all planned, no board in two at a time; the event loop busy for less than 0.5 s at a "
        "time, less than 100 MB",
        f"{len(given)} planned, of {len(set(ends))} boards; {_stalls(after)}, memory grew by "
        f"{grown:.0f} MB",
        len(given) >= leases
        and len(set(ends)) == len(ends)
        and after["busy_s"] < 0.5
        and grown < 100,
    )


def _stalls(status: Mapping[str, float]) -> str:
    """Standing still counts what other processes take of the processor; being busy does not."""
    return (
        f"the event loop was busy for {status['busy_s']:.2f} s at most and stood still for "
        f"{status['stall_s']:.2f} s"
    )


def _tests(client: WireClient) -> dict[str, wire.Lease]:
    """The client's lease of each bandwidth test that was handed out: lease id -> lease."""
    return {
        lease.bandwidth.lease_id: lease
        for lease in list(client.leases)
        if lease.bandwidth.role == wire.BandwidthLease.CLIENT
    }


# Row 9: what is measured under no lease, and where leases lead.


def lies(count: int) -> list[Check]:
    """One board says what it likes of its links, `count` times each, then under a lease."""
    nodes = boards(4)
    liar, honest = BoardMessages("pi-1", CLUSTER), BoardMessages("pi-2", CLUSTER)
    with (
        mosquitto() as broker,
        controller(broker, nodes, interval_s=2.0, ttl_ms=1000, duration_ms=1000) as attacked,
        connected(broker) as client,
    ):
        client.listen_to_all(CLUSTER)
        for name in ("pi-3", "pi-4"):  # the attacker lies about them; without iperf3
            client.send(
                BoardMessages(name, CLUSTER),
                BoardMessages(name, CLUSTER).birth(nodes[name], ["icmp"]),
            )
        for number in range(count):
            mbps = (1e30, 1e9, 900.0, 90.0)[number % 4]
            client.send(liar, liar.bandwidth("pi-3", mbps, lease_id=f"x-{number}"))
            client.send(liar, liar.rtt(("pi-3", 0.001), ("pi-4", 0.001), ("@broker", 0.001)))
        wait_until(lambda: attacked.status()["accepted"] + _refused(attacked) >= 2 * count, "taken")
        unleased = [link for link in attacked.links() if "pi-1" in (link.a, link.b)]
        for board in (liar, honest):
            client.send(board, board.status(online=True))
            client.send(board, board.birth(nodes[board.node]))
        wait_until(lambda: _tests(client), "the liar has a lease", 60)
        (lease_id,) = _tests(client)
        # pi-1 sorts first, so it is the client. Each of these breaks the lease in another way.
        lease = _tests(client)[lease_id].bandwidth
        broken = (
            ("pi-3", 90.0, lease.lease_id, 20_000_000),
            (lease.peer.node, 90.0, "x-1", 20_000_000),
            (lease.peer.node, 1e5, lease.lease_id, 20_000_000),
            (lease.peer.node, 90.0, lease.lease_id, 10 * lease.max_bytes),
        )
        for peer, mbps, lease_id, moved in broken:
            message = liar.bandwidth(
                *(peer, mbps), lease_id=lease_id, transferred_bytes=moved, duration_ms=1000
            )
            client.send(liar, message)
        # The server's end measured without a time, and then more than all bytes could be.
        for mbps, measured_us in ((91.0, 0), (91.0, 1_000_000)):
            message = honest.received(_lease(client, lease_id, SERVER).bandwidth, mbps)
            message.measured_us = measured_us
            client.send(honest, message)
        time.sleep(0.5)
        against = _believed(attacked)
        # Both ends report now, but they do not agree: ten times as much came as was sent.
        sent = liar.sent(lease)
        sent.transferred_bytes //= 10
        client.send(liar, sent)
        client.send(honest, honest.received(_lease(client, lease_id, SERVER).bandwidth, 4.0))
        time.sleep(0.5)
        disagreed = _believed(attacked)
        wait_until(lambda: len(_tests(client)) > 1, "there is another test", 60)
        lease_id = list(_tests(client))[1]
        by_name = {board.node: board for board in (liar, honest)}
        for mbps in (4.0, 5.0):  # right, and then once more
            for role in (SERVER, CLIENT):
                given = _lease(client, lease_id, role)
                board, work = by_name[given.node], given.bandwidth
                client.send(
                    board, board.received(work, mbps) if role == SERVER else board.sent(work)
                )
        time.sleep(0.5)
        known = _believed(attacked)
    return [
        Check(
            f"a board without a lease tells {count} bandwidths up to 1e30 Mbit/s, and as "
            "many rounds of pings",
            "none believed",
            f"{len(unleased)} links believed: "
            + "; ".join(
                f"{x.a}-{x.b} {x.bandwidth_mbps:g} Mbit/s, {x.rtt_ms:g} ms" for x in unleased
            ),
            not unleased,
        ),
        Check(
            "under a lease: for another peer, another lease, over the cap, of the server's end",
            "none believed",
            f"believed {_listed(against)}",
            not against,
        ),
        Check(
            "under a lease: the server received ten times as much as the client sent",
            "none believed",
            f"believed {_listed(disagreed)}",
            not disagreed,
        ),
        Check(
            "under a lease: both ends report 4 Mbit/s, then 5 by the same lease",
            "4 believed, once",
            f"believed {_listed(known)}",
            known == [4.0],
        ),
    ]


def inflated(tests: int) -> list[Check]:
    """One board says that it carries 1e6 Mbit/s, before and after tests that show 4, and that each
    of these was held back by its processor."""
    nodes = boards(2)
    liar, honest = BoardMessages("pi-1", CLUSTER), BoardMessages("pi-2", CLUSTER)
    by_name = {board.node: board for board in (liar, honest)}
    believed: list[float] = []
    with (
        mosquitto() as broker,
        controller(broker, nodes, interval_s=1.0, ttl_ms=1000, duration_ms=1000) as attacked,
        connected(broker) as client,
    ):

        def boast() -> float:
            """It tells its traffic, without and with a speed. The most that is believed of it."""
            known = []
            for link_mbps in (None, 1_000_000):
                interface = wire.NetworkInterface(
                    name="eth0",
                    bytes_sent_per_s=1.25e11,
                    bytes_received_per_s=0.0,
                    link_mbps=link_mbps,
                )
                client.send(liar, liar.report(network=[interface]))
                time.sleep(0.3)
                metrics = attacked.nodes()["pi-1"].metrics
                known += [x.value for x in metrics if x.name == "bandwidth_mbps"]
            return max(known, default=0.0)

        client.listen_to_all(CLUSTER)
        client.send(liar, liar.status(online=True))
        client.send(liar, liar.birth(nodes["pi-1"]))
        untested = boast()
        client.send(honest, honest.status(online=True))
        client.send(honest, honest.birth(nodes["pi-2"]))
        done: set[str] = set()
        while len(believed) < tests:
            wait_until(lambda: _tests(client).keys() - done, "there is a test", 60)
            lease_id = min(_tests(client).keys() - done)
            done.add(lease_id)
            for role in (SERVER, CLIENT):
                given = _lease(client, lease_id, role)
                board, work = by_name[given.node], given.bandwidth
                report = board.received(work, 4.0) if role == SERVER else board.sent(work)
                if board is liar:
                    report.hindrances.append(wire.BandwidthReport.CPU_BOUND)
                client.send(board, report)
            if _lease(client, lease_id, CLIENT).node == liar.node:
                believed.append(boast())
    return [
        Check(
            "a board that was never tested says that it carries 1e6 Mbit/s",
            "100 Mbit/s believed at most",
            f"{untested:g} Mbit/s",
            0 < untested <= 100,
        ),
        Check(
            f"it says so after each of {tests} tests that show 4 Mbit/s, and that it was CPU-bound",
            "5 Mbit/s believed at most",
            _listed(believed),
            max(believed) <= 5.0,
        ),
    ]


CLIENT, SERVER = wire.BandwidthLease.CLIENT, wire.BandwidthLease.SERVER


def _lease(client: WireClient, lease_id: str, role: wire.BandwidthLease.Role) -> wire.Lease:
    """One end's lease of a bandwidth test."""
    given = (x for x in list(client.leases) if x.bandwidth.lease_id == lease_id)
    return next(lease for lease in given if lease.bandwidth.role == role)


def _believed(attacked: Controller) -> list[float]:
    """The bandwidth of every link, Mbit/s."""
    return [x.bandwidth_mbps for x in attacked.links() if x.HasField("bandwidth_mbps")]


def _listed(mbps: list[float]) -> str:
    return ", ".join(f"{each:g} Mbit/s" for each in mbps) or "nothing"


def _refused(attacked: Controller) -> int:
    return sum(attacked.status()["refused"].values())


def third_party(within_s: float) -> Check:
    """A board says that it is at the address of a machine of somebody else; a real agent is
    there to test with it."""
    victim, port = "127.0.0.77", free_port("127.0.0.77")
    nodes = {"a-pi": "127.0.0.11", "z-liar": "127.0.0.12"}
    liar = BoardMessages("z-liar", CLUSTER)
    with (
        tempfile.TemporaryDirectory(prefix="leadline-attack-") as name,
        mosquitto() as broker,
        controller(broker, nodes, interval_s=2.0, port=port) as attacked,
        _agent(Path(name), broker, "a-pi", nodes["a-pi"]),
        _iperf3_server(victim, port, Path(name) / "victim.json") as moved_bytes,
        connected(broker) as client,
    ):
        wait_until(lambda: attacked.nodes()["a-pi"].agent == "online", "the agent is online", 60)
        client.send(liar, liar.status(online=True))
        client.send(liar, liar.birth(victim))
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s and not moved_bytes():
            time.sleep(0.2)
        moved = moved_bytes()
    return Check(
        "a board says that its address is a third party's, beside an honest agent",
        "0 bytes to the third party",
        f"{moved:,} bytes in the first test within {within_s:g} s",
        moved == 0,
    )


@contextmanager
def _iperf3_server(address: str, port: int, output: Path) -> Iterator[Callable[[], int]]:
    """Yields what tells how many bytes came in its first test."""

    def moved_bytes() -> int:
        try:
            return int(json.loads(output.read_text())["end"]["sum_received"]["bytes"])
        except (OSError, ValueError, KeyError):
            return 0

    with output.open("wb") as file:
        command = ["iperf3", "-s", "-J", "-1", "-B", address, "-p", str(port)]
        server = subprocess.Popen(command, stdout=file)
        try:
            yield moved_bytes
        finally:
            server.terminate()
            server.wait()


@contextmanager
def _agent(folder: Path, broker: Broker, node_name: str, address: str) -> Iterator[None]:
    config = folder / "agent.toml"
    config.write_text(
        f'node = "{node_name}"\ncluster = "{CLUSTER}"\nstate_dir = "{folder}/state"\n'
        f'interval_s = 1\n[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
        f'[probe]\naddress = "{address}"\n'
    )
    agent = Daemon("leadline_agent", config, folder / "agent.log")
    agent.start()
    try:
        yield
    finally:
        agent.stop()


# Row 10: the controller's place at the broker.


def stolen_id(folder: Path, reports: int) -> Check:
    """A board connects with the controllers' client id again and again, under its own name, while
    two controllers live at the role's broker and another board reports."""
    authority = Authority(folder / "pki")
    with role_broker(folder, authority, CLUSTER, controllers=["a", "b"]) as broker:
        return _stolen_id(broker, authority, reports)


def _stolen_id(broker: Broker, authority: Authority, reports: int) -> Check:
    names = [controller_of(host) for host in ("a", "b")]
    stolen = ["controller", *names]
    thief, honest = authority.client("mallory"), BoardMessages("pi-1", CLUSTER)
    with ExitStack() as running:
        ears = [
            running.enter_context(listening(broker.host, broker.port, _tls(authority, name)))
            for name in names
        ]
        client = running.enter_context(connected(broker, tls=authority.client("pi-1")))
        for each in ears:
            wait_until(partial(_is_received, each, client, honest), "a report is received", 20)
        time.sleep(0.5)
        before = [each.state.accepted for each in ears]
        stop = threading.Event()
        thieves = [partial(_steal, broker, thief, client_id, stop) for client_id in stolen]
        with beside(*thieves, done=stop):
            for _ in range(reports):
                client.send(honest, honest.report())
                time.sleep(0.02)
        with suppress(TimeoutError):
            wait_until(
                lambda: all(
                    one.state.accepted >= had + reports
                    for one, had in zip(ears, before, strict=True)
                ),
                "all came",
                5,
            )
        lost = [had + reports - one.state.accepted for one, had in zip(ears, before, strict=True)]
    return Check(
        f"a board connects with the controllers' client id without end, {reports} reports are sent",
        "0 lost by either controller",
        f"{lost[0]} and {lost[1]} lost",
        lost == [0, 0],
    )


def _tls(authority: Authority, name: str) -> BrokerTls:
    made = authority.client(name.replace(":", "-"), common_name=name)
    return BrokerTls(made.ca_file, made.cert_file, made.key_file)


def _is_received(ears: RunningSession, client: WireClient, board: BoardMessages) -> bool:
    client.send(board, board.report())
    return ears.state.accepted > 0


def _steal(broker: Broker, own: Certificate, client_id: str, stop: threading.Event) -> None:
    while not stop.is_set():
        thief = Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5)
        thief.tls_set_context(own.context())
        with suppress(OSError):
            thief.connect(broker.host, broker.port)
            thief.loop(0.2)
            stop.wait(0.2)
            thief.disconnect()


# Row 11: names that nobody has.


def phantoms(count: int, honest: int, timeout_s: float = 60.0) -> list[Check]:
    """The broker retains births of invented names; then the honest boards connect."""
    nodes, invented = boards(honest), boards(count, "phantom", 11)
    with mosquitto() as broker, controller(broker, nodes) as attacked:
        before = attacked.status()
        pour(broker, births(CLUSTER, invented), "inventor")
        _quiet(attacked)
        with reporting(broker, nodes, HONEST, CLUSTER):
            with suppress(TimeoutError):
                wait_until(lambda: _heard(attacked, nodes) == honest, "all are heard", timeout_s)
            attacked.status()
            time.sleep(3)
            after, listed = attacked.status(), attacked.nodes()
            heard = _heard(attacked, nodes)
    strange = len(listed.keys() - nodes.keys())
    grown = after["most_mb"] - before["rss_mb"]
    return [
        Check(
            f"{count:,} invented names are born, then {honest} honest boards",
            "all of these heard",
            f"{heard} heard",
            heard == honest,
        ),
        Check(
            f"what stays of {count:,} invented names",
            "a few hundred, less than 60 MB, the event loop busy for less than 0.5 s at a time",
            f"{strange:,} kept, memory grew by {grown:.0f} MB; {_stalls(after)}",
            strange <= 1000 and grown < 60 and after["busy_s"] < 0.5,
        ),
    ]


def _heard(attacked: Controller, nodes: Mapping[str, str]) -> int:
    known = attacked.nodes()
    return sum(known[name].agent == "online" and bool(known[name].metrics) for name in nodes)


def _quiet(attacked: Controller) -> None:
    """Wait until the controller has taken in what was sent."""
    seen = -1
    while seen != (seen := (now := attacked.status())["accepted"] + sum(now["refused"].values())):
        time.sleep(0.5)


# The flood.


def flood(messages: int, honest: int, attackers: int = 2) -> list[Check]:
    """Mutated messages, through a real mosquitto into the real daemon, with honest boards and
    somebody who asks the gRPC API all the time."""
    nodes = boards(honest)
    with tempfile.TemporaryDirectory(prefix="leadline-attack-") as name, ExitStack() as running:
        folder = Path(name)
        (folder / "plane").mkdir()
        plane = running.enter_context(control_plane(folder / "plane"))
        for each, address in {**nodes, MALLORY: "127.0.0.66"}.items():
            Api(plane.kubeconfig).add_node(node(each, address=address))
        broker = running.enter_context(mosquitto())
        address = f"127.0.0.1:{free_port()}"
        config = folder / "controller.toml"
        config.write_text(
            f'cluster = "{CLUSTER}"\n[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
            f'[kubernetes]\nkubeconfig = "{plane.kubeconfig}"\n[grpc]\naddress = "{address}"\n'
        )
        daemon = Daemon("leadline_controller", config, folder / "log")
        running.callback(daemon.stop)
        daemon.start()
        stub = control_pb2_grpc.InspectionStub(grpc.insecure_channel(address))
        with reporting(broker, nodes, HONEST, CLUSTER):
            wait_until(lambda: _online(stub, nodes) == honest, "all boards are online", 180)
            lost = _lost(stub, nodes)
            assert daemon.pid is not None
            process, memory_mb = psutil.Process(daemon.pid), []
            quiet_s, took_s, begin_s = _asked(stub, 20), [], time.monotonic()
            pouring = [
                CONTEXT.Process(
                    target=pour_mutated, args=(broker, CLUSTER, seed, messages // attackers)
                )
                for seed in range(attackers)
            ]
            for attacker in pouring:
                attacker.start()
            while any(each.is_alive() for each in pouring):
                took_s += _asked(stub, 1)
                memory_mb.append(process.memory_info().rss / 1e6)
                time.sleep(0.1)
            poured_s = time.monotonic() - begin_s
            time.sleep(3)
            wait_until(lambda: _fresh(stub, nodes) == honest, "all report again", 180)
            lost = _lost(stub, nodes) - lost
            known = list(stub.GetMatrix(pb.GetMatrixRequest()).links)
            memory_mb.append(process.memory_info().rss / 1e6)
        lines = daemon.lines()
    times = f"median {statistics.median(took_s) * 1000:.0f} ms, at most {max(took_s):.2f} s"
    return [
        Check(
            f"{messages:,} mutated messages in {poured_s:.0f} s, {honest} honest boards at 1 s",
            "0 honest messages lost, no link believed, no traceback",
            f"{lost} lost, {len(known)} links, {sum('Traceback' in x for x in lines)} tracebacks, "
            f"{len(lines)} lines in the log",
            not lost and not known and not any("Traceback" in line for line in lines),
        ),
        Check(
            "the daemon's memory during it",
            "less than 250 MB",
            f"{memory_mb[0]:.0f} MB at first, {max(memory_mb):.0f} MB at most",
            max(memory_mb) < 250,
        ),
        Check(
            "the gRPC API's listing of nodes during it",
            "every answer within 2 s",
            f"{times}, {len(took_s)} asked; before it {statistics.median(quiet_s) * 1000:.0f} ms",
            max(took_s) < 2,
        ),
    ]


def _asked(stub: Any, count: int) -> list[float]:
    took_s = []
    for _ in range(count):
        begin_s = time.monotonic()
        stub.ListNodes(pb.ListNodesRequest(), timeout=60)
        took_s.append(time.monotonic() - begin_s)
    return took_s


def _status(stub: Any, nodes: Mapping[str, str]) -> list[pb.NodeStatus]:
    try:
        listed = stub.ListNodes(pb.ListNodesRequest(), timeout=60).nodes
    except grpc.RpcError:
        return []  # it has just been started
    return [each for each in listed if each.name in nodes]


def _online(stub: Any, nodes: Mapping[str, str]) -> int:
    return sum(each.agent == "online" for each in _status(stub, nodes))


def _fresh(stub: Any, nodes: Mapping[str, str]) -> int:
    return sum(each.report_age_s < 3 for each in _status(stub, nodes))


def _lost(stub: Any, nodes: Mapping[str, str]) -> int:
    return sum(each.lost_messages for each in _status(stub, nodes))


def main() -> Iterable[Check]:
    """In full length."""
    for count in (300, 3000, 5000):
        yield many_boards(count, 3)
    yield from lies(2000)
    yield from inflated(5)
    yield third_party(25.0)
    with tempfile.TemporaryDirectory(prefix="leadline-attack-") as folder:
        yield stolen_id(Path(folder), 200)
    yield from phantoms(20_000, 20)
    yield from flood(1_000_000, 20)
