"""Attacks on the agent of one board: by its peers, by strangers, by its leases and its files."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from leadline_wire.topics import Kind
from leadline_wire.v1 import telemetry_pb2 as pb

from tests.attack import icmp_responder
from tests.attack.iperf3_server import Lie, hostile_server
from tests.support.agents import AgentProcess, Listener, agent_config, listening, running_agent
from tests.support.check import Check
from tests.support.mosquitto import mosquitto
from tests.support.namespaces import Namespace, linked_namespace
from tests.support.ports import free_port
from tests.support.threads import beside

MAX_BYTES = 30_000_000
LEASED_BYTES = 1831 * 16 * 1024  # its whole blocks
DURATION_MS = 2000
# The agent cuts off after 256 KiB more. What the kernel has buffered by then has come over the
# link, too, which is more the later the agent gets the processor; packets weigh more than payload.
ALLOWANCE_BYTES = (256 << 10) + 12_000_000
# A stranger gets no further than a handshake.
STRANGER_BYTES = 100_000
MAX_RSS_BYTES = 96 << 20
LOG_LINE_CHARACTERS = 600

LIES: Sequence[Lie] = (
    *(Lie(end_time=text) for text in ("5e6", "1e308", "1e999", "-1", "0", "1e-300", "null")),
    *(Lie(received=text) for text in ("9e18", "1e308", "-5", "0", "1", "31000000", '"x"', "[]")),
    Lie(raw="{}"),
    Lie(raw="[" * 20_000),
    Lie(raw='{"a":"' + "x" * 1_000_000 + '"}'),
    Lie(size=2**32 - 1),
    Lie(size=2**31 - 1),
    Lie(),
    Lie(restarts=8),
    Lie(stall_s=19),
    Lie(streams=2),
    Lie(streams=8),
    Lie(streams=200),
)
BAD_SETTINGS: Sequence[tuple[str, str]] = (
    ("a number of 5,000 digits", "interval_s = " + "9" * 5000),
    ("a number of 5,000 hex digits", "interval_s = 0x" + "f" * 5000),
    ("5,000 brackets", "interval_s = " + "[" * 5000),
    ("5,000 brackets, closed", "interval_s = " + "[" * 5000 + "]" * 5000),
    ("20 MB of comments", "# " + "x" * 20_000_000),
    ("bytes that are no text", "interval_s = \udcff"),
    ("a path with a NUL", 'state_dir = "/tmp/\\u0000x"'),
    ("a key with line ends", '"a\\nERROR forged" = 1'),
    ("a date", "interval_s = 1979-05-27"),
    ("not a number", "interval_s = nan"),
    ("a table for a number", "[interval_s]\nx = 1"),
)


@dataclass
class Board:
    """A real agent with its broker, and one who hears it; it is started again when it ends."""

    listener: Listener
    config: Path
    stack: ExitStack
    agent: AgentProcess
    ended: int = 0
    answers: dict[str, pb.BandwidthReport] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Whether the agent that was started last still runs."""
        return self.agent.process.poll() is None

    def revive(self) -> None:
        """Count an agent that has ended, and start another."""
        if not self.is_alive:
            self.ended += 1
            births = len(self.listener.of(Kind.BIRTH))
            self.agent = self.stack.enter_context(running_agent(self.config))
            self.listener.wait_for(Kind.BIRTH, births + 1)

    def bandwidth(self, lease: pb.BandwidthLease) -> None:
        """Send a bandwidth lease."""
        self.listener.lease(pb.Lease(node="pi-1", bandwidth=lease))

    def answer(self, lease_id: str, timeout_s: float) -> pb.BandwidthReport | None:
        """The report that answers a lease, or None if none comes in time."""
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s and self.is_alive:
            for report in self.listener.of(Kind.BANDWIDTH):
                if report.lease_id == lease_id:
                    assert isinstance(report, pb.BandwidthReport)
                    return report
            time.sleep(0.05)
        return None

    def rss_bytes(self) -> int:
        """Resident memory of the agent and its children."""
        total = 0
        try:
            agent = psutil.Process(self.agent.process.pid)
            for process in (agent, *agent.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            pass  # it ended while it was asked
        return total


@contextmanager
def board(probe_address: str = "") -> Iterator[Board]:
    """A board until the block ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leadline-attack-")))
        broker = stack.enter_context(mosquitto())
        listener = stack.enter_context(listening(broker.port, broker.host))
        config = agent_config(folder, broker.port)
        if probe_address:
            config.write_text(config.read_text() + f'[probe]\naddress = "{probe_address}"\n')
        agent = stack.enter_context(running_agent(config))
        listener.wait_for(Kind.BIRTH)
        yield Board(listener, config, stack, agent)


def bandwidth_lease(
    lease_id: str, role: pb.BandwidthLease.Role, address: str, port: int
) -> pb.BandwidthLease:
    """An ordinary lease, as the controller's defaults make it."""
    return pb.BandwidthLease(
        lease_id=lease_id,
        role=role,
        peer=pb.Peer(node="pi-2", address=address),
        port=port,
        duration_ms=DURATION_MS,
        max_bytes=MAX_BYTES,
        ttl_ms=5000,
    )


def lying_peer(lies: Sequence[Lie] = LIES) -> Iterator[Check]:
    """The server of a bandwidth test reports impossible values."""
    answered = credible = most_bytes = peak = 0
    with board() as victim, hostile_server() as server:
        for number, lie in enumerate(lies):
            victim.revive()
            server.lie, before = lie, server.received_bytes
            lease_id = f"lie-{number}"
            victim.bandwidth(
                bandwidth_lease(lease_id, pb.BandwidthLease.CLIENT, "127.0.0.1", server.port)
            )
            with sampled(victim.rss_bytes) as memory:
                report = victim.answer(lease_id, 30)
            peak = max(peak, memory.most)
            most_bytes = max(most_bytes, server.received_bytes - before)
            answered += report is not None
            credible += report is not None and is_credible(report)
        victim.revive()
    yield Check(
        f"{len(lies)} bandwidth tests with a server that lies",
        "every lease is answered, credibly, and the agent lives",
        f"{answered} answered, {credible} credibly, the agent ended {victim.ended} times",
        answered == credible == len(lies) and victim.ended == 0,
    )
    yield Check(
        "the same, bytes and memory",
        f"at most {MAX_BYTES + ALLOWANCE_BYTES} bytes sent, {MAX_RSS_BYTES >> 20} MiB resident",
        f"{most_bytes} bytes, {peak >> 20} MiB",
        most_bytes <= MAX_BYTES + ALLOWANCE_BYTES and peak <= MAX_RSS_BYTES,
    )


def is_credible(report: pb.BandwidthReport) -> bool:
    """Whether a lease for MAX_BYTES in DURATION_MS can have ended so."""
    if report.HasField("bandwidth_mbps") or report.HasField("measured_us"):
        return False  # this end only sends
    if report.outcome != pb.BandwidthReport.DONE:
        return bool(report.detail)
    return (
        LEASED_BYTES / 4 <= report.transferred_bytes <= LEASED_BYTES
        and 0 < report.duration_ms <= DURATION_MS + 5000
    )


class Peak:
    """The highest value that was seen."""

    most = 0


@contextmanager
def sampled(read: object) -> Iterator[Peak]:
    """Sample a number every 20 ms until the block ends."""
    assert callable(read)
    peak, stop = Peak(), threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            peak.most = max(peak.most, int(read()))

    with beside(watch, done=stop):
        yield peak


def odd_echoes(rounds: int = 30) -> Iterator[Check]:
    """A peer answers echo requests with impossible times; another peer is honest."""
    with linked_namespace() as other, board() as victim, responder(other):
        peers = [
            pb.Peer(node="liar", address=other.address),
            pb.Peer(node="honest", address="127.0.0.1"),
        ]
        ping = pb.PingLease(peers=peers, interval_s=1, count=5, ttl_s=3600)
        victim.listener.lease(pb.Lease(node="pi-1", ping=ping))
        end_s = time.monotonic() + 4 * rounds + 10
        while len(victim.listener.of(Kind.RTT)) < rounds and time.monotonic() < end_s:
            time.sleep(0.1)
        heard = victim.listener.of(Kind.RTT)
        honest = sum(rtt.peer == "honest" and rtt.received > 0 for r in heard for rtt in r.peers)
        wild = sum(rtt.rtt_ms > 2000 for report in heard for rtt in report.peers)
        alive = victim.is_alive
        log = victim.agent.log
    yield Check(
        f"{rounds} rounds of echoes with a peer whose replies lie",
        f"about {rounds} rounds with the honest peer, no impossible time, no traceback",
        f"{len(heard)} rounds, {honest} with the honest peer, {wild} impossible times, "
        f"{log.count('Traceback')} tracebacks",
        honest >= rounds - 1 and not wild and alive and "Traceback" not in log,
    )


@contextmanager
def responder(other: Namespace) -> Iterator[None]:
    """The hostile responder in a namespace until the block ends."""
    other.run("sysctl", "-q", "net.ipv4.icmp_echo_ignore_all=1")
    command = other.command(sys.executable, str(Path(icmp_responder.__file__)))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        yield
    finally:
        process.kill()
        process.communicate()


CLIENTS: Sequence[tuple[str, Sequence[str]]] = (
    ("-t 2, no pace", ("-t", "2")),
    ("no pace", ()),
    ("-P 128 -l 1M", ("-P", "128", "-l", "1M")),
    ("-R", ("-R",)),
    ("--bidir", ("--bidir",)),
    ("-u -b 0", ("-u", "-b", "0")),
    ("-P 2 -b 10M", ("-P", "2", "-b", "10M")),
    ("-t 20 -b 1M", ("-t", "20", "-b", "1M")),
    ("-n as leased", ("-n", str(LEASED_BYTES), "-l", "16K")),
    ("-n as leased, too slow", ("-n", str(LEASED_BYTES), "-l", "16K", "-b", "10M")),
    ("-n as leased -R", ("-n", str(LEASED_BYTES), "-R")),
    ("-n as leased -P 128", ("-n", str(LEASED_BYTES), "-P", "128")),
    ("-n 1600M", ("-n", "1600M")),
)


def greedy_clients(
    clients: Sequence[tuple[str, Sequence[str]]] = CLIENTS, seconds: int = 5
) -> Iterator[Check]:
    """The leased peer, and then a stranger, take more of a server's end than was leased."""
    with (
        linked_namespace() as other,
        stranger(other) as foreign,
        board(other.own_address) as victim,
    ):
        for whose, source in (("the leased peer", other.address), ("a stranger", foreign)):
            for name, arguments in clients:
                yield _greedy(victim, other, whose, source, name, arguments, seconds)


def _greedy(
    victim: Board,
    other: Namespace,
    whose: str,
    source: str,
    name: str,
    arguments: Sequence[str],
    seconds: int,
) -> Check:
    is_peer = source == other.address
    port = serve(victim, "greedy", other.address, other.own_address)
    interface = interface_of(other.own_address)
    before, start_s = moved_bytes(interface), time.monotonic()
    command = ["iperf3", "-c", other.own_address, "-p", str(port), "-B", source]
    end = () if "-n" in arguments else ("-t", str(seconds))  # iperf3 takes only one
    # It times out where the server lets it hang.
    with sampled(victim.rss_bytes) as memory, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            other.command(*command, *end, *arguments),
            capture_output=True,
            timeout=40,
            check=False,
        )
    lasted_s = time.monotonic() - start_s
    moved = moved_bytes(interface) - before
    most = MAX_BYTES + ALLOWANCE_BYTES if is_peer else STRANGER_BYTES
    return Check(
        f"{whose}: iperf3 {' '.join(end)} {name}",
        f"at most {most} bytes and {MAX_RSS_BYTES >> 20} MiB resident, and the agent lives",
        f"{moved} bytes in {lasted_s:.1f} s, {memory.most >> 20} MiB",
        moved <= most and memory.most <= MAX_RSS_BYTES and victim.is_alive,
    )


