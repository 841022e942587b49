"""Messages of the kernel's connection tracking, as it writes them."""

import struct
from ipaddress import ip_address

TCP = 6
NEW, DESTROYED = 1 << 8, (1 << 8) | 2


def attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    """One netlink attribute, padded."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind | (0x8000 if nested else 0)) + value + bytes(-length % 4)


def direction(kind: int, source: str, destination: str, ports: tuple[int, int], tcp: int) -> bytes:
    """A CTA_TUPLE_*."""
    first, second = ip_address(source).packed, ip_address(destination).packed
    at = 1 if len(first) == 4 else 3
    addresses = attribute(at, first) + attribute(at + 1, second)
    protocol = attribute(1, bytes([tcp]))
    protocol += attribute(2, struct.pack(">H", ports[0])) + attribute(
        3, struct.pack(">H", ports[1])
    )
    inner = attribute(1, addresses, nested=True) + attribute(2, protocol, nested=True)
    return attribute(kind, inner, nested=True)


def counters(kind: int, packets: int, size: int) -> bytes:
    """A CTA_COUNTERS_*."""
    inner = attribute(1, struct.pack(">Q", packets)) + attribute(2, struct.pack(">Q", size))
    return attribute(kind, inner, nested=True)


def message(
    original: tuple[str, str, int, int],
    reply: tuple[str, str, int, int],
    counts: tuple[int, int, int, int] | None = (1, 60, 1, 52),
    number: int = 7,
    kind: int = NEW,
    protocol: int = TCP,
) -> bytes:
    """A connection; (source, destination, source's port, destination's port) of each direction."""
    body = struct.pack("=BBH", 2, 0, 0)
    for at, (source, destination, *ports) in ((1, original), (2, reply)):
        body += direction(at, source, destination, (ports[0], ports[1]), protocol)
    body += attribute(3, bytes(4)) + attribute(7, struct.pack(">I", 120))  # status, timeout
    if counts:
        body += counters(9, *counts[:2]) + counters(10, *counts[2:])
    body += attribute(12, struct.pack(">I", number))
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body
