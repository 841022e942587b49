"""Network: packets, bytes and speed of at most MAX_INTERFACES interfaces.

A packet counts once, where it leaves or enters the board. A node of a cluster has dozens of
interfaces whose packets pass another one as well: bonds, bridges, VLANs, tunnels, and those of
containers. So hardware counts, and nothing that is above it. A board without any, such as a
container, has the interface of its default route.
"""

import socket
import struct
from collections.abc import Mapping, Sequence, Set
from fcntl import ioctl
from pathlib import Path

from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent import files
from leadline_agent.clock import boot_ms
from leadline_agent.collectors.collector import (
    AbsentError,
    TransientError,
    per_second,
    register,
)

MAX_INTERFACES = 4
MOST_COUNT = (1 << 64) - 1
# linux/sockios.h, linux/if.h
_SIOCGIFFLAGS, _IFF_RUNNING, _IFF_NOARP = 0x8913, 0x40, 0x80
# linux/if_arp.h: hardware that carries no packets of its own. CAN, and Wi-Fi that is monitored.
_NO_PACKETS = frozenset((280, 801, 802, 803))
# The same file: IPIP, its IPv6, SIT, GRE, GRE over IPv6, netlink, and none (TUN, WireGuard).
_TUNNELS = frozenset((768, 769, 776, 778, 823, 824, 65534))
_TUNNEL_KINDS = frozenset(("vxlan", "geneve"))  # DEVTYPE of those that are like Ethernet
_ABOVE_OTHERS = frozenset(("bridge", "bonding", "tun_flags"))
_RTF_UP = 0x1  # linux/route.h

# The field of the report for each counter, and its column in /proc/net/dev.
RATES = {
    "bytes_received_per_s": 0,
    "packets_received_per_s": 1,
    "bytes_sent_per_s": 8,
    "packets_sent_per_s": 9,
}
Counters = Mapping[str, int | None]


@register("network")
class NetworkCollector:
    """Reads /proc/net/dev; sysfs shows how the interfaces are related."""

    def __init__(self, sys_root: Path) -> None:
        self._net = sys_root / "class/net"
        self._before: Mapping[str, Counters] = {}
        self._before_ms = 0

    def collect(self) -> pb.Report:
        """Rates since the previous reading. Raises AbsentError where only loopback is up, and
        TransientError if nothing can be read."""
        now_ms = boot_ms()
        counters = parse(files.proc("net/dev"))
        if not counters:
            raise TransientError("/proc/net/dev cannot be read")
        up = [name for name in counters if name != "lo" and is_up(name)]
        after = {name: counters[name] for name in choose(self._net, up)}
        if not after:
            raise AbsentError("no network interface is up")
        elapsed_ms = now_ms - self._before_ms
        network = [rates(n, self._before.get(n, {}), c, elapsed_ms) for n, c in after.items()]
        for interface in network:
            speed_mbps = files.text(self._net / interface.name / "speed")
            # The kernel has none for Wi-Fi and for links that are down: an error, -1 or 2**32 - 1.
            interface_mbps = files.number(speed_mbps, 1, round(codec.MOST_MBPS))
            if interface_mbps is not None:
                interface.link_mbps = interface_mbps
        self._before, self._before_ms = after, now_ms
        return pb.Report(network=network)


def parse(net_dev: str) -> dict[str, Counters]:
    """The counters of each interface by the field of their rate, of the lines that have all."""
    found: dict[str, Counters] = {}
    for line in net_dev.splitlines():
        name, _, columns = line.rpartition(":")
        fields = columns.split()
        if name and len(fields) > max(RATES.values()):
            counters = {key: files.number(fields[at], 0, MOST_COUNT) for key, at in RATES.items()}
            if None not in counters.values():
                found[name.strip()] = counters
    return found