def stranger_beside_an_honest_test(tests: int = 5) -> Iterator[Check]:
    """A stranger connects to the server's end before and during the leased peer's test."""
    done = 0
    with (
        linked_namespace() as other,
        stranger(other) as foreign,
        board(other.own_address) as victim,
    ):
        for number in range(tests):
            port = serve(victim, f"beside-{number}", other.address, other.own_address)
            done += _honest_beside(other, foreign, port)
    yield Check(
        f"{tests} honest tests beside a stranger who connects all the time",
        "every honest test has its result",
        f"{done} have",
        done == tests,
    )


def _honest_beside(other: Namespace, foreign: str, port: int) -> bool:
    where = ["iperf3", "-c", other.own_address, "-p", str(port)]
    loop = f"while :; do {' '.join(where)} -B {foreign} -t 5 >/dev/null 2>&1; sleep 0.05; done"
    intruder = subprocess.Popen(other.command("sh", "-c", loop), start_new_session=True)
    try:
        time.sleep(0.3)
        # It lasts 1.2 s: the stranger comes more than once.
        rate = ("-n", str(LEASED_BYTES), "-l", "16K", "-b", "200M")
        honest = [*where, "-B", other.address, *rate]
        done = subprocess.run(other.command(*honest), capture_output=True, timeout=40, check=False)
        return done.returncode == 0
    finally:
        for process in psutil.Process(intruder.pid).children(recursive=True):
            process.kill()
        intruder.kill()
        intruder.wait()


