"""Network: packets, bytes and speed of at most MAX_INTERFACES interfaces.

A node of a cluster has dozens of virtual interfaces that forward the packets of a real one.
Reporting them would count packets twice, and the report would grow with the number of pods.
"""

import socket
import struct
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path
from typing import Any

import psutil
from leadline_wire import codec
from leadline_wire.v1 import telemetry_pb2 as pb

from leadline_agent.clock import boot_ms
from leadline_agent.collectors.collector import AbsentError, per_second, register

MAX_INTERFACES = 4
# linux/sockios.h, linux/if.h
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
VIRTUAL_PREFIXES = (
    "veth",
    "cni",
    "cali",
    "flannel",
    "docker",
    "br-",
    "kube",
    "lxc",
    "ifb",
    "dummy",
)


# The field of the report for each of psutil's counters.
RATES = {
    "packets_sent": "packets_sent_per_s",
    "packets_recv": "packets_received_per_s",
    "bytes_sent": "bytes_sent_per_s",
    "bytes_recv": "bytes_received_per_s",
}


@register("network")
class NetworkCollector:
    """Reads /proc/net/dev through psutil; sysfs shows which interfaces are hardware."""

    def __init__(self, sys_root: Path) -> None:
        self._net = sys_root / "class/net"
        self._before: Mapping[str, Any] = {}
        self._before_ms = 0

    def collect(self) -> pb.Report:
        """Rates since the previous reading. Raises AbsentError where only loopback is up."""
        now_ms = boot_ms()
        counters = psutil.net_io_counters(pernic=True, nowrap=False)
        up = [name for name in counters if is_up(name)]
        physical = {name for name in up if (self._net / name / "device").exists()}
        after = {name: counters[name] for name in choose(up, physical)}
        if not after:
            raise AbsentError("no network interface is up")
        elapsed_ms = now_ms - self._before_ms
        network = [rates(n, self._before.get(n), c, elapsed_ms) for n, c in after.items()]
        for interface in network:
            if speed_mbps := link_mbps(self._net / interface.name):
                interface.link_mbps = speed_mbps
        self._before, self._before_ms = after, now_ms
        return pb.Report(network=network)


def is_up(name: str) -> bool:
    """Whether the interface can carry packets. psutil also reads its speed, which fails where the
    driver does not provide it, as under qemu's emulation of another processor."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16s24x", name.encode()))
        except OSError:
            return False  # it was removed
    flags: int = struct.unpack_from("16xH", answer)[0]
    return bool(flags & _IFF_RUNNING)


def choose(up: list[str], physical: set[str]) -> list[str]:
    """The interfaces to report: hardware first, those of containers as a last resort."""
    outside = [name for name in up if name != "lo"]
    real = [name for name in outside if name in physical or not name.startswith(VIRTUAL_PREFIXES)]
    return sorted(real or outside, key=lambda name: (name not in physical, name))[:MAX_INTERFACES]


def link_mbps(interface: Path) -> int:
    """The link's speed in Mbit/s, 0 if unknown, from an interface's folder in sysfs.

    The kernel has no number for Wi-Fi and for links that are down: an error, -1 or 2**32 - 1.
    """
    try:
        speed = int((interface / "speed").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return speed if 0 < speed <= codec.MOST_MBPS else 0


def rates(name: str, before: Any, after: Any, elapsed_ms: int) -> pb.NetworkInterface:
    """One interface's rates; each is unknown at the first reading and after a reset.

    before, after: psutil's counters, None before the first reading.
    """
    interface = pb.NetworkInterface(name=name)
    for counter, field in RATES.items() if before else ():
        rate = per_second(getattr(before, counter), getattr(after, counter), elapsed_ms)
        if rate is not None:
            setattr(interface, field, rate)
    return interface