def is_up(name: str) -> bool:
    """Whether the interface can carry packets. psutil also reads its speed, which fails where the
    driver does not provide it, as under qemu's emulation of another processor."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            answer = ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16s24x", name.encode()))
    except OSError:
        return False  # it was removed
    flags: int = struct.unpack_from("16xH", answer)[0]
    return bool(flags & _IFF_RUNNING)


def choose(net: Path, up: Sequence[str]) -> list[str]:
    """The interfaces to report. net: class/net of sysfs. up: those that are up, loopback aside."""
    routed = below(net, default_routes(files.proc("net/route"), files.proc("net/ipv6_route")))
    found = [name for name in up if is_hardware(net / name)]
    if not found:
        plain = [name for name in up if not is_above_another(net / name)]
        found = (
            [name for name in plain if name in routed]
            or [name for name in up if name in routed]
            or [name for name in plain if not files.exists(net / name / "master")]
            or plain
        )
    # Of more than fit, those of the default routes: the others may be ports that hardly any packet
    # passes.
    return sorted(sorted(found, key=lambda name: (name not in routed, name))[:MAX_INTERFACES])


def is_hardware(interface: Path) -> bool:
    """Whether packets leave the board there, by an interface's folder in sysfs. The ports of a
    switch on the board are hardware as well, above the one that leads to the switch."""
    return (
        files.exists(interface / "device")  # first, as most are of pods
        and not any(entry.name.startswith("lower_") for entry in files.entries(interface))
        and files.number(files.text(interface / "type"), 0, 65535) not in _NO_PACKETS
    )


def is_above_another(interface: Path) -> bool:
    """Whether its packets pass another interface as well, or none at all, as far as that shows."""
    names = {entry.name for entry in files.entries(interface)}
    flags = files.number(files.text(interface / "flags"), 0, (1 << 32) - 1, base=16) or 0
    kind = (files.text(interface / "uevent") or "").partition("DEVTYPE=")[2].partition("\n")[0]
    return (
        bool(names & _ABOVE_OTHERS)
        or any(name.startswith("lower_") for name in names)
        or files.number(files.text(interface / "type"), 0, 65535) in _TUNNELS | _NO_PACKETS
        or kind in _TUNNEL_KINDS
        or bool(flags & _IFF_NOARP)  # dummies, and what stands for addresses of services
    )


def default_routes(route: str, ipv6_route: str) -> set[str]:
    """The interfaces of the default routes. route, ipv6_route: these files of /proc/net."""
    found = set()
    for fields in map(str.split, route.splitlines()):
        if len(fields) >= 8 and fields[1] == fields[7] == "00000000" and _is_used(fields[3]):
            found.add(fields[0])
    for fields in map(str.split, ipv6_route.splitlines()):
        if len(fields) >= 10 and fields[1] == "00" and set(fields[0]) == {"0"}:
            found |= {fields[9]} - {"lo"}
    return found


def _is_used(flags: str) -> bool:
    return bool((files.number(flags, 0, (1 << 32) - 1, base=16) or 0) & _RTF_UP)


def below(net: Path, names: Set[str]) -> set[str]:
    """The interfaces on which these are, such as the ports of a bridge; else they themselves."""
    found: set[str] = set()
    left, seen = list(names), set(names)
    while left:
        name = left.pop()
        entries = [entry.name for entry in files.entries(net / name)]
        lower = [each.removeprefix("lower_") for each in entries if each.startswith("lower_")]
        if not lower:
            found.add(name)
        left += [each for each in lower if each not in seen]
        seen.update(lower)
    return found


def rates(name: str, before: Counters, after: Counters, elapsed_ms: int) -> pb.NetworkInterface:
    """One interface's rates; each is unknown at the first reading and after a reset."""
    interface = pb.NetworkInterface(name=name)
    for field in RATES:
        first, last = before.get(field), after.get(field)
        if first is not None and last is not None:
            rate = per_second(first, last, elapsed_ms)
            if rate is not None:
                setattr(interface, field, rate)
    return interface