def idle_peer(count: int = 3) -> Iterator[Check]:
    """The leased peer connects and says nothing."""
    held_s = []
    with linked_namespace() as other, board(other.own_address) as victim:
        for number in range(count):
            port = serve(victim, f"idle-{number}", other.address, other.own_address)
            start_s = time.monotonic()
            hold = f"exec 3<>/dev/tcp/{other.own_address}/{port}; head -c 9999 <&3"
            try:
                subprocess.run(
                    other.command("timeout", "45", "bash", "-c", hold),
                    capture_output=True,
                    timeout=60,
                    check=False,
                )
            finally:
                held_s.append(time.monotonic() - start_s)
        alive = victim.is_alive
    most_s = (5000 + DURATION_MS) / 1000 + 10
    yield Check(
        f"{count} connections of the peer that say nothing",
        f"each ends within ttl, duration and 10 s of grace: {most_s:g} s",
        f"the longest lasted {max(held_s):.1f} s",
        max(held_s) <= most_s and alive,
    )


@contextmanager
def stranger(other: Namespace) -> Iterator[str]:
    """A second address in the namespace, which no lease names."""
    address = "198.19.255.9"
    link = interface_of(other.own_address)
    other.run("ip", "addr", "add", f"{address}/32", "dev", "lo")
    subprocess.run(
        ["ip", "route", "add", f"{address}/32", "via", other.address, "dev", link], check=True
    )
    yield address  # the route goes with the link


