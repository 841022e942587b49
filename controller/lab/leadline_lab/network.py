"""The lab's network: a namespace for each host and for the switch, and links shaped at both ends.

The bridge has its own namespace, and every veth pair is created in the namespaces that it connects,
so nothing appears in the machine's own network. A link is ``eth0`` at the host and ``p<i>`` at the
switch. If the delay comes from the relay, the link has a second pair::

    host eth0 ---- w<i> =relay= x<i> ---- p<i> bridge
"""

import ctypes
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from leadline_lab.errors import CommandError
from leadline_lab.spec import SWITCH, BoardSpec, LabSpec, namespace_prefix

BRIDGE = "br0"
HOST_END = "eth0"
_QUEUE_S = 0.05
_MIN_QUEUE_BYTES = 15_000
_BURST_S = 0.004
_MIN_BURST_BYTES = 3_200
_COMMAND_LIMIT_S = 20.0
_SPEED_SCRIPT = f'mount --bind "$0" /sys/class/net/{HOST_END}/speed; exec "$@"'
_CLONE_NEWNET = 0x40000000
_OFFLOADS = ("tx", "tso", "gso", "gro", "sg")


def run(*argv: str) -> str:
    """Run one of the system's tools and return its standard output. Raises CommandError."""
    try:
        result = subprocess.run(  # noqa: S603 - a list of words, no shell; names are checked in spec
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise CommandError(f"{argv[0]} is not installed (Debian: iproute2, ethtool)") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{shlex.join(argv)}: {error}") from None
    if result.returncode:
        message = " ".join((result.stderr or result.stdout).split()) or "no message"
        raise CommandError(f"{shlex.join(argv)}: exit {result.returncode}: {message}")
    return result.stdout


def build_switch(spec: LabSpec) -> None:
    """Create the switch's namespace with an empty bridge."""
    switch = spec.namespace(SWITCH)
    run("ip", "netns", "add", switch)
    _ip(switch, "link", "add", "name", BRIDGE, "type", "bridge")
    _set_up(switch, BRIDGE)


def build_host(spec: LabSpec, host: BoardSpec, number: int, netem: bool) -> list[str] | None:
    """Create a host's namespace and its link; ``number`` is part of the ports' names. Returns the
    command of a relay that the switch has to run where this kernel cannot add the link's delay.
    Raises CommandError."""
    namespace, switch = spec.namespace(host.name), spec.namespace(SWITCH)
    port, relay_ends = f"p{number}", (f"w{number}", f"x{number}")
    relayed = host.delay_ms > 0 and not netem
    run("ip", "netns", "add", namespace)
    _ip(namespace, "link", "set", "dev", "lo", "up")
    if relayed:
        _add_veth(namespace, HOST_END, switch, relay_ends[0])
        _add_veth(switch, relay_ends[1], switch, port)
    else:
        _add_veth(namespace, HOST_END, switch, port)
    _ip(switch, "link", "set", "dev", port, "master", BRIDGE)
    address = f"{spec.address(host.name)}/{spec.subnet.prefixlen}"
    _ip(namespace, "address", "add", address, "dev", HOST_END)
    _ip(namespace, "link", "set", "dev", HOST_END, "up")
    for side, device in ((namespace, HOST_END), (switch, port)):
        _shape(side, device, host, netem)
        if relayed:
            _disable_offloads(side, device)
    _set_up(switch, port)
    if not relayed:
        return None
    for device in relay_ends:
        _set_up(switch, device)
    relay = [sys.executable, "-m", "leadline_lab.relay", *relay_ends]
    return [*relay, "--delay-ms", f"{host.delay_ms:g}"]


def remove(name: str) -> None:
    """Delete every namespace of a lab and its contents; no error without a namespace."""
    failures = []
    for namespace in namespaces(name):
        try:
            run("ip", "netns", "delete", namespace)
        except CommandError as error:
            failures.append(str(error))
    if failures:
        raise CommandError("; ".join(failures))


def namespaces(name: str) -> list[str]:
    """The existing namespaces of a lab."""
    prefix = namespace_prefix(name)
    listed = (line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip())
    return [namespace for namespace in listed if namespace.startswith(prefix)]


def command_in(namespace: str, argv: Sequence[str]) -> list[str]:
    """The command line that runs ``argv`` in a namespace."""
    return ["ip", "netns", "exec", namespace, *argv]


def with_speed(argv: Sequence[str], speed: Path) -> list[str]:
    """The command line that runs ``argv`` where a host's interface states the speed in this file,
    as a board's does: a veth states 10 Gbit/s, and its driver cannot be told otherwise.

    ``ip netns exec`` has given the process a /sys of its own, which nobody else sees.
    """
    return ["sh", "-c", _SPEED_SCRIPT, str(speed), *argv]


def connect_in(namespace: str, address: tuple[str, int]) -> socket.socket:
    """A TCP connection from inside a namespace: a socket stays in the one in which it was made.

    Raises CommandError.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def connect() -> socket.socket:
        with Path("/run/netns", namespace).open("rb") as file:
            if libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns failed")
        return socket.create_connection(address, _COMMAND_LIMIT_S)

    try:
        # Only this thread enters the namespace.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(connect).result()
    except OSError as error:
        raise CommandError(f"{namespace}: {address[0]}:{address[1]}: {error}") from None


def has_netem(namespace: str) -> bool:
    """Whether this kernel can delay packets; tries it on the namespace's loopback."""
    try:
        run("tc", "-n", namespace, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except CommandError:
        return False
    run("tc", "-n", namespace, "qdisc", "delete", "dev", "lo", "root")
    return True


def missing_feature() -> str | None:
    """Try all features that a lab needs in a temporary namespace; the error, or None."""
    probe = f"leadline-probe-{os.getpid()}"
    try:
        run("ip", "netns", "add", probe)
    except CommandError as error:
        return f"network namespaces are refused here: {error}"
    try:
        _ip(probe, "link", "add", "name", BRIDGE, "type", "bridge")
        _add_veth(probe, "a", probe, "b")
        _shape(probe, "a", BoardSpec("a", rate_mbps=1), netem=False)
        _disable_offloads(probe, "a")
    except CommandError as error:
        return f"the lab's network is refused here: {error}"
    finally:
        run("ip", "netns", "delete", probe)
    return None


def _shape(namespace: str, device: str, host: BoardSpec, netem: bool) -> None:
    """Delay and throttle what leaves by the device. The token bucket has 4 ms of burst and 50 ms of
    queue, so that TCP can use the whole rate; the minima (two frames of burst, ten of queue) keep
    a link of a few hundred kbit/s usable."""
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", device)
    parent: tuple[str, ...] = ("root",)
    if netem and host.delay_ms > 0:
        run(*add, "root", "handle", "1:", "netem", "delay", f"{host.delay_ms * 500:.0f}us")
        parent = ("parent", "1:1")
    if host.rate_mbps is not None:
        bits_per_s = host.rate_mbps * 1e6
        burst = max(round(bits_per_s / 8 * _BURST_S), _MIN_BURST_BYTES)
        limit = burst + max(round(bits_per_s / 8 * _QUEUE_S), _MIN_QUEUE_BYTES)
        bucket = ("rate", f"{round(bits_per_s)}bit", "burst", str(burst), "limit", str(limit))
        run(*add, *parent, "handle", "10:", "tbf", *bucket)


def _add_veth(namespace: str, device: str, peer_namespace: str, peer: str) -> None:
    _ip(
        namespace,
        *("link", "add", "name", device, "type", "veth"),
        *("peer", "name", peer, "netns", peer_namespace),
    )


def _set_up(namespace: str, device: str) -> None:
    """Bring up a device without an address, not even an automatic one."""
    _ip(namespace, "link", "set", "dev", device, "addrgenmode", "none")
    _ip(namespace, "link", "set", "dev", device, "up")


def _disable_offloads(namespace: str, device: str) -> None:
    features = [word for offload in _OFFLOADS for word in (offload, "off")]
    run(*command_in(namespace, ["ethtool", "-K", device, *features]))


def _ip(namespace: str, *words: str) -> None:
    run("ip", "-n", namespace, *words)
