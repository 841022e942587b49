"""Attacks on the inspection API's port: silent connections by those without a certificate; unread
answers, endless watches and malformed requests by one who has one. Meanwhile pods wait to be
placed, and a user of the machine asks for the nodes at the socket."""

from __future__ import annotations

import resource
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event

import psutil

from tests.attack import http2
from tests.kube.account import applied, login, wait_allowed
from tests.kube.api import Api
from tests.kube.control_plane import control_plane
from tests.kube.objects import node, pod
from tests.support.certificates import Authority, Certificate
from tests.support.check import Check
from tests.support.mosquitto import Broker, mosquitto
from tests.support.ports import free_port, listens
from tests.support.threads import beside
from tests.system.daemons import Daemon, eventually, leadline

Address = tuple[str, int]
Attack = Callable[[Address], AbstractContextManager[object]]
INSPECTION = b"/leadline.v1.Inspection/"
HEALTH_WATCH = b"/grpc.health.v1.Health/Watch"
REFLECTION = b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PODS = "/api/v1/namespaces/default/pods"
CALLS_A_CONNECTION = 16
SYSTEMD_DEFAULT_FILES = 1024
SPARE_FILES = 256
PLACED_WITHIN_S = 20.0
LOG_LINES = 60
# The machine may have other work.
START_S = 120.0


# The attacks. Each is a context: it is on while the context lasts.


@contextmanager
def silent(address: Address, count: int) -> Iterator[None]:
    """`count` TCP connections that send nothing; a closed one is opened again at once."""
    done = Event()

    def keep_open() -> None:
        opened: list[socket.socket] = []
        while not done.is_set():
            for closed in [each for each in opened if not http2.is_open(each)]:
                closed.close()
                opened.remove(closed)
            for _ in range(count - len(opened)):
                with suppress(OSError):
                    opened.append(socket.create_connection(address, timeout=1))
            done.wait(0.1)
        for each in opened:
            each.close()

    with beside(keep_open, done=done):
        yield