def interface_of(address: str) -> str:
    """The interface that has an address."""
    addresses = psutil.net_if_addrs().items()
    return next(name for name, its in addresses if any(a.address == address for a in its))


def moved_bytes(interface: str) -> int:
    """Bytes that an interface has sent and received."""
    counters = psutil.net_io_counters(pernic=True)[interface]
    return int(counters.bytes_sent + counters.bytes_recv)


def serve(victim: Board, name: str, address: str, own_address: str) -> int:
    """Have the agent serve a test; returns its port. It may still be busy with the one before."""
    for number in range(60):
        port = free_port(own_address)
        victim.revive()
        victim.bandwidth(
            bandwidth_lease(f"{name}-{number}-{port}", pb.BandwidthLease.SERVER, address, port)
        )
        end_s = time.monotonic() + 1.5
        while time.monotonic() < end_s:
            if is_listening(port):
                return port
            time.sleep(0.02)
    raise TimeoutError("the agent serves no test any more")


def is_listening(port: int) -> bool:
    """Whether a process on this machine listens on a TCP port, without connecting to it."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return False


ODD_ADDRESSES = (
    "example.com",
    "localhost",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "240.0.0.1",
    "::",
    "ff02::1",
    "::ffff:224.0.0.1",
    "fe80::1%lo",
    "127.0.0.1\n",
    "-c",
    "",
    "1" * 20_000,
)


def odd_leases(count: int = 3000, seed: int = 1) -> Iterator[Check]:
    """Leases with values that no controller would send, in a flood."""
    draw = random.Random(seed)
    with board() as victim:
        reports = len(victim.listener.of(Kind.REPORT))
        with sampled(victim.rss_bytes) as memory:
            for number in range(count):
                victim.revive()
                victim.listener.lease(_odd_lease(draw, number))
        time.sleep(5)
        heard = len(victim.listener.of(Kind.REPORT)) - reports
        victim.revive()
        log = victim.config.parent / "agent.log"
        lines = log.read_text(errors="replace").splitlines()
    yield Check(
        f"{count} leases with odd values (seed {seed})",
        f"the agent lives and reports, {MAX_RSS_BYTES >> 20} MiB resident at most",
        f"it ended {victim.ended} times, {heard} reports, {memory.most >> 20} MiB",
        victim.ended == 0 and heard > 0 and memory.most <= MAX_RSS_BYTES,
    )
    yield Check(
        "the same, its log",
        f"100 lines at most, none over {LOG_LINE_CHARACTERS} characters",
        f"{len(lines)} lines, the longest of {max(map(len, lines))} characters",
        len(lines) <= 100 and max(map(len, lines)) <= LOG_LINE_CHARACTERS,
    )


def _odd_lease(draw: random.Random, number: int) -> pb.Lease:
    odd = (0, 1, 999, 2**31 - 1, 2**31, 2**32 - 1, draw.randrange(2**32))
    name = draw.choice(("pi-2", "", "x" * 5000, "a\nERROR forged\x1b[2J", f"node-{number}"))
    address = draw.choice((*ODD_ADDRESSES, f"host-{number}.example"))
    if draw.random() < 0.4:
        peers = [pb.Peer(node=name, address=address)] * draw.choice((0, 1, 33, 3000))
        ping = pb.PingLease(
            peers=peers[: 50_000 // (len(name) + len(address) + 10)],
            interval_s=draw.choice(odd),
            count=draw.choice((0, 1, 21, 2**32 - 1)),
            ttl_s=draw.choice(odd),
        )
        return pb.Lease(node="pi-1", ping=ping)
    bandwidth = pb.BandwidthLease(
        lease_id=draw.choice((f"id-{number}", "", "x" * 20_000, f"\x00\n{number}")),
        role=draw.choice((pb.BandwidthLease.SERVER, pb.BandwidthLease.CLIENT)),
        peer=pb.Peer(node=name, address=address),
        port=draw.choice((*odd, 5201)),
        duration_ms=draw.choice((*odd, 2000)),
        max_bytes=draw.choice((*odd, 2**64 - 1, MAX_BYTES)),
        ttl_ms=draw.choice((*odd, 5000)),
    )
    return pb.Lease(node="pi-1", bandwidth=bandwidth)


def bad_settings(cases: Sequence[tuple[str, str]] = BAD_SETTINGS) -> Iterator[Check]:
    """Settings that cannot be read, at a start and at a reload."""
    at_start = lines = at_reload = 0
    longest_s = 0.0
    with board() as victim:
        good = victim.config.read_bytes()
        for _, text in cases:
            bad = text.encode(errors="surrogateescape") + b"\n" + good
            other = victim.config.with_name("other.toml")
            other.write_bytes(bad)
            start_s = time.monotonic()
            code, complaint = _start(other)
            longest_s = max(longest_s, time.monotonic() - start_s)
            at_start += code == 2
            lines += complaint.count("\n") == 1 and len(complaint) <= LOG_LINE_CHARACTERS
            victim.revive()
            before = len(victim.listener.of(Kind.REPORT))
            victim.config.write_bytes(bad)
            victim.agent.signal(signal.SIGHUP)
            end_s = time.monotonic() + 20
            while (
                victim.is_alive
                and len(victim.listener.of(Kind.REPORT)) < before + 3
                and time.monotonic() < end_s
            ):
                time.sleep(0.05)
            victim.config.write_bytes(good)
            at_reload += victim.is_alive
        log = victim.agent.log
    yield Check(
        f"{len(cases)} files that cannot be settings, at the start",
        "exit code 2 and one short line for each",
        f"{at_start} with exit code 2, {lines} with one line, {longest_s:.1f} s at most",
        at_start == lines == len(cases),
    )
    yield Check(
        "the same by SIGHUP",
        "a running agent keeps its settings",
        f"{at_reload} of {len(cases)}, {log.count('Traceback')} tracebacks",
        at_reload == len(cases) and "Traceback" not in log,
    )


def endless_files(paths: Sequence[str] = ("/dev/zero", "/dev/urandom", "fifo")) -> Iterator[Check]:
    """Settings that never end, or never begin."""
    refused = 0
    for path in paths:
        with tempfile.TemporaryDirectory() as name:
            where = Path(name) / "agent.toml"
            if path == "fifo":
                subprocess.run(["mkfifo", str(where)], check=True)
            else:
                where.symlink_to(path)
            code, complaint = _start(where)
            refused += code == 2 and complaint.count("\n") == 1
    yield Check(
        f"settings from {', '.join(paths)}",
        "exit code 2 and one line for each",
        f"{refused} of {len(paths)}",
        refused == len(paths),
    )


def _start(config: Path) -> tuple[int, str]:
    """Exit code and complaint; -1 if it had to be killed. In 1 GB of address space."""
    command = [sys.executable, "-m", "leadline_agent", "run", "--config", str(config)]
    limited = ["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", *command]
    try:
        done = subprocess.run(limited, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stderr


def main() -> Iterable[Check]:
    """All of it, in full length."""
    yield from lying_peer()
    yield from odd_echoes()
    yield from greedy_clients()
    yield from stranger_beside_an_honest_test()
    yield from idle_peer()
    yield from odd_leases()
    yield from bad_settings()
    yield from endless_files()
