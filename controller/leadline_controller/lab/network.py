"""The lab's network: one namespace a host, one for the switch, and links shaped at both ends.

The bridge lives in a namespace of its own and every veth pair is made inside the namespaces it
joins, so that nothing ever appears in the machine's own network. A link is ``eth0`` at the host
and ``p<i>`` at the switch; where a delay must come from the relay, a second pair follows::

    host eth0 ---- w<i> =relay= x<i> ---- p<i> bridge
"""

import os
import sys
from dataclasses import dataclass

from leadline_controller.lab.commands import run
from leadline_controller.lab.errors import CommandError
from leadline_controller.lab.spec import SWITCH, BoardSpec, LabSpec, namespace_prefix

BRIDGE = "br0"
HOST_END = "eth0"
_QUEUE_S = 0.05
_LEAST_QUEUE_BYTES = 15_000
_BURST_S = 0.004
_LEAST_BURST_BYTES = 3_200
_OFFLOADS = ("tx", "tso", "gso", "gro", "sg")


@dataclass(frozen=True)
class RelayNeeded:
    """A delayed link that this kernel cannot delay: a relay must run in the switch's namespace."""

    host: str
    argv: tuple[str, ...]


def build_switch(spec: LabSpec) -> None:
    """Make the switch's namespace with an empty bridge."""
    switch = spec.namespace(SWITCH)
    run("ip", "netns", "add", switch)
    _ip(switch, "link", "add", "name", BRIDGE, "type", "bridge")
    _up(switch, BRIDGE)


def build_host(spec: LabSpec, host: BoardSpec, number: int, netem: bool) -> RelayNeeded | None:
    """Make a host's namespace and its link; ``number`` names the ports. Raises CommandError."""
    inside, switch = spec.namespace(host.name), spec.namespace(SWITCH)
    relayed = host.delay_ms > 0 and not netem
    port = f"p{number}"
    run("ip", "netns", "add", inside)
    _ip(inside, "link", "set", "dev", "lo", "up")
    if relayed:
        _pair(inside, HOST_END, switch, f"w{number}")
        _pair(switch, f"x{number}", switch, port)
    else:
        _pair(inside, HOST_END, switch, port)
    _ip(switch, "link", "set", "dev", port, "master", BRIDGE)
    address = f"{spec.address(host.name)}/{spec.subnet.prefixlen}"
    _ip(inside, "address", "add", address, "dev", HOST_END)
    _ip(inside, "link", "set", "dev", HOST_END, "up")
    for namespace, device in ((inside, HOST_END), (switch, port)):
        _shape(namespace, device, host, netem)
        if relayed:
            _offloads_off(namespace, device)
    _up(switch, port)
    if not relayed:
        return None
    for device in (f"w{number}", f"x{number}"):
        _up(switch, device)
    return RelayNeeded(host.name, _relay_argv(number, host.delay_ms))


def remove(name: str) -> None:
    """Delete every namespace of a lab, with all that is in it; fine if there is none."""
    failures = []
    for namespace in namespaces(name):
        try:
            run("ip", "netns", "delete", namespace)
        except CommandError as error:
            failures.append(str(error))
    if failures:
        raise CommandError("; ".join(failures))


def namespaces(name: str) -> list[str]:
    """Namespaces of a lab that exist now."""
    prefix = namespace_prefix(name)
    listed = (line.split()[0] for line in run("ip", "netns", "list").splitlines() if line.strip())
    return [namespace for namespace in listed if namespace.startswith(prefix)]


def inside(namespace: str) -> tuple[str, ...]:
    """What to put before a command so that it runs in a namespace."""
    return ("ip", "netns", "exec", namespace)


def has_netem(namespace: str) -> bool:
    """Whether this kernel can delay packets itself (tried on the namespace's loopback)."""
    try:
        run("tc", "-n", namespace, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except CommandError:
        return False
    run("tc", "-n", namespace, "qdisc", "delete", "dev", "lo", "root")
    return True


def not_permitted() -> str | None:
    """Why this user may not build a lab, or None."""
    if os.geteuid() != 0:
        return "the lab needs root: network namespaces and traffic control are refused otherwise"
    return None


def why_not() -> str | None:
    """Try all that a lab is made of in a namespace that is gone afterwards; the reason, or None."""
    probe = f"leadline-probe-{os.getpid()}"
    try:
        run("ip", "netns", "add", probe)
    except CommandError as error:
        return f"network namespaces are refused here: {error}"
    try:
        _ip(probe, "link", "add", "name", BRIDGE, "type", "bridge")
        _pair(probe, "a", probe, "b")
        _shape(probe, "a", BoardSpec("a", rate_mbps=1), netem=False)
        _offloads_off(probe, "a")
    except CommandError as error:
        return f"the lab's network is refused here: {error}"
    finally:
        run("ip", "netns", "delete", probe)
    return None


def tbf(rate_mbps: float) -> tuple[str, ...]:
    """Token bucket for a rate in Mbit/s: 4 ms of burst and 50 ms of queue, so TCP can fill it.

    The floors (two frames of burst, ten of queue) keep a link of a few hundred kbit/s usable.
    """
    bytes_per_s = rate_mbps * 1e6 / 8
    burst = max(round(bytes_per_s * _BURST_S), _LEAST_BURST_BYTES)
    limit = burst + max(round(bytes_per_s * _QUEUE_S), _LEAST_QUEUE_BYTES)
    rate = f"{round(rate_mbps * 1e6)}bit"
    return ("tbf", "rate", rate, "burst", str(burst), "limit", str(limit))


def _shape(namespace: str, device: str, host: BoardSpec, netem: bool) -> None:
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", device)
    parent: tuple[str, ...] = ("root",)
    if netem and host.delay_ms > 0:
        run(*add, "root", "handle", "1:", "netem", "delay", f"{host.delay_ms * 500:.0f}us")
        parent = ("parent", "1:1")
    if host.rate_mbps is not None:
        run(*add, *parent, "handle", "10:", *tbf(host.rate_mbps))


def _pair(namespace: str, device: str, peer_namespace: str, peer: str) -> None:
    _ip(
        namespace,
        *("link", "add", "name", device, "type", "veth"),
        *("peer", "name", peer, "netns", peer_namespace),
    )


def _up(namespace: str, device: str) -> None:
    """Bring up a device that has no address of its own, not even an automatic one."""
    _ip(namespace, "link", "set", "dev", device, "addrgenmode", "none")
    _ip(namespace, "link", "set", "dev", device, "up")


def _offloads_off(namespace: str, device: str) -> None:
    switches = [word for offload in _OFFLOADS for word in (offload, "off")]
    run(*inside(namespace), "ethtool", "-K", device, *switches)


def _relay_argv(number: int, delay_ms: float) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "leadline_controller.lab.relay"),
        *(f"w{number}", f"x{number}", "--delay-ms", f"{delay_ms:g}"),
    )


def _ip(namespace: str, *words: str) -> None:
    run("ip", "-n", namespace, *words)
