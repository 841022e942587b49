"""Counts what crosses interfaces, by kind, to check the controller's own accounts.

`python -m tests.system.link_traffic FILE IPERF3_PORT MQTT_PORT INTERFACE...` writes FILE twice a
second until SIGTERM: for each interface the bytes of its kernel counters, both directions together,
and those of its packets by kind. A packet counts with its Ethernet header. One that the kernel has
not split into segments, as on veth, counts with one header, in both.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

KINDS = ("bandwidth", "ping", "mqtt", "other")
_ETH_P_ALL = 0x0003
_ETHERNET_BYTES = 14
_HEADERS_BYTES = 96
_BUFFER_BYTES = 4 << 20
_WRITE_EVERY_S = 0.5


@dataclass(frozen=True)
class Traffic:
    """Bytes since the start. counted: by the kernel. kinds: of the packets that were seen."""

    counted: int
    kinds: dict[str, int]

    def since(self, before: Traffic) -> Traffic:
        """What came after another reading."""
        kinds = {kind: self.kinds[kind] - before.kinds[kind] for kind in KINDS}
        return Traffic(self.counted - before.counted, kinds)


def read(file: Path) -> dict[str, Traffic]:
    """The newest reading, by interface."""
    return {name: Traffic(*each) for name, each in json.loads(file.read_text()).items()}


def kind_of(packet: bytes, iperf3_port: int, mqtt_port: int) -> str:
    """What a packet is for. packet: its first bytes, from the IP header on."""
    if not packet or packet[0] >> 4 != 4:
        return "other"
    start, protocol = 4 * (packet[0] & 0xF), packet[9]
    if protocol == socket.IPPROTO_ICMP:
        return "ping"
    ports = {
        int.from_bytes(packet[start + at : start + at + 2], "big")
        for at in ((0, 2) if protocol == socket.IPPROTO_TCP else ())
    }
    if iperf3_port in ports:
        return "bandwidth"
    return "mqtt" if mqtt_port in ports else "other"


def main(file: Path, iperf3_port: int, mqtt_port: int, names: list[str]) -> None:
    """Count until SIGTERM ends the process."""
    sockets = {}
    for name in names:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        tap.bind((name, _ETH_P_ALL))
        sockets[tap] = name
    seen = {name: Counter(dict.fromkeys(KINDS, 0)) for name in names}
    begin = {name: _counted(name) for name in names}
    written_s = 0.0
    while True:
        for tap in select.select(list(sockets), [], [], _WRITE_EVERY_S)[0]:
            data = bytearray(_HEADERS_BYTES)
            size, _ = tap.recvfrom_into(data, 0, socket.MSG_TRUNC)
            kind = kind_of(bytes(data), iperf3_port, mqtt_port)
            seen[sockets[tap]][kind] += size + _ETHERNET_BYTES
        if time.monotonic() - written_s >= _WRITE_EVERY_S:
            written_s = time.monotonic()
            found = {name: (_counted(name) - begin[name], seen[name]) for name in names}
            new = file.with_suffix(".new")
            new.write_text(json.dumps(found))
            new.replace(file)


def _counted(name: str) -> int:
    folder = Path("/sys/class/net", name, "statistics")
    return sum(int((folder / f"{way}_bytes").read_text()) for way in ("rx", "tx"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