@contextmanager
def unread(address: Address, count: int, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """`count` calls whose answers are not read: the windows of their streams are 0 bytes."""
    asked = [INSPECTION + name for name in (b"GetMatrix", b"ListNodes", b"GetVersion")]

    def begin(connected: socket.socket, number: int) -> None:
        connected.sendall(http2.call(2 * number + 1, asked[number % len(asked)]))

    with _held(address, count, begin, tls, initial_window=0):
        yield


@contextmanager
def unfinished(address: Address, count: int, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """`count` calls that never send their request."""

    def begin(connected: socket.socket, number: int) -> None:
        connected.sendall(http2.headers(2 * number + 1, INSPECTION + b"GetVersion"))

    with _held(address, count, begin, tls):
        yield


@contextmanager
def health_watches(
    address: Address, count: int, tls: ssl.SSLContext | None = None
) -> Iterator[None]:
    """`count` watches of the server's health."""

    def begin(connected: socket.socket, number: int) -> None:
        connected.sendall(http2.call(2 * number + 1, HEALTH_WATCH))

    with _held(address, count, begin, tls):
        yield


def malformed(
    address: Address, count: int, tls: ssl.SSLContext | None = None, seed: int = 1
) -> None:
    """Send `count` malformed requests, as fast as they are read."""
    random = Random(seed)
    for _ in range(-(-count // CALLS_A_CONNECTION)):
        with suppress(OSError), http2.connection(address, tls) as connected:
            for number in range(CALLS_A_CONNECTION):
                connected.sendall(_wrong(random, 2 * number + 1))
            connected.settimeout(0.05)
            connected.recv(1 << 16)


@contextmanager
def malformed_beside(
    address: Address, count: int, tls: ssl.SSLContext | None = None
) -> Iterator[None]:
    """The same while the context lasts; leaving waits for the end of it."""
    with beside(lambda: malformed(address, count, tls)):
        yield


def _wrong(random: Random, stream: int) -> bytes:
    """A request that no honest client sends."""
    path = INSPECTION + random.choice((b"GetNode", b"ExplainPod", b"ListPlacements", b"Watch"))
    noise = random.randbytes(random.randrange(1, 200))
    kind = random.randrange(9)
    if kind == 0:  # no protobuf
        return http2.call(stream, path, b"\x0a\xff" + noise)
    if kind == 1:  # text that is no UTF-8
        return http2.call(stream, path, b"\x0a\x02\xff\xfe")
    if kind == 2:  # a method whose name is no text
        return http2.call(stream, b"/" + noise[:50])
    if kind == 3:
        return http2.call(stream, INSPECTION + b"Nothing")
    if kind == 4:  # compressed, it says
        return http2.headers(stream, path) + http2.message(stream, noise, compressed=1)
    if kind == 5:  # shorter than it says
        return http2.headers(stream, path) + http2.message(stream, noise, size=1 << 16)
    if kind == 6:  # taken back
        cancel = http2.frame(http2.RST_STREAM, 0, stream, b"\0\0\0\x08")
        return http2.call(stream, path) + cancel
    if kind == 7:  # another service's
        return http2.call(stream, random.choice((HEALTH_WATCH, REFLECTION)), noise)
    return http2.frame(random.randrange(12), random.randrange(256), stream, noise)


@contextmanager
def _held(
    address: Address,
    count: int,
    begin: Callable[[socket.socket, int], None],
    tls: ssl.SSLContext | None,
    initial_window: int = 65_535,
) -> Iterator[None]:
    """`count` calls, a few on each connection, begun again when a connection is closed."""
    done = Event()

    def hold() -> None:
        with ExitStack() as cleanup:
            held: list[socket.socket | None] = [None] * -(-count // CALLS_A_CONNECTION)
            while not done.is_set():
                for at, connected in enumerate(held):
                    if connected is not None and http2.is_open(connected):
                        continue
                    with suppress(OSError):
                        held[at] = connected = cleanup.enter_context(
                            http2.connection(address, tls, initial_window)
                        )
                        for number in range(min(CALLS_A_CONNECTION, count)):
                            begin(connected, number)
                done.wait(0.1)

    with beside(hold, done=done):
        yield


# The long attack: a real controller on a real control plane.


@dataclass(frozen=True)
class Place:
    """What all controllers of the attack share."""

    folder: Path
    api: Api
    kubeconfig: Path
    broker: Broker
    certificate: Certificate
    client: Certificate


@dataclass(frozen=True)
class Victim:
    """A controller that is attacked. address: for other machines. here, there: what the command
    line needs to reach it from this machine and from others."""

    daemon: Daemon
    address: Address
    here: tuple[str, ...]
    there: tuple[str, ...]

    def descriptors(self) -> int:
        """How many it has open."""
        return psutil.Process(self.daemon.pid).num_fds()

    def rss_mib(self) -> float:
        """Its resident memory."""
        return float(psutil.Process(self.daemon.pid).memory_info().rss) / 2**20


def main() -> Iterable[Check]:
    """The attacks in full length, with systemd's default limit of descriptors and the unit's."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    with _place() as place:
        held = place.client
        tls = ssl.create_default_context(cafile=held.ca_file)
        tls.load_cert_chain(held.cert_file, held.key_file)
        tls.set_alpn_protocols(["h2"])
        attacks: dict[str, Attack] = {
            "1,040 silent connections without a certificate": lambda to: silent(to, 1040),
            "160 unread calls": lambda to: unread(to, 160, tls),
            "300 health watches": lambda to: health_watches(to, 300, tls),
            "300 calls without a request": lambda to: unfinished(to, 300, tls),
            "20,000 malformed requests": lambda to: malformed_beside(to, 20_000, tls),
        }
        for files in dict.fromkeys((SYSTEMD_DEFAULT_FILES, unit_limit())):
            for name, attack in attacks.items():
                with _victim(place, files) as victim:
                    yield from _attacked(
                        place, victim, f"{name}, {files} descriptors", attack, files
                    )


def unit_limit() -> int:
    """The descriptors that the controller's unit allows it; systemd's default if it has no say."""
    unit = Path(__file__).parents[2] / "systemd" / "leadline-controller.service"
    for line in unit.read_text().splitlines():
        if line.startswith("LimitNOFILE="):
            return int(line.partition("=")[2])
    return SYSTEMD_DEFAULT_FILES


@contextmanager
def _place() -> Iterator[Place]:
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        (folder / "plane").mkdir()
        plane = cleanup.enter_context(control_plane(folder / "plane"))
        broker = cleanup.enter_context(mosquitto())
        api = Api(plane.kubeconfig)
        cleanup.enter_context(applied(api))
        api.add_node(node("board-1", cpu="64", pods=500))
        kubeconfig = login(api, plane.kubeconfig, folder / "login")
        wait_allowed(Api(kubeconfig), True, group="", resource="pods", verb="watch")
        authority = Authority(folder / "pki")
        certificate, client = authority.server("127.0.0.1"), authority.client("alice")
        yield Place(folder, api, kubeconfig, broker, certificate, client)


@contextmanager
def _victim(place: Place, files: int) -> Iterator[Victim]:
    """A controller with a limit on open files."""
    port = free_port()
    folder = Path(tempfile.mkdtemp(dir=place.folder))
    config, local, remote = folder / "controller.toml", f"unix:{folder}/s", f"127.0.0.1:{port}"
    config.write_text(
        f"warm_up_s = 0\n[broker]\nport = {place.broker.port}\n"
        f'[kubernetes]\nkubeconfig = "{place.kubeconfig}"\n'
        f'[grpc]\naddress = "{local},{remote}"\n{_tls(place.certificate)}'
    )
    client = place.client
    shown = ("--ca", client.ca_file, "--cert", client.cert_file, "--key", client.key_file)
    here, there = ("--address", local), ("--address", remote, *map(str, shown))
    daemon = Daemon("leadline_controller", config, folder / "log")
    daemon.start()
    try:
        assert daemon.pid is not None
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (files, files))
        eventually(lambda: listens("127.0.0.1", port), bool, "the controller answers", START_S)
        eventually(lambda: leadline("nodes", *there), _fine, "it knows the nodes", START_S)
        _placed_s(place, f"{folder.name.replace('_', '-').lower()}-first")
        yield Victim(daemon, ("127.0.0.1", port), here, there)
    except AssertionError:
        print(*daemon.lines()[-5:], sep="\n")
        raise
    finally:
        daemon.stop()


def _tls(certificate: Certificate) -> str:
    return (
        f'[grpc.tls]\nca_file = "{certificate.ca_file}"\n'
        f'cert_file = "{certificate.cert_file}"\nkey_file = "{certificate.key_file}"\n'
    )


def _attacked(
    place: Place, victim: Victim, name: str, attack: Attack, files: int
) -> Iterator[Check]:
    """What users and a pod get while it goes on, and what it leaves."""
    lines, prefix = len(victim.daemon.lines()), f"a{time.monotonic_ns()}"
    with attack(victim.address):
        time.sleep(3)
        answers = [leadline("nodes", *victim.here) for _ in range(8)]
        placed_s = [_placed_s(place, f"{prefix}-{number}") for number in range(3)]
        descriptors, rss_mib = victim.descriptors(), victim.rss_mib()
        remote = sum(_fine(leadline("nodes", *victim.there)) for _ in range(4))
    during = sum(map(_fine, answers))
    refusals = {each.stderr.strip()[:90] for each in answers if not _fine(each)}
    found = f"{during} of 8 answered {refusals or ''}; from other machines {remote} of 4"
    yield Check(name, "`leadline nodes` is answered here during it", found, during == 8)
    slowest_s = max(placed_s)
    found = "not bound" if slowest_s > PLACED_WITHIN_S else f"{slowest_s:.1f} s at most"
    yield Check(name, "pods are bound during it", found, slowest_s <= PLACED_WITHIN_S)
    found = f"{descriptors} descriptors, {rss_mib:.0f} MiB"
    fits = descriptors < files - SPARE_FILES and rss_mib < 256
    yield Check(name, f"{SPARE_FILES} descriptors are free, less than 256 MiB", found, fits)
    eventually(lambda: leadline("nodes", *victim.there), _fine, "others are answered", START_S)
    yield Check(name, "`leadline nodes` is answered elsewhere after it", "answered", True)
    log = victim.daemon.lines()[lines:]
    traces = sum("Traceback" in line for line in log)
    found = f"{len(log)} lines, {traces} tracebacks"
    held = len(log) < LOG_LINES and not traces
    yield Check(name, f"less than {LOG_LINES} log lines, no traceback", found, held)


def _fine(answer: object) -> bool:
    return getattr(answer, "returncode", 1) == 0


def _placed_s(place: Place, name: str) -> float:
    """How long a new pod waits for its node; more than the limit where it got none."""
    start_s = time.monotonic()
    place.api.create(PODS, pod(name, cpu="10m"))
    while time.monotonic() - start_s < PLACED_WITHIN_S:
        if place.api.get(f"{PODS}/{name}")["spec"].get("nodeName"):
            return time.monotonic() - start_s
        time.sleep(0.05)
    return PLACED_WITHIN_S + 1
